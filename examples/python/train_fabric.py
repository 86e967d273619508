"""An MLP of 1-bit layers trained with Lightning Fabric. On two processes:

torchrun --nproc-per-node 2 examples/python/train_fabric.py [--accelerator cpu]
"""

import argparse
import os

from datasets import accuracy, digits
from lightning_fabric import Fabric
from torch import distributed, nn
from torch.utils.data import DataLoader

import bie

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--accelerator", default="auto")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

fabric = Fabric(accelerator=options.accelerator, devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
fabric.launch()
fabric.seed_everything(options.seed, verbose=False)
train, test = digits()
model = nn.Sequential(
    *(nn.Flatten(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.PReLU()),
    *(bie.nn.BinaryLinear(128, 128), nn.BatchNorm1d(128), nn.PReLU()),
    nn.Linear(128, 10),
)
bie.prepare(model)  # int8 weights, before the optimizer is given them
optimizer = bie.optim.DiodeMix(model.parameters(), lr=5e-3, betas=(0.9, 0.99))

wrapped, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(DataLoader(train, batch_size=32, shuffle=True, drop_last=True))
for _ in range(options.epochs):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(wrapped(images), labels)
        fabric.backward(loss)
        optimizer.step()
if reducer := bie.distributed.reducer_of(wrapped):
    reducer.check()  # raises where the ranks hold other weights
fabric.print(f"{fabric.world_size} processes: accuracy {100 * accuracy(model.cpu(), test):.2f} %")
if distributed.is_initialized():
    distributed.destroy_process_group()  # its threads must not outlive the interpreter
