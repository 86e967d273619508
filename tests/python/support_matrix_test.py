"""docs/support.md says what the package is."""

import re

import support_matrix

import bie


def test_the_committed_page_is_current():
    assert support_matrix.PAGE.read_text() == support_matrix.page(), "run tools/support_matrix.py"


def test_the_page_has_every_name_once():
    text = support_matrix.page()
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", text, re.MULTILINE)
    assert len(rows) == len(set(rows)) == len(support_matrix._classes())
    computing = {name for name, _ in support_matrix._classes()}
    assert {
        "BinaryLinearCutlass",
        "BinaryLinearCPP",
        "Q4Conv2dCutlass",
        "BMHA",
        "Q8LinearFunction",
        "Q4MatMul",
        "BinaryEmbeddingCuda",
        "MPQLinearCuda",
        "MBWQLinearCuda",
    } <= computing
    assert not computing & {"BinaryLinearBase", "MPQLinearBase"}


def test_the_page_has_every_layer_under_its_own_name():
    rows = {row[0].strip("`"): row for row in support_matrix._layers(("yes", "not yet"))}
    assert set(rows) == {name for name in bie.nn.__all__ if name[0].isupper()} - {"QuantLayer", "WeightOnlyLinear"}
    assert rows["BinaryLinear"][1:] == ("yes", "not yet", "`BinaryLinearCutlass`, `BinaryLinearCuda`")
    assert rows["Q8MatMul"][3] == "`Q8MatMul`" and rows["BinaryAttention"][3] == "`BMHA`"
    assert rows["BinaryEmbedding"][1:] == ("yes", "not yet", "`BinaryEmbeddingCuda`")


def test_devices_are_asked_of_the_operators():
    assert support_matrix._has_kernels("CPU") and not support_matrix._has_kernels("XLA")
    answer = "yes" if support_matrix._has_kernels("CUDA") else "not yet"
    line = next(line for line in support_matrix.page().splitlines() if line.startswith("| `BMHA`"))
    assert line.endswith(f"| yes | {answer} |")


def test_check_fails_on_a_stale_page(tmp_path, capsys, monkeypatch):
    stale = tmp_path / "docs" / "support.md"
    stale.parent.mkdir()
    monkeypatch.setattr(support_matrix, "PAGE", stale)
    monkeypatch.setattr(support_matrix, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["support_matrix.py", "--check"])
    assert support_matrix.main() == 1
    stale.write_text(support_matrix.page() + "\n")
    assert support_matrix.main() == 1 and "is not current" in capsys.readouterr().err
    stale.write_text(support_matrix.page())
    assert support_matrix.main() == 0
