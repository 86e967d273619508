"""docs/compatibility.md says of tools what they do here; rows of packages that are not installed are skipped."""

import importlib.util

import compatibility
import pytest


@pytest.fixture(scope="module")
def found():
    return compatibility.rows()


@pytest.mark.parametrize(("tool", "package"), [(tool, package) for tool, package, _ in compatibility.PROBES])
def test_a_row_is_current(found, tool, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    columns = [part.strip() for part in found[tool].split("|")]
    written = [part.strip() for part in compatibility.written()[tool].split("|")]
    assert written[3] == columns[3], "run tools/compatibility.py"


def test_every_row_is_a_probe():
    assert list(compatibility.written()) == [tool for tool, _, _ in compatibility.PROBES]


def test_a_row_keeps_the_versions_that_it_is_true_of():
    line = "| `prune` | torch 2.15.0 | refused |"
    kept = compatibility.with_versions_before(line, "| `prune` | torch 2.9.0, 2.11.0 | refused |")
    assert kept == "| `prune` | torch 2.9.0, 2.11.0, 2.15.0 | refused |"
    assert compatibility.with_versions_before(line, "| `prune` | torch 2.11.0 | works |") == line
    assert compatibility.with_versions_before(line, None) == line
