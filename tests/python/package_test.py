"""The installed package: what is in it, how it finds its operators and its command, what it says when it cannot."""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest
import torch
from small_models import write_model

import bie
import bie_cli
from bie import _library

DISTRIBUTION = metadata.distribution("bitorch_engine")
PACKAGES = ("bie", "bitorch_engine")
SCRIPT = Path(sys.executable).with_name("bie")
TORCH_FOLDER = "torch-" + ".".join(torch.__version__.split(".")[:2])


def installed(*parts: str, package=bie) -> Path:
    (found,) = (path for folder in package.__path__ if (path := Path(folder, *parts)).exists())
    return found


def run(*command, **env: str) -> subprocess.CompletedProcess:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("BIE_")}
    return subprocess.run(
        [str(word) for word in command], env=inherited | env, capture_output=True, text=True, timeout=120
    )


def run_python(code: str, **env: str) -> subprocess.CompletedProcess:
    return run(sys.executable, "-c", code, **env)


def refusal(process: subprocess.CompletedProcess) -> str:
    """The sentence of the ImportError that ended the process."""
    assert process.returncode == 1, process
    sentence = process.stderr.splitlines()[-1]
    assert sentence.startswith("ImportError: "), process.stderr
    return sentence.removeprefix("ImportError: ")


@pytest.fixture
def copied(tmp_path) -> Path:
    """A copy of the library with the file that says its torch, and above it the library that all torches share."""
    shutil.copytree(installed("lib"), tmp_path / "lib")
    return tmp_path / "lib" / TORCH_FOLDER / "libbie_ops.so"


MAPPED = "print(*sorted({line.split()[-1] for line in open('/proc/self/maps') if 'libbie_ops' in line}))"


