"""The official safetensors package at the other end: `write FILE` makes the tensors below, `check FILE` compares.

`write-bare` and `check-bare` leave the metadata out, `write-nothing` and `check-nothing` the tensors too.
"""

import sys

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as missing:
    print(missing)
    sys.exit(77)

METADATA = {"bie": '{"format_version": 1}', "naïve": "ünïcode ✓\n", "": "", "🐝": '"\\\t\x7f'}


def tensors() -> dict[str, torch.Tensor]:
    ramp = torch.arange(24).reshape(2, 3, 4)
    return {
        "BOOL": ramp % 3 == 0,
        "U8": (ramp * 11).to(torch.uint8),
        "I8": (ramp * 11 - 128).to(torch.int8),
        "I16": (ramp * 1000 - 12000).to(torch.int16),
        "I32": (ramp * 100000000 - 1200000000).to(torch.int32),
        "I64": ramp * 100000000000 - 1200000000000,
        "F16": (ramp * 0.25 - 3).to(torch.float16),
        "BF16": (ramp * 0.25 - 3).to(torch.bfloat16),
        "F32": ramp * 0.25 - 3,
        "F64": ramp.to(torch.float64) * 0.25 - 3,
        "scalar": torch.tensor(2.5),
        "scalar BOOL": torch.tensor(True),
        "scalar U8": torch.tensor(200, dtype=torch.uint8),
        "scalar BF16": torch.tensor(-1.5, dtype=torch.bfloat16),
        "empty": torch.zeros(3, 0, 2),
        "empty BOOL": torch.zeros(0, dtype=torch.bool),
        "empty I64": torch.zeros(0, 0, dtype=torch.int64),
        "": torch.full((2,), 2.0),
        "層.重み 🐝\u2028\x7f": torch.full((3,), 3.0),
        "line\nbreak\x01": torch.full((4,), 4.0),
        'odd "name"\\ü': torch.ones(1),
    }


def check(path: str, wanted: dict[str, torch.Tensor], metadata: dict[str, str] | None) -> None:
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == metadata, file.metadata()
        assert sorted(file.keys()) == sorted(wanted), file.keys()
        for name, value in wanted.items():
            got = file.get_tensor(name)
            assert got.dtype == value.dtype, (name, got.dtype)
            assert got.shape == value.shape, (name, got.shape)
            assert torch.equal(got, value), (name, got)


action, _, what = sys.argv[1].partition("-")
chosen = {} if what == "nothing" else tensors()
chosen_metadata = None if what else METADATA
if action == "write":
    save_file(chosen, sys.argv[2], metadata=chosen_metadata)
else:
    check(sys.argv[2], chosen, chosen_metadata)
