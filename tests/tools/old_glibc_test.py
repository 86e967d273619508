"""tools/old_glibc.sh: a compiler whose C++ library does not fit is said in a sentence."""

import os
import shutil
import subprocess

import pytest

PACKAGES = """#!/bin/sh
# Stands for packages of Debian 11 whose libraries have nothing in them.
mkdir -p "$1/lib/x86_64-linux-gnu" "$1/usr/lib/x86_64-linux-gnu"
for name in crt1 Scrt1 crti crtn; do : >"$1/usr/lib/x86_64-linux-gnu/$name.o"; done
"""


@pytest.fixture
def script(root, tmp_path):
    shutil.copy(root / "tools/old_glibc.sh", tmp_path)
    (tmp_path / "debian_packages.sh").write_text(PACKAGES)
    return tmp_path / "old_glibc.sh"


def said(script, environment=None) -> str:
    folder = script.parent / "folder"
    run = subprocess.run(["sh", script, folder], capture_output=True, text=True, env=environment)
    assert run.returncode == 1
    assert not (folder / "complete").exists()
    (line,) = run.stderr.splitlines()
    return line


def test_a_compiler_without_the_archive(script):
    compiler = script.parent / "bin/c++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && echo some c++ 99 || echo libstdc++.a\n")
    compiler.chmod(0o755)
    line = said(script, os.environ | {"PATH": f"{compiler.parent}:{os.environ['PATH']}"})
    assert line == "old_glibc: this compiler has no libstdc++.a, whose members would be linked: some c++ 99"


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no c++")
def test_a_compiler_whose_programs_want_more(script):
    log = script.parent / "folder/link/try.log"
    assert said(script).startswith(
        f"old_glibc: programs of this compiler want more than Debian 11 has (the linker's words are in {log}): "
    )
    assert "libstdc++" in log.read_text()
