"""Scripts as BITorch Engine's users have them (docs/spec/api.md#scripts), unchanged, on the CPU."""

import os
import re
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR, CosineAnnealingLR
from bitorch_engine.optim.diode_beta import DiodeMix
from bitorch_engine.utils.model_helper import prepare_bie_layers, save_checkpoint, load_checkpoint
{imports}

class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(64, 1024)
        self.bn1 = nn.BatchNorm1d(1024)
        self.act1 = nn.PReLU()
        self.fc2 = {layer}(1024, 1024)
        self.bn2 = nn.BatchNorm1d(1024)
        self.act2 = nn.PReLU()
        self.fc3 = {layer}(1024, 1024)
        self.bn3 = nn.BatchNorm1d(1024)
        self.act3 = nn.PReLU()
        self.fc4 = nn.Linear(1024, 10)

    def forward(self, x):
        x = self.flatten(x)
        x = self.act1(self.bn1(self.fc1(x)))
        x = self.act2(self.bn2(self.fc2(x)))
        x = self.act3(self.bn3(self.fc3(x)))
        return F.log_softmax(self.fc4(x), dim=1)

def train(model, device, loader, optimizer):
    model.train()
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward(retain_graph=True)
        optimizer.step()

def test(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            correct += output.argmax(dim=1).eq(target.to(device)).sum().item()
    print("accuracy %.4f" % (correct / len(loader.dataset)))

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
from sklearn.datasets import load_digits
digits = load_digits()
images = torch.tensor(digits.images / 16, dtype=torch.float)
labels = torch.tensor(digits.target)
data = torch.utils.data.TensorDataset(images, labels)
train_loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
test_loader = torch.utils.data.DataLoader(data, batch_size=100)
model = Net().to(device)
prepare_bie_layers(model)
optimizer = DiodeMix(model.parameters(), lr={lr}, dtype=torch.float)
scheduler = {scheduler}
for epoch in range(1, 4):
    train(model, device, train_loader, optimizer)
    test(model, device, test_loader)
    scheduler.step()
torch.save(model.state_dict(), sys.argv[1] + "/state.pt")
save_checkpoint(model, sys.argv[1] + "/packed.pt")
model = Net().to(device)
load_checkpoint(model, sys.argv[1] + "/packed.pt")
test(model, device, test_loader)
model.load_state_dict(torch.load(sys.argv[1] + "/state.pt"))
test(model, device, test_loader)
"""

# The import, the rate that such scripts use, and the accuracy that 87 steps with it reach at least.
CASES = {
    "BinaryLinearCuda": ("from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda", "1e-5", 0.15),
    "Q4LinearCutlass": ("from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearCutlass", "1e-4", 0.7),
    "Q8LinearCutlass": ("from bitorch_engine.layers.qlinear.nbit.cutlass import Q8LinearCutlass", "1e-4", 0.7),
}


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(value) for value in re.findall(r"accuracy ([0-9.]+)", done.stdout)]


@pytest.mark.parametrize(
    ("layer", "scheduler"),
    [
        ("BinaryLinearCuda", "StepLR(optimizer, step_size=1, gamma=0.7)"),
        ("Q4LinearCutlass", "CosineAnnealingLR(optimizer, T_max=3)"),
        ("Q8LinearCutlass", "StepLR(optimizer, step_size=1, gamma=0.7)"),
    ],
)
def test_training_scripts(layer, scheduler, tmp_path):
    imports, lr, least = CASES[layer]
    script = SCRIPT.replace("{imports}", imports).replace("{layer}", layer)
    script = script.replace("{lr}", lr).replace("{scheduler}", scheduler)
    accuracies = run(script, str(tmp_path))
    assert len(accuracies) == 5
    assert accuracies[2] > least
    assert accuracies[2] == accuracies[3] == accuracies[4]


def test_conversion_scripts():
    """collect_layers, first and last deleted, quantize_linear_with_*, all replaced; training and evaluation agree."""
    run(
        """
import torch
import torch.nn as nn
from bitorch_engine.utils.convert import (collect_layers, quantize_linear_with_binary_linear_cuda,
    quantize_linear_with_q4_linear_cutlass)
from bitorch_engine.layers.qlinear.binary.cuda.layer import BinaryLinearCuda
from bitorch_engine.layers.qlinear.nbit.cutlass.q4_layer import Q4LinearCutlass

for quantize, cls in ((quantize_linear_with_binary_linear_cuda, BinaryLinearCuda),
                      (quantize_linear_with_q4_linear_cutlass, Q4LinearCutlass)):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.Sequential(nn.Linear(128, 128)),
                          nn.Linear(128, 10))
    layers = collect_layers(model, [nn.Linear])
    names = list(layers)
    del layers[names[0]], layers[names[-1]]
    quantize(model, layers)
    quantized = collect_layers(model, [cls])
    assert list(quantized) == names[1:-1], quantized
    x = torch.randn(4, 64)
    model.train()
    model(x)
    train_output = model(x)
    model.eval()
    assert torch.equal(train_output, model(x))
"""
    )


def test_weights_assigned_directly():
    run(
        """
import torch
import torch.nn as nn
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.cuda.bmm import BMM

w, x = torch.randn(32, 128), torch.randn(8, 128)
layer = BinaryLinearCuda(128, 32)
layer.weight = nn.Parameter(w)
layer.train()
train_output = layer(x)
layer.eval()
assert torch.equal(train_output, layer(x))
packed = BinaryLinearCuda.w_pack(w, BMM.ADAPTIVE)
other = BinaryLinearCuda(128, 32)
other.scale_a.data.copy_(layer.scale_a); other.scale_w.copy_(layer.scale_w)
other.qweight = packed
other.eval()
assert (other(x) != train_output).sum() <= 8 * 32  # signs of w, those of w - mean(w) in training
"""
    )
