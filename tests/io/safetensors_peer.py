"""The official safetensors package at the other end: `write FILE` makes the tensors below, `check FILE` compares."""

import sys

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as missing:
    print(missing)
    sys.exit(77)

METADATA = {"bie": '{"format_version": 1}', "naïve": "ünïcode ✓\n"}


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
        "empty": torch.zeros(3, 0, 2),
        'odd "name"\\ü': torch.ones(1),
    }


def check(path: str) -> None:
    wanted = tensors()
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == METADATA, file.metadata()
        assert sorted(file.keys()) == sorted(wanted), file.keys()
        for name, value in wanted.items():
            got = file.get_tensor(name)
            assert got.dtype == value.dtype, (name, got.dtype)
            assert got.shape == value.shape, (name, got.shape)
            assert torch.equal(got, value), (name, got)


if sys.argv[1] == "write":
    save_file(tensors(), sys.argv[2], metadata=METADATA)
else:
    check(sys.argv[2])
