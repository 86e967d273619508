"""The sources of both packages: imports go downward only; ``bitorch_engine`` computes nothing and keeps no state."""

import ast
from pathlib import Path

import pytest

import bie
import bitorch_engine

# Rooms of bie that each room may import, beside the modules that everybody may.
ROOMS = {
    "weights": {"weights"},
    "nn.state": {"weights", "nn.state"},
    "nn": {"weights", "nn.state", "nn"},
    "formats": {"nn", "formats"},
    "optim": {"weights", "nn.state", "optim"},
    "bitorch": {"weights", "nn.state", "bitorch"},
    "": {"weights", "nn.state", "nn", "formats", "optim", ""},  # whole models: checkpoint, conversion
    "distributed": {"weights", "nn.state", "distributed"},
    "train": {"weights", "nn.state", "nn", "", "optim", "distributed", "train"},
    "quantization": {"weights", "nn.state", "nn", "formats", "", "quantization"},
}
EVERYBODY = {"_library", "_operators", "_output_files", "_outside_graphs", "_places", "_weak_sets", "errors"}


def sources(package):
    """{module name without the package's: path}"""
    found = {}
    for folder in package.__path__:
        for path in sorted(Path(folder).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(node):
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    return [node.module or "."] if isinstance(node, ast.ImportFrom) else []


def room_of(module):
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len, default="")


def upward(name, text):
    """The modules of bie that the module ``name`` must not import."""
    found = []
    for node in ast.walk(ast.parse(text)):
        for module in imported(node):
            package, _, rest = module.partition(".")
            names = [] if isinstance(node, ast.Import) else [name.name for name in node.names]
            for target in [rest] if rest or not names else names:  # "from bie import x" may mean the module x
                ours = package == "bie" and target not in EVERYBODY
                if package == "bitorch_engine" or (ours and room_of(target) not in ROOMS[room_of(name)]):
                    found.append(f"{package}.{target}")
    return found


OURS = {name: path for name, path in sources(bie).items() if name not in ("", "__main__")}


@pytest.mark.parametrize("name", OURS)
def test_imports_go_downward(name):
    assert upward(name, OURS[name].read_text()) == []


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("weights.parameters", "from bie.nn.state.seen import Seen", ["bie.nn.state.seen"]),
        ("nn.state.seen", "from bie.nn.matmul import MatMulLayer", ["bie.nn.matmul"]),
        ("nn.matmul", "from bie.optim import DiodeMix", ["bie.optim"]),
        ("optim.galore", "import bie.nn", ["bie.nn"]),
        ("optim.galore", "from bie import checkpoint", ["bie.checkpoint"]),
        ("checkpoint", "from bie.bitorch.layouts import BMM", ["bie.bitorch.layouts"]),
        ("conversion", "import bitorch_engine.optim", ["bitorch_engine.optim"]),
        ("nn.matmul", "from bie import nn\nfrom bie._operators import ops", []),
    ],
)
def test_an_import_upward_is_seen(name, line, said):
    assert upward(name, line) == said


ALIASES = sources(bitorch_engine)
MAY_IMPORT = {"__future__", "abc", "bie", "bitorch", "bitorch_engine", "collections", "importlib", "torch", "typing"}
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.MatMult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
STATE = {"__getstate__", "__setstate__", "__setattr__", "__reduce_ex__", "_apply", "_load_from_state_dict"}
STATE |= {"_save_to_state_dict", "register_buffer", "register_parameter", "state_dict"}
LINES = 90


def offences(text):
    """What an alias module must not hold, with its line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        modules = imported(node)
        found += [f"{node.lineno}: imports {m}" for m in modules if m.partition(".")[0] not in MAY_IMPORT]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            found.append(f"{node.lineno}: arithmetic")
        if isinstance(node, LOOPS):
            found.append(f"{node.lineno}: a loop")
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None)
        if name in STATE:
            found.append(f"{node.lineno}: {name}")
        if (isinstance(node, ast.Attribute) and node.attr == "ops") or "bie._operators" in modules:
            found.append(f"{node.lineno}: an operator")
    if len(text.splitlines()) > LINES:
        found.append(f"longer than {LINES} lines")
    return found


@pytest.mark.parametrize("name", ALIASES)
def test_alias_modules_hold_names_alone(name):
    assert offences(ALIASES[name].read_text()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import numpy", "1: imports numpy"),
        ("def f(x):\n    return x * 2", "2: arithmetic"),
        ("def f(x):\n    return [y for y in x]", "2: a loop"),
        ("class A:\n    def __setstate__(self, state): ...", "2: __setstate__"),
        ("def f(self, t):\n    self.register_buffer('a', t)", "2: register_buffer"),
        ("import torch\ntorch.ops.bie.pack_signs", "2: an operator"),
        ("from bie._operators import ops", "1: an operator"),
        ("\n" * (LINES + 1), f"longer than {LINES} lines"),
    ],
)
def test_what_alias_modules_must_not_hold_is_seen(text, said):
    assert said in offences(text)
