"""The notebooks run, cell by cell, and reach what they say; they are stored without outputs."""

import contextlib
import io
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(path):
    """The names that the cells leave, and what they print; a cell that ends in a value is shown as a notebook does."""
    world, printed = {"__name__": "__main__"}, io.StringIO()
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    with contextlib.redirect_stdout(printed):
        for number, cell in enumerate(cells):
            *body, last = "".join(cell["source"]).split("\n")
            value = last.isidentifier()
            exec(compile("\n".join(body if value else [*body, last]), f"{path.name}[{number}]", "exec"), world)
            if value:
                printed.write(world[last]._repr_html_())
    return world, printed.getvalue()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4 and notebook["cells"][0]["source"][0].startswith("# ")
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)
        assert all(len(line) <= 140 for line in cell["source"])


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["convert_and_deploy", "first_layer", "train_quantised"]


def test_first_layer():
    world, printed = run(FOLDER / "first_layer.ipynb")
    assert world["first_layer_accuracy"] > 0.85
    assert "8192 bytes instead of 262144" in printed


def test_train_quantised():
    world, printed = run(FOLDER / "train_quantised.ipynb")
    assert world["float_accuracy"] > 0.9 and world["qat_accuracy"] > world["float_accuracy"] - 0.08
    assert "<table>" in printed and "Q4Conv2d" in printed


def test_convert_and_deploy():
    world, printed = run(FOLDER / "convert_and_deploy.ipynb")
    assert world["net"][1:7] == b"BIENET" and 2 * len(world["net"]) < sum(p.nbytes for p in world["model"].parameters())
    assert "Q8Linear" in printed
