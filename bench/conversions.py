"""Test accuracy of converted models on scikit-learn's digits: a ResNet, a vision transformer, a BERT of tokens.

python bench/conversions.py [--epochs 40]
"""

import argparse
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

import bie


class Block(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.down = nn.Identity()
        if stride > 1:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + self.down(x))


class Transformer(nn.Module):
    """A class from the mean of an encoder's outputs, over patches of 2x2 pixels or a token a pixel."""

    def __init__(self, tokens: bool) -> None:
        super().__init__()
        self.tokens, length = tokens, 64 if tokens else 16
        self.embed = nn.Embedding(17, 48) if tokens else nn.Conv2d(1, 48, 2, stride=2)
        self.places = nn.Parameter(0.02 * torch.randn(length, 48))
        layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed((16 * x).round().long().flatten(1)) if self.tokens else self.embed(x).flatten(2).mT
        return self.head(self.encoder(x + self.places).mean(1))


def resnet() -> nn.Module:
    stem = (nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    blocks = (Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def inner(name: str, module: nn.Module) -> bool:
    """All but the first and the last layer."""
    return name not in ("0", "8", "embed", "head")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    epochs = parser.parse_args().epochs
    data = load_digits()
    x, y = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(data.target)
    torch.manual_seed(0)
    train, test = torch.randperm(len(x)).split([1297, 500])

    def fit(model: nn.Module, epochs: int, lr: float) -> nn.Module:
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        for _ in range(epochs):
            model.train()
            for rows in train[torch.randperm(len(train))].split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
            schedule.step()
        return model.eval()

    def score(model: nn.Module) -> str:
        with torch.no_grad():
            return f"{100 * float((model.eval()(x[test]).argmax(1) == y[test]).float().mean()):.1f} %"

    columns = ("net", "float32", "weights alone, 4 bits", "8 bits", "4 bits", "4 bits, two epochs more")
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|")
    loader = x[train].split(100)
    nets = {"ResNet": resnet, "ViT": lambda: Transformer(False), "BERT, a token a pixel": lambda: Transformer(True)}
    for name, make in nets.items():
        model = fit(make(), epochs, 3e-3)
        cells = [score(model), score(bie.convert(model, "w4", inplace=False).model)]
        for target in ("q8", "q4"):
            cells.append(score(bie.post_training(model, loader, target, filter=inner).model))
        student = bie.prepare_qat(copy.deepcopy(model), "q4", loader=loader, filter=inner)
        cells.append(score(fit(student, 2, 5e-4)))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
