"""Writes the table of docs/compatibility.md#tools: what torch's tools and others do with the layers.

Usage: compatibility.py [--check]. Each row is what a probe finds with the packages that are installed; rows of packages
that are not stay as they are. A row keeps the versions for which it said the same. --check only compares and exits 1
where a row is not current.
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import importlib.util
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import bie

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/compatibility.md"
BEGIN, END = "<!-- tools: written by tools/compatibility.py -->", "<!-- end of tools -->"


def _net(**options: bool) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 24), bie.nn.Q8Linear(24, 16, **options), bie.nn.Q4Linear(16, 4, **options))
    net(torch.randn(8, 16))
    return net


def _packed() -> nn.Module:
    net = _net().eval()
    bie.pack(net)
    return net


X = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))


def _compiled(net: nn.Module) -> str:
    torch._dynamo.reset()
    net(X).sum().backward() if net.training else None
    wanted = net(X)
    same = torch.equal(torch.compile(net, backend="aot_eager", fullgraph=True)(X), wanted)
    torch._dynamo.reset()
    return "works, the same bits" if same else "other bits"


def _exported() -> str:
    net = _packed()
    with tempfile.TemporaryFile() as file, torch.no_grad():
        torch.export.save(torch.export.export(net, (X,)), file)
        file.seek(0)
        again = torch.export.load(file).module()
        return "works, panels kept, the same bits" if torch.equal(again(X), net(X)) else "other bits"


def _clipped() -> str:
    net = _net(latent=False)
    net(X).sum().backward()
    before = [weight.grad.clone() for weight in bie.optim.integer_parameters(net)]
    nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    after = [weight.grad for weight in bie.optim.integer_parameters(net)]
    same = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return "works; int8 gradients have no size and stay" if same else "changes int8 gradients"


def _flops() -> str:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        _packed()(X)
    return (
        "works, counts multiply-adds"
        if counter.get_total_flops() >= 2 * 5 * (16 * 24 + 24 * 16 + 64)
        else "counts less"
    )


def _onnx() -> str:
    net = _packed()
    program = bie.export_onnx(net, X)
    import onnxruntime

    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: X.numpy()})[0])
    with torch.no_grad():
        near = float((found - net(X)).norm() / net(X).norm()) < 0.05
    return "`bie.export_onnx` works; outputs within 5 % (a code may move by one step)" if near else "other outputs"


def _transformers() -> str:
    import transformers

    import bie.hf

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=20))
    words = torch.tensor([[1, 2, 3]])
    bie.hf.quantize_model(model, "w8")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        again = transformers.BertModel.from_pretrained(folder)
        same = torch.equal(again(words).last_hidden_state, model(words).last_hidden_state)
    return "`bie.hf` works, the same bits" if same else "other bits"


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        return f"refused: {str(error).splitlines()[0].partition(': ')[2]}"
    return "works"


def _parametrized() -> object:
    net = _net()
    parametrizations.weight_norm(net[1])
    return net(X)


def _pruned() -> object:
    net = _net()
    prune.l1_unstructured(net[1], "weight", 0.5)
    return net(X)


def _integers_in_a_graph() -> str:
    try:
        _compiled(_net(latent=False))
    except Exception as error:
        torch._dynamo.reset()
        told = "no integer gradient is lost" in str(error)
        return "refused: quantised layers train outside the graph" if told else "another error"
    return "works"


#: (tool, package, what it is asked, the probe)
PROBES: list[tuple[str, str, Callable[[], str]]] = [
    ("`torch.compile(fullgraph=True)`, evaluation", "torch", lambda: _compiled(_packed())),
    ("`torch.compile(fullgraph=True)`, training of float weights", "torch", lambda: _compiled(_net())),
    ("`torch.compile(fullgraph=True)`, training of integer weights", "torch", _integers_in_a_graph),
    ("`torch.export`, saved and loaded", "torch", _exported),
    ("`clip_grad_norm_`", "torch", _clipped),
    ("`FlopCounterMode`", "torch", _flops),
    (
        "`copy.deepcopy`",
        "torch",
        lambda: "works" if torch.equal(copy.deepcopy(n := _packed())(X), n(X)) else "other bits",
    ),
    ("`torch.func.vmap`", "torch", lambda: _refusal(lambda: torch.func.vmap(_packed())(X.unsqueeze(0)))),
    ("`torch.fx.symbolic_trace`", "torch", lambda: _refusal(lambda: torch.fx.symbolic_trace(_packed()))),
    ("`torch.jit.script`", "torch", lambda: _refusal(lambda: torch.jit.script(_packed()))),
    ("`torch.nn.utils.parametrizations`", "torch", lambda: _refusal(_parametrized)),
    ("`torch.nn.utils.prune`", "torch", lambda: _refusal(_pruned)),
    ("ONNX", "onnxruntime", _onnx),
    ("`from_pretrained`, `save_pretrained`", "transformers", _transformers),
]


def rows() -> dict[str, str]:
    """{tool: its line} of the packages that are installed."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tool, package, probe in PROBES:
            if importlib.util.find_spec(package) is not None:
                version = importlib.metadata.version(package).partition("+")[0]
                found[tool] = f"| {tool} | {package} {version} | {probe()} |"
    return found


def written() -> dict[str, str]:
    """{tool: its line} of the page."""
    _, _, rest = PAGE.read_text().partition(BEGIN)
    lines = rest.partition(END)[0].strip().splitlines()[2:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


def _columns(line: str) -> tuple[str, str, list[str], str]:
    """Tool, package, versions and what was found."""
    tool, told, result = (part.strip() for part in line.strip("| ").split(" | "))
    package, _, versions = told.partition(" ")
    return tool, package, versions.split(", "), result


def with_versions_before(line: str, before: str | None) -> str:
    """The line, with the versions too for which the page says the same."""
    tool, package, versions, result = _columns(line)
    if before is not None and _columns(before)[3] == result:
        every = {*versions, *_columns(before)[2]}
        versions = sorted(every, key=lambda version: [int(number) for number in version.split(".") if number.isdigit()])
    return f"| {tool} | {package} {', '.join(versions)} | {result} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    before = written()
    found = {tool: with_versions_before(line, before.get(tool)) for tool, line in rows().items()}
    if arguments.check:
        stale = [tool for tool, line in found.items() if before.get(tool) != line]
        print("\n".join(f"docs/compatibility.md: {tool} is not current" for tool in stale), file=sys.stderr)
        return int(bool(stale))
    head, _, rest = PAGE.read_text().partition(BEGIN)
    lines = [line for tool, _, _ in PROBES if (line := found.get(tool) or before.get(tool))]
    table = "\n".join(["| tool | version | |", "| --- | --- | --- |", *lines])
    PAGE.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
