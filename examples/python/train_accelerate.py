"""An MLP of 1-bit layers trained with accelerate. On two processes:

torchrun --nproc-per-node 2 examples/python/train_accelerate.py [--cpu]
"""

import argparse

import torch
from accelerate import Accelerator
from datasets import accuracy, digits
from torch import nn
from torch.utils.data import DataLoader

import bie

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

torch.manual_seed(options.seed)
train, test = digits()
model = nn.Sequential(
    *(nn.Flatten(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.PReLU()),
    *(bie.nn.BinaryLinear(128, 128), nn.BatchNorm1d(128), nn.PReLU()),
    nn.Linear(128, 10),
)
bie.prepare(model)  # int8 weights, before the optimizer is given them
optimizer = bie.optim.DiodeMix(model.parameters(), lr=5e-3, betas=(0.9, 0.99))

accelerator = Accelerator(cpu=options.cpu)
loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
wrapped, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _ in range(options.epochs):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(wrapped(images), labels)
        accelerator.backward(loss)
        optimizer.step()
if reducer := bie.distributed.reducer_of(wrapped):
    reducer.check()  # raises where the ranks hold other weights
model = accelerator.unwrap_model(wrapped).cpu()
accelerator.print(f"{accelerator.num_processes} processes: accuracy {100 * accuracy(model, test):.2f} %")
accelerator.end_training()