def test_importing_prints_nothing_and_needs_neither_gpu_nor_bitorch():
    process = run_python(
        "import sys; sys.modules['bitorch'] = None\nimport torch, bie\n"
        "assert torch.ops.bie.pack_signs(torch.ones(1, 8)).tolist() == [[255]]",
        CUDA_VISIBLE_DEVICES="",
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_importing_imports_no_torch_until_a_name_is_used():
    process = run_python(
        "import sys, bie, bie.llm\nfrom importlib.util import find_spec\nassert bie.__version__ and 'nn' in dir(bie)\n"
        "assert find_spec('torch') and not {'torch', 'numpy', 'bie.nn'} & sys.modules.keys()\n"
        "import torch\nassert torch.ops.bie.pack_signs(torch.ones(1, 8)).tolist() == [[255]]\n"
        "assert 'bie.nn' not in sys.modules\nassert bie.nn.Q8Linear(3, 2) and 'bie.distributed' in sys.modules"
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


FIRST = """
import os, torch
for first in {names}:
    if os.fork() == 0:
        import bie
        value = getattr(bie, first)
        exec(f"from bie import {{first}} as again")
        assert value is again
        for module, names in bie._MODULES.items():
            assert [getattr(bie, name).__name__ for name in names] == names
        os._exit(0)
    assert os.wait()[1] == 0, first
"""


def test_names_are_the_same_whichever_is_used_first():
    names = ["CapturedStep", "distributed", "formats", "optim", "post_training", "quantized_models"]
    process = run_python(FIRST.format(names=names))
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError) as refused:
        bie.no_such_name  # noqa: B018
    assert str(refused.value) == "module 'bie' has no attribute 'no_such_name'"


def test_torch_is_imported_where_the_operators_cannot_be():
    process = run_python("import bie, torch\nprint(torch.ones(1).item())\nbie.nn", BIE_OPS_LIBRARY="/nowhere")
    assert process.stdout == "1.0\n"
    assert refusal(process) == "BIE_OPS_LIBRARY names /nowhere, and there is no such file"


def test_loading_again_does_nothing():
    before = torch.ops.bie.pack_signs
    _library.load()
    assert torch.ops.bie.pack_signs is before


def test_operators_that_somebody_registered_are_kept(copied):
    process = run_python(
        f"import torch; torch.ops.load_library({str(copied)!r})\nimport bie\n{MAPPED}",
        BIE_OPS_LIBRARY="/nowhere/libbie_ops.so",
    )
    assert process.stdout.split() == [str(copied)], process.stderr


def test_another_library(copied):
    process = run_python(f"import bie.nn\n{MAPPED}", BIE_OPS_LIBRARY=str(copied))
    assert process.stdout.split() == [str(copied)], process.stderr


def test_another_library_that_is_not_there(tmp_path):
    library = tmp_path / "libbie_ops.so"
    said = refusal(run_python("import bie.nn", BIE_OPS_LIBRARY=str(library)))
    assert said == f"BIE_OPS_LIBRARY names {library}, and there is no such file"


def test_a_library_for_another_torch(copied):
    copied.with_name("torch_version.txt").write_text("1.13.1\n")
    said = refusal(run_python("import bie.nn", BIE_OPS_LIBRARY=str(copied)))
    assert said == (
        f"the operators of bie were built with torch 1.13.1 and this is torch {torch.__version__}: "
        "install torch==1.13.*, or build bie beside this torch with pip install --no-deps and the folder of its sources"
    )


def test_a_patch_release_of_torch_is_the_same_torch(copied):
    major, minor, _ = torch.__version__.split(".", 2)
    copied.with_name("torch_version.txt").write_text(f"{major}.{minor}.99\n")
    _library._check_torch(copied)


def test_a_library_that_does_not_say_its_torch(copied):
    copied.with_name("torch_version.txt").unlink()
    with pytest.raises(ImportError, match=r"torch_version\.txt, which says the torch .* is missing"):
        _library._check_torch(copied)


def test_a_library_that_cannot_be_loaded(copied):
    copied.write_bytes(b"no library")
    said = refusal(run_python("import bie.nn", BIE_OPS_LIBRARY=str(copied)))
    assert said.startswith(f"{copied} could not be loaded: ")


def test_a_package_without_its_library(tmp_path, monkeypatch):
    monkeypatch.delenv("BIE_OPS_LIBRARY", raising=False)
    monkeypatch.setattr(_library, "_package_folders", [str(tmp_path)])
    with pytest.raises(ImportError) as refused:
        _library._find()
    assert str(refused.value) == (
        f"the operators of bie are missing, {tmp_path}/lib/{TORCH_FOLDER}/libbie_ops.so: install the package with pip, "
        "or name a libbie_ops.so in BIE_OPS_LIBRARY"
    )


@pytest.mark.parametrize(
    ("others", "listed"),
    [(["2.9"], "2.9"), (["2.10", "2.9"], "2.9 or 2.10"), (["2.11", "2.9", "2.10"], "2.9, 2.10 or 2.11")],
)
def test_a_package_for_other_torches(tmp_path, monkeypatch, others, listed):
    monkeypatch.delenv("BIE_OPS_LIBRARY", raising=False)
    monkeypatch.setattr(_library, "_package_folders", [str(tmp_path)])
    monkeypatch.setattr(torch, "__version__", "2.99.1+cu999")
    for other in others:
        (tmp_path / f"lib/torch-{other}").mkdir(parents=True)
        (tmp_path / f"lib/torch-{other}/libbie_ops.so").touch()
    with pytest.raises(ImportError) as refused:
        _library._find()
    assert str(refused.value) == (
        f"expected torch {listed}, which this package of bie has operators for, got torch 2.99.1+cu999: "
        "build bie beside this torch with pip install --no-deps and the folder of its sources"
    )


def test_the_library_of_this_torch_is_taken_among_several(tmp_path, monkeypatch):
    monkeypatch.delenv("BIE_OPS_LIBRARY", raising=False)
    monkeypatch.setattr(_library, "_package_folders", [str(tmp_path / "absent"), str(tmp_path)])
    for folder in ("torch-2.1", TORCH_FOLDER, TORCH_FOLDER + "1"):
        (tmp_path / "lib" / folder).mkdir(parents=True)
        (tmp_path / "lib" / folder / "libbie_ops.so").touch()
    assert _library._find() == tmp_path / "lib" / TORCH_FOLDER / "libbie_ops.so"


@pytest.mark.parametrize("name", PACKAGES)
def test_module_prints_what_doctor_prints(name):
    doctor, module = run(SCRIPT, "doctor"), run(sys.executable, "-m", name)
    assert (doctor.returncode, doctor.stderr) == (0, "")
    assert doctor.stdout.startswith(f"bie {bie.__version__} (torch ")
    assert (module.returncode, module.stdout, module.stderr) == (0, doctor.stdout, "")


@pytest.mark.parametrize("name", PACKAGES)
def test_module_without_the_command(name):
    process = run_python(
        "import runpy, sys\nsys.modules['bie_cli'] = None\nsys.argv = ['x']\n"
        f"runpy.run_module({name!r}, run_name='__main__')"
    )
    assert process.returncode == 1
    said = f"python -m {name}: the command `bie` is a package of its own, bie-cli, and is not installed"
    assert process.stderr.splitlines()[-1] == said


def test_the_package_holds_the_operators_alone():
    names = {Path(str(path)).name for path in DISTRIBUTION.files}
    assert {"libbie_core.so", "libbie_ops.so"} <= names
    assert not {"bie", "bie_cli"} & names
    assert {path.parts[0] for path in DISTRIBUTION.files if path.suffix in (".py", ".so")} == set(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_module_takes_no_arguments(name):
    process = run(sys.executable, "-m", name, "train")
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.startswith(f"usage: python -m {name} ")


def test_script_passes_arguments_and_status_on():
    assert run(SCRIPT, "--version").stdout.startswith(f"bie {bie.__version__} (torch ")
    assert "--seeds" in run(SCRIPT, "demo", "--help").stdout
    assert run(SCRIPT, "fly").returncode == 2
    process = run(SCRIPT, "eval", "no such file", "--data", "digits")
    assert process.returncode == 3
    assert "no such file" in process.stderr


def test_script_imports_neither_torch_nor_the_package():
    process = run_python(
        "import os, sys\n"
        "os.execve = lambda path, words, env: print(\n"
        "    path, words, env['LD_LIBRARY_PATH'], env['BIE_TORCH_PROGRAM'], 'BIE_TORCH_MISSING' in env, sep='\\n')\n"
        "sys.argv = ['bie', 'a b', '--c']\n"
        "import bie_cli; bie_cli.main()\n"
        "assert not {'torch', 'bie', 'bitorch_engine'} & set(sys.modules)",
        LD_LIBRARY_PATH="/elsewhere",
    )
    assert process.returncode == 0, process.stderr
    operators = installed("lib", TORCH_FOLDER)
    assert process.stdout.splitlines() == [
        str(installed("bin", "bie", package=bie_cli)),
        "['bie', 'a b', '--c']",
        f"{operators}:{operators.parent}:{Path(torch.__file__).parent / 'lib'}:/elsewhere",
        str(installed("lib", TORCH_FOLDER, "bie-torch", package=bie_cli)),
        "False",
    ]


def test_script_without_its_program(monkeypatch):
    monkeypatch.setattr(bie_cli, "_locate", lambda package, *_: None)
    with pytest.raises(
        SystemExit, match=r"^bie: the package bie-cli is installed without its program; install it again"
    ):
        bie_cli.run([])


@pytest.fixture
def said_of_torch(tmp_path, monkeypatch):
    """What the half with torch says where the packages of a folder, and no others, are installed."""

    def said(*files: str, version: str = "2.99.1+cu999") -> str:
        for name in files:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"__version__ = '{version}'\n" if path.name == "version.py" else "")

        def locate(package: str, *parts: str) -> Path | None:
            path = tmp_path.joinpath(package, *parts)
            return path if path.exists() else None

        monkeypatch.setattr(bie_cli, "_locate", locate)
        with pytest.raises(LookupError) as refused:
            bie_cli._torch_half()
        return refused.value.args[0]

    return said


def test_script_without_torch(said_of_torch):
    assert said_of_torch() == "torch is not installed"


def test_script_beside_another_torch(said_of_torch):
    programs = ("bie_cli/lib/torch-2.9/bie-torch", "bie_cli/lib/torch-2.10/bie-torch")
    assert said_of_torch("torch/version.py", *programs) == "expected torch 2.9, 2.10, got torch 2.99.1+cu999"
    assert said_of_torch("bie_cli/lib/torch-dev/x") == "expected torch 2.9, 2.10, got torch 2.99.1+cu999"


def test_script_without_programs(said_of_torch):
    assert said_of_torch("torch/version.py") == "expected torch of no version, got torch 2.99.1+cu999"


def test_script_without_the_operators(said_of_torch):
    files = ("torch/version.py", "bie_cli/lib/torch-2.99/bie-torch", "bie_cli/lib/version.txt")
    expected = "expected the package bitorch_engine  for torch 2.99, got "
    assert said_of_torch(*files) == expected + "none"
    assert said_of_torch("bie/lib/version.txt") == expected + "none"


def test_script_beside_operators_of_another_version(said_of_torch, tmp_path):
    for name, version in (("bie_cli", "1.2.3"), ("bie", "1.2.2")):
        (tmp_path / name / "lib/torch-2.99").mkdir(parents=True)
        (tmp_path / name / "lib/version.txt").write_text(version + "\n")
    said = said_of_torch("torch/version.py", "bie_cli/lib/torch-2.99/bie-torch", "bie/lib/torch-2.99/libbie_ops.so")
    assert said == "expected the package bitorch_engine 1.2.3 for torch 2.99, got 1.2.2"


def test_script_hands_on_no_stale_word_of_a_torch(monkeypatch):
    seen = {}
    monkeypatch.setattr(bie_cli.os, "execve", lambda path, words, environment: seen.update(environment))
    monkeypatch.setenv("BIE_TORCH_MISSING", "stale")
    monkeypatch.setenv("BIE_TORCH_PROGRAM", "/stale")
    bie_cli.run(["x"])
    assert "BIE_TORCH_MISSING" not in seen and seen["BIE_TORCH_PROGRAM"].endswith("/bie-torch")


def test_script_beside_a_torch_without_a_version(said_of_torch):
    assert said_of_torch("torch/version.py", version="unknown").endswith("version.py names no version of torch")


def test_what_the_half_without_torch_says_where_the_other_is_missing():
    binary = installed("bin", "bie", package=bie_cli)
    told = run(binary, "train", "x", BIE_TORCH_MISSING="expected torch 2.9, got torch 2.99")
    assert (told.returncode, told.stdout) == (1, "")
    sentence = "error: bie train needs the training half of bie, which has torch: "
    install = "; docs/install.md has what to install\n"
    assert told.stderr == sentence + "expected torch 2.9, got torch 2.99" + install
    assert run(binary, "train", "x").stderr == sentence + "bie-torch is not beside this program" + install


def test_script_has_language_models(tmp_path):
    write_model(tmp_path / "model.gguf", "llama", "Q8_0")
    process = run(SCRIPT, "generate", tmp_path / "model.gguf", "--prompt", "abc", "--tokens", "3", "--quiet")
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout


def test_metadata():
    minors = sorted(int(path.name.split(".")[1]) for path in installed("lib").glob("torch-*"))
    only, several = f"torch==2.{minors[0]}.*", f"torch<2.{minors[-1] + 1},>=2.{minors[0]}"
    assert (only if len(minors) == 1 else several) in DISTRIBUTION.requires
    assert bie.__version__ == DISTRIBUTION.version
    assert DISTRIBUTION.metadata["License-Expression"] == "Apache-2.0"
    wheel = DISTRIBUTION.read_text("WHEEL").splitlines()
    assert [line for line in wheel if re.fullmatch(r"Tag: py3-none-(many)?linux(_\d+_\d+)?_x86_64", line)]
    assert "Root-Is-Purelib: false" in wheel


def test_the_command_requires_no_torch():
    command = metadata.distribution("bie-cli")
    assert command.requires == [f'bitorch_engine=={bie.__version__}; extra == "torch"']


def test_contents():
    for package in PACKAGES:
        assert resources.files(package).joinpath("py.typed").is_file()
    names = [str(path) for path in DISTRIBUTION.files]
    assert any(name.endswith("/LICENSE") for name in names)
    assert [name for name in names if name.endswith((".h", ".a", ".cmake", ".cpp"))] == []


def binaries() -> dict[str, Path]:
    return {
        "core": installed("lib", "libbie_core.so"),
        "operators": installed("lib", TORCH_FOLDER, "libbie_ops.so"),
        "bie": installed("bin", "bie", package=bie_cli),
        "bie-torch": installed("lib", TORCH_FOLDER, "bie-torch", package=bie_cli),
    }


def test_the_half_with_torch_has_no_kernels_of_its_own():
    """Two copies would answer for each other: a program's symbols come before those of its libraries."""
    listed = subprocess.run(["nm", "-DC", "--defined-only", binaries()["bie-torch"]], capture_output=True, text=True)
    assert listed.returncode == 0
    assert [line for line in listed.stdout.splitlines() if " bie::kernels::" in line] == []
    assert b"libbie_core.so" in binaries()["bie-torch"].read_bytes()


@pytest.mark.parametrize("name", ["core", "operators", "bie", "bie-torch"])
def test_binaries_name_nothing_of_the_machine_that_built_them(name):
    data = binaries()[name].read_bytes()
    assert (b"$ORIGIN/../../../torch/lib" in data) == (name in ("operators", "bie-torch"))
    assert re.findall(rb"(?<![\w.>/-])/[\w.+-]+/[\w./+-]+\.(?:h|hpp|cpp|py)\b", data) == []
    assert b"site-packages/torch/lib\0" not in data
    # Nor has it the room of a longer path, of a folder that it was built in.
    assert b"/torch/lib" + 9 * b"\0" not in data


def test_no_binary_needs_a_certain_python():
    libraries = [path for package in (bie, bie_cli) for path in Path(package.__path__[0]).rglob("*.so")]
    for path in [*libraries, *binaries().values(), installed("llm", "lib", "libbie_llm.so")]:
        data = path.read_bytes()
        assert data.startswith(b"\x7fELF") and b"libstdc++.so.6" in data
        assert re.findall(rb"\0(?:_?Py[A-Z_]\w+|libpython[\w.]*)\0", data) == [], path


def test_language_models_have_a_wheel_beside_this_one(tmp_path):
    write_model(tmp_path / "model.gguf", "llama", "Q8_0")
    process = run_python(
        f"import bie.llm\nprint(len(bie.llm.load({str(tmp_path / 'model.gguf')!r}).generate('abc', tokens=3).tokens))"
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "3\n", "")
