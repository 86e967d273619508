"""tools/torch_build.py and tools/torch_dependency.py: which torch pip builds beside, and what the wheel says of it."""

import importlib
import subprocess
import sys

import pytest
import torch

torch_dependency = pytest.importorskip("torch_dependency")


@pytest.fixture
def torch_build(monkeypatch):
    pytest.importorskip("scikit_build_core")
    monkeypatch.delitem(sys.modules, "torch_build", raising=False)
    return importlib.import_module("torch_build")


@pytest.fixture
def at_hand(monkeypatch):
    """Lets a torch be installed, with the folders of other torches beside it."""

    def let(version, others=None, folder=None):
        monkeypatch.setattr(torch_dependency, "torch_at_hand", lambda: version)
        monkeypatch.delenv("BIE_OTHER_TORCHES", raising=False)
        for other in others or ():
            (folder / f"package/lib/torch-{other}").mkdir(parents=True)
        if others is not None:
            monkeypatch.setenv("BIE_OTHER_TORCHES", str(folder))

    return let


def test_the_torch_of_this_environment():
    found = torch_dependency.torch_at_hand()
    assert torch_dependency.minor(found) == torch_dependency.minor(torch.__version__)


def test_a_torch_that_pip_hides_from_the_build(monkeypatch, tmp_path):
    def hidden(name):
        raise torch_dependency.metadata.PackageNotFoundError(name)

    expected = torch_dependency.torch_at_hand()
    # As in pip's environment of a build, Python starts by forgetting the folders of packages.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.path[:] = [path for path in sys.path if 'site-packages' not in path]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = [sys.executable, "-c", torch_dependency._CODE]
    assert subprocess.run(asked, capture_output=True).returncode != 0
    monkeypatch.setattr(torch_dependency.metadata, "version", hidden)
    assert torch_dependency.torch_at_hand() == expected


def test_no_torch_at_all(monkeypatch, at_hand):
    monkeypatch.setattr(torch_dependency, "_CODE", "raise SystemExit(1)")
    monkeypatch.setattr(torch_dependency.metadata, "version", lambda name: metadata_missing(name))
    assert torch_dependency.torch_at_hand() is None
    at_hand(None)
    assert torch_dependency.torch_requirement() == "torch>=2.11"  # of a source distribution


def metadata_missing(name):
    raise torch_dependency.metadata.PackageNotFoundError(name)


def test_a_wheel_for_one_torch(at_hand):
    at_hand("2.13.1+cpu")
    assert torch_dependency.dynamic_metadata({}, {}) == {"dependencies": ["torch==2.13.*", "numpy"]}


@pytest.mark.parametrize(
    ("others", "asked"),
    [
        (["2.13", "2.12"], "torch>=2.11,<2.14"),
        (["2.15", "2.13"], "torch>=2.11,<2.16,!=2.12.*,!=2.14.*"),
        ([], "torch==2.11.*"),
    ],
)
def test_a_wheel_for_several(at_hand, tmp_path, others, asked):
    at_hand("2.11.0", others, tmp_path)
    assert torch_dependency.torch_requirement() == asked


def test_torches_of_two_major_versions(at_hand, tmp_path):
    at_hand("2.15.0", ["3.0"], tmp_path)
    with pytest.raises(RuntimeError, match=r"expected versions of torch 2, got one of torch 3"):
        torch_dependency.torch_requirement()


def test_the_extra_of_the_command():
    said = torch_dependency.dynamic_metadata({"extra": "torch"}, {"version": "1.2.3"})
    assert said == {"optional-dependencies": {"torch": ["bitorch_engine==1.2.3"]}}


@pytest.mark.parametrize(
    ("version", "asked"), [(None, ["torch>=2.11"]), ("2.11.0", []), ("2.99.0.dev20300101+cpu", []), ("3.0.1", [])]
)
def test_what_a_build_asks_for(torch_build, monkeypatch, version, asked):
    monkeypatch.setattr(torch_build, "torch_at_hand", lambda: version)
    monkeypatch.setattr(torch_build._build, "get_requires_for_build_wheel", lambda settings: ["cmake"])
    assert torch_build.get_requires_for_build_wheel() == ["cmake", *asked]


def test_a_torch_that_is_too_old(torch_build, monkeypatch):
    monkeypatch.setattr(torch_build, "torch_at_hand", lambda: "2.10.1+cpu")
    with pytest.raises(SystemExit) as refused:
        torch_build.get_requires_for_build_wheel()
    monkeypatch.setattr(torch_dependency, "torch_at_hand", lambda: "2.10.1+cpu")
    with pytest.raises(SystemExit):  # without pip's own environment it is asked first
        torch_dependency.torch_requirement()
    assert str(refused.value) == "bie: expected torch 2.11 or later, got torch 2.10.1+cpu"


def test_the_torches_that_are_supported_have_no_gap(root):
    versions = (root / "tools/torches.txt").read_text().split()
    minors = [torch_dependency.minor(version) for version in versions]
    assert minors == [(2, second) for second in range(minors[0][1], minors[0][1] + len(minors))]
    assert ".".join(map(str, minors[0])) == torch_dependency.OLDEST
    assert torch_dependency.minor(torch.__version__) in minors
