"""Writes docs/support.md: which class runs on what.

Usage: support_matrix.py [--check]. --check only compares and exits 1 where the file is not current. The names are those
of tests/python/api.toml, the rest is asked of the package.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = ROOT / "tests/python/api.toml"
PAGE = ROOT / "docs/support.md"
_PLAIN_TORCH = ("LearnableBias",)

HEAD = """\
<!-- Written by tools/support_matrix.py; change that. -->
# Layers by device
"""

NAMES = """\
All names of BITorch Engine 0.2.6 import, wherever the package does. Names with `Cuda` or `Cutlass` in them are names:
the classes run on any CPU, and none asks for a GPU."""

PLAIN = """\
`DiodeMix`, the packing functions and the quantisers call the same operators. `GaLoreProjector`, `LearnableBias` and the
shape helpers are plain PyTorch. `QLinearInf` needs the package `bitorch` (0.4.1). Making a `MPQLinearMlx` is an
`ImportError`."""


FILES = (
    ("file", "read", "written"),
    (
        "GGUF (Q4_0 to Q8_0, Q2_K to Q6_K, TQ1_0, TQ2_0, Q1_0, Q2_0, IQ4_NL, IQ4_XS, MXFP4, NVFP4, floats)",
        *("yes", "yes ¹"),
    ),
    ("GPTQ, versions 1 and 2", "yes", "version 1"),
    ("GreenBit: legacy, layer-mix, channel-mix", "yes", "no"),
    ("safetensors of weight-only models", "yes", "yes"),
    ("AWQ, EXL2, EXL3, bitsandbytes, compressed-tensors, marlin; IQ1 to IQ3, I2_S", "refused by name", "no"),
)


def _load(entry: dict) -> object:
    module = importlib.import_module(entry.get("module", entry.get("package")))
    return getattr(module, entry["name"])


def _has_kernels(key: str) -> bool:
    """Whether any operator of ours has a kernel for this dispatch key."""
    import torch

    import bie  # noqa: F401 (it loads the operators)

    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("bie::")}
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for name in names)


def _classes() -> list[tuple[str, str]]:
    """(name, where to import it from) of the layers and autograd functions that compute."""
    import torch

    found = []
    for entry in tomllib.loads(CONTRACT.read_text())["name"]:
        thing = _load(entry)
        if not isinstance(thing, type) or not issubclass(thing, (torch.nn.Module, torch.autograd.Function)):
            continue
        if "abstract" in entry or "is" in entry or entry["name"] in _PLAIN_TORCH:
            continue
        found.append((entry["name"], entry.get("package", entry.get("module"))))
    return found


def _layers(answers: tuple[str, ...]) -> list[tuple[str, ...]]:
    """A row for each layer of bie.nn: where it runs, and what BITorch Engine calls it."""
    import torch

    from bie import nn

    theirs = [thing for entry in tomllib.loads(CONTRACT.read_text())["name"] if isinstance(thing := _load(entry), type)]
    rows = []
    for name in nn.__all__:
        cls = getattr(nn, name)
        if (
            not isinstance(cls, type)
            or not issubclass(cls, torch.nn.Module)
            or cls in (nn.QuantLayer, nn.WeightOnlyLinear)
        ):
            continue
        names = dict.fromkeys(f"`{other.__name__}`" for other in theirs if issubclass(other, cls))
        rows.append((f"`{name}`", *answers, ", ".join(names)))
    return rows


def _table(*rows: tuple[str, ...]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def page() -> str:
    """The text of docs/support.md."""
    on = {"CPU": _has_kernels("CPU"), "GPU": _has_kernels("CUDA")}
    answers = tuple("yes" if on[device] else "not yet" for device in on)
    computing = [(f"`{name}`", f"`{package}`", *answers) for name, package in _classes()]
    return "\n".join(
        [
            HEAD,
            "## Layers of `bie.nn`",
            "",
            _table(("class", *on, "in BITorch Engine"), *_layers(answers)),
            "",
            "## Files of models",
            "",
            "[What each becomes](load-models.md). The readers are the same code in C++ and Python.",
            "",
            _table(*FILES),
            "",
            "¹ Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_0, TQ2_0 and floats; floats are rounded to Q2_K to Q6_K as well.",
            "",
            "## Layers and functions of `bitorch_engine` that compute",
            "",
            NAMES,
            "",
            _table(("class", "import from", *on), *computing),
            "",
            PLAIN,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if not options.check:
        PAGE.write_text(page())
    elif not PAGE.is_file() or PAGE.read_text() != page():
        print(f"{PAGE.relative_to(ROOT)} is not current: run tools/support_matrix.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
