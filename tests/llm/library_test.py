"""libbie_llm.so: what it holds, and programs in C and C++ that use it."""

import json
import re
import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def shared(build):
    return build / "src/llm/libbie_llm.so"


def run(*words) -> str:
    process = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_it_shows_its_api_alone_and_needs_nothing(shared, root):
    if shutil.which("nm") is None:
        pytest.skip("there is no nm (Debian: binutils)")
    header = (root / "include/bie/llm/bie_llm.h").read_text()
    wanted = set(re.findall(r"BIE_LLM_API .*?(bie_llm_\w+)\(", header))
    defined = {line.split()[-1] for line in run("nm", "-D", "--defined-only", shared).splitlines()}
    assert defined == wanted
    assert not re.search(r"libtorch|libc10|libpython|libgomp|libpng|libz\.|libpcre", run("ldd", shared))


def test_it_is_small(shared, tmp_path):
    if shutil.which("strip") is None:
        pytest.skip("there is no strip (Debian: binutils)")
    run("strip", "-o", tmp_path / "stripped.so", shared)
    assert (tmp_path / "stripped.so").stat().st_size <= 3_000_000


@pytest.mark.parametrize("source", ["generate.c", "generate.cpp"])
def test_the_examples_say_what_the_command_says(source, shared, root, bie, models, tmp_path):
    compiler = shutil.which("cc" if source.endswith(".c") else "c++")
    if compiler is None:
        pytest.skip("there is no compiler")
    program, options = tmp_path / "generate", ["-std=c99", "-pedantic"] if source.endswith(".c") else ["-std=c++17"]
    run(compiler, *options, "-Wall", "-Wextra", "-Werror", root / "examples/language" / source, "-I", root / "include",
        "-L", shared.parent, f"-Wl,-rpath,{shared.parent}", "-lbie_llm", "-o", program)  # fmt: skip
    model = models("llama", "Q8_0")
    said = json.loads(run(bie, "generate", model, "--prompt", "Some words", "--tokens", 32, "--json"))["text"]
    assert run(program, model, "Some words") == said + "\n"
    failed = subprocess.run([program, tmp_path / "none.gguf", "a"], capture_output=True, text=True)
    assert failed.returncode == 1
    assert "none.gguf: cannot be opened" in failed.stdout
