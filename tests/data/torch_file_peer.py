"""Files of the real torch.save, for torch_file_test.cpp, which holds the values that are wanted: FOLDER/NAME.pt."""

import sys
from collections import OrderedDict
from pathlib import Path

import torch

FOLDER = Path(sys.argv[1])


class BinaryLinearParameter(torch.nn.Parameter):
    """As BITorch Engine's: a parameter of a class that only its users have."""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        with torch.no_grad():
            self.first.weight.copy_(torch.arange(6.0).reshape(2, 3))
            self.first.bias.fill_(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.first(x))


class Stranger:
    pass


def save(name: str, value: object, **options: object) -> None:
    torch.save(value, FOLDER / f"{name}.pt", **options)


def every_kind() -> dict[str, object]:
    ramp = torch.arange(24).reshape(2, 3, 4)
    with_attribute = torch.nn.Parameter(torch.full((2,), 3.0))
    with_attribute.note = "of its user's"
    tensor_with_attribute = torch.full((2,), 4.0)
    tensor_with_attribute.note = (1, "x")
    packed = BinaryLinearParameter(torch.tensor([[1, -2], [3, -4]], dtype=torch.int8), requires_grad=False)
    base = torch.arange(100.0)
    return {
        "bool": ramp % 3 == 0,
        "uint8": (ramp * 11).to(torch.uint8),
        "int8": (ramp * 11 - 128).to(torch.int8),
        "int16": (ramp * 1000 - 12000).to(torch.int16),
        "int32": (ramp * 100000000 - 1200000000).to(torch.int32),
        "int64": ramp * 100000000000 - 1200000000000,
        "float16": (ramp * 0.25 - 3).to(torch.float16),
        "bfloat16": (ramp * 0.25 - 3).to(torch.bfloat16),
        "float32": ramp * 0.25 - 3,
        "float64": ramp.to(torch.float64) * 0.25 - 3,
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(3, 0, 2),
        "base": base,
        "slice": base[10:40:3],
        "transposed": base.reshape(4, 25).t(),
        "element": base[7],
        "parameter": torch.nn.Parameter(torch.full((2,), 2.0)),
        "with_attribute": with_attribute,
        "tensor_with_attribute": tensor_with_attribute,
        "subclass": packed,
        "ünïcode ✓": torch.ones(1),
        "epoch": 3,
        "big": 1 << 80,
        "negative": -(1 << 40),
        "loss": 0.25,
        "name": "x" * 300,
        "none": None,
        "flags": [True, False, (1, 2, 3, 4)],
        "nested": {"a": {"b": [{}]}},
    }


everything = every_kind()
for protocol in (2, 3, 4, 5):
    save(f"every_kind_{protocol}", everything, pickle_protocol=protocol)
save("protocol_4_bytes_and_sets", {"w": torch.ones(2), "b": b"x", "s": {1, 2}, "f": frozenset([3])}, pickle_protocol=4)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.0)
net(torch.ones(4, 3)).sum().backward()
optimizer.step()
state = net.state_dict()
save("module", state)
save("checkpoint", {"epoch": 7, "state_dict": state, "optimizer": optimizer.state_dict()})
save("model_key", {"args": {"lr": 0.1}, "model": state})
save("model_state_dict_key", {"model_state_dict": state, "w": torch.ones(1)})
save("keep_vars", net.state_dict(keep_vars=True))
save("ordered", OrderedDict(w=torch.ones(2)))
save("nothing", {})
save("small", {"w": torch.arange(3.0), "b": torch.tensor([True, False])})
recursive: dict[str, object] = {"w": torch.ones(2)}
recursive["self"] = [recursive]
save("recursive", recursive)
save("many", {f"layer{i}.weight": torch.full((2,), float(i)) for i in range(300)})

# Files that are refused.
save("legacy", {"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
save("tensor", torch.ones(2))
save("list", [torch.ones(2)])
save("no_tensor", {"epoch": 3})
save("integer_key", {3: torch.ones(2)})
save("complex", {"w": torch.ones(2, dtype=torch.complex64)})
save("sparse", {"w": torch.ones(2).to_sparse()})
save("expanded", {"w": torch.ones(1).expand(1000)})
save("stranger", {"w": torch.ones(2), "args": Stranger()})
save("whole_module", net)
