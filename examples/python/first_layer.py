import torch
from sklearn.datasets import load_digits
from torch import nn

import bie

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images / 16).float(), torch.tensor(labels)
train, test = torch.randperm(1797).split([1437, 360])
layer = bie.nn.BinaryLinear(500, 300)  # 1-bit weights and activations, any size
model = nn.Sequential(
    *(nn.Linear(64, 500), nn.BatchNorm1d(500), nn.PReLU()),
    *(layer, nn.BatchNorm1d(300), nn.PReLU(), nn.Linear(300, 10)),
)
optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-2, betas=(0.99, 0.999))  # floats and signs
for _ in range(20):
    for rows in train[torch.randperm(1437)].split(32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # the signs' .grad is int8
        optimizer.step()
model.eval()
bie.pack(model)  # one bit a weight remains
right = model(x[test]).argmax(1) == y[test]
print(f"accuracy {right.float().mean():.3f}, {layer.qweight.nbytes} bytes of weight")
