"""tools/wheel_notices.py: what others have in a wheel is found in the records of its build and written into it."""

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

pytest.importorskip("cyclonedx")
if shutil.which("dpkg-query") is None:
    pytest.skip("this system has no dpkg", allow_module_level=True)

NINJA = """
rule cxx
  command = c++ -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
build a.o: cxx {source}
"""


@pytest.fixture
def built(tmp_path):
    """Makes a build of one source that reads these headers."""

    def make(*headers, source: str = "a.cpp"):
        folder = tmp_path / "build"
        (folder / source).parent.mkdir(parents=True, exist_ok=True)
        (folder / "build.ninja").write_text(NINJA.format(source=source))
        (folder / "CMakeCache.txt").touch()
        (folder / "own.h").touch()
        (folder / source).write_text("".join(f"#include {header}\n" for header in headers))
        subprocess.run(["ninja", "-C", folder], check=True, capture_output=True)
        return folder

    return make


@pytest.fixture
def build(built):
    """A build of a source that reads a header of zlib, its compiler's and its own."""
    return built("<vector>", "<zlib.h>", '"own.h"')


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "some_thing-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        program = zipfile.ZipInfo("some_thing/bin/program")
        program.external_attr = 0o755 << 16
        archive.writestr(program, b"program")
        archive.writestr("some_thing-1.2.dist-info/METADATA", "Name: some-thing\n")
        archive.writestr("some_thing-1.2.dist-info/RECORD", "")
    return path


def run(root, wheel, build, out, *more) -> str:
    command = [sys.executable, root / "tools/wheel_notices.py", wheel, out, build, *more]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def written(root, wheel, build, out, *more):
    run(root, wheel, build, out, *more)
    return out / wheel.name


def components(path) -> tuple[list[str], str]:
    """Returns the names in the bill, and the notices."""
    with zipfile.ZipFile(path) as archive:
        bill = json.loads(archive.read("some_thing-1.2.dist-info/sboms/bie.cdx.json"))
        notices = archive.read("some_thing-1.2.dist-info/licenses/THIRD_PARTY.txt").decode()
    return [part["name"] for part in bill["components"]], notices


def test_parts_are_named_with_their_licences(root, wheel, build, tmp_path):
    with zipfile.ZipFile(written(root, wheel, build, tmp_path / "out")) as archive:
        names = archive.namelist()
        assert names[-1] == "some_thing-1.2.dist-info/RECORD"
        assert archive.read("some_thing/bin/program") == b"program"
        assert archive.getinfo("some_thing/bin/program").external_attr >> 16 == 0o755
        notices = archive.read("some_thing-1.2.dist-info/licenses/THIRD_PARTY.txt").decode()
        bill = json.loads(archive.read("some_thing-1.2.dist-info/sboms/bie.cdx.json"))
        rows = list(csv.reader(io.StringIO(archive.read(names[-1]).decode())))
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(data))
    assert [row[0] for row in rows] == names
    version = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "zlib1g-dev"], capture_output=True, text=True
    ).stdout
    assert f"zlib1g-dev {version}\n" in notices and "Jean-loup Gailly" in notices
    assert [part["name"] for part in bill["components"]] == ["zlib1g-dev"]
    assert (bill["metadata"]["component"]["name"], bill["bomFormat"]) == ("some-thing", "CycloneDX")


def test_two_runs_write_the_same_bytes(root, wheel, build, tmp_path):
    first, second = (written(root, wheel, build, tmp_path / name) for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_a_header_that_no_package_owns_is_named(root, wheel, built, tmp_path):
    stray = tmp_path / "stray.h"
    stray.touch()
    build = built("<zlib.h>", '"own.h"', f'"{root}/include/bie/kernels/status.h"', f'"{stray}"')
    assert run(root, wheel, build, tmp_path / "out").splitlines()[1:] == [
        f"The wheel lacks the licences of these files, which no package owns: {stray}."
    ]


def test_nothing_is_said_where_every_header_has_an_owner(root, wheel, build, tmp_path):
    assert len(run(root, wheel, build, tmp_path / "out").splitlines()) == 1


@pytest.fixture
def distribution(tmp_path):
    """Unpacks a distribution of one file into a folder, and returns the path of the file."""

    def unpack(folder: str, name: str, version: str, file: str, licence: str):
        for path, text in {
            file: "",
            f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{name}-{version}.dist-info/licenses/LICENSE": licence,
            f"{name}-{version}.dist-info/RECORD": f"{file},,\n{name}-{version}.dist-info/licenses/LICENSE,,\n",
        }.items():
            (tmp_path / folder / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / path).write_text(text)
        return tmp_path / folder / file

    return unpack


def test_headers_of_each_torch_have_its_version_and_licence(root, wheel, built, distribution, tmp_path):
    other = distribution("build/torches/2.9.0", "torch", "2.9.0", "torch/include/other.h", "Words of 2.9")
    installed = Path(torch.__file__).parent / "include/torch/headeronly/version.h"
    build = built(f'"{other}"', f'"{installed}"')
    names, notices = components(written(root, wheel, build, tmp_path / "out"))
    assert names == ["torch", "torch"]
    assert notices.count("From PyTorch:") == 1
    assert "torch 2.9.0\n" in notices and "Words of 2.9" in notices


def test_distributions_that_share_a_package_are_told_apart(root, wheel, built, distribution, tmp_path):
    distribution("site-packages", "first", "1", "shared/first/a.h", "Words of the first")
    second = distribution("site-packages", "second", "2", "shared/second/a.h", "Words of the second")
    names, notices = components(written(root, wheel, built(f'"{second}"'), tmp_path / "out"))
    assert names == ["second"] and "Words of the second" in notices


def test_a_licence_that_several_have_is_printed_once(root, wheel, built, distribution, tmp_path):
    one, two = (distribution("site-packages", name, "1", f"{name}/a.h", "Words of both") for name in ("one", "two"))
    names, notices = components(written(root, wheel, built(f'"{one}"', f'"{two}"'), tmp_path / "out"))
    assert names == ["one", "two"]
    assert notices.count("Words of both") == 1
    assert notices.endswith("\n\nIts other licences stand above.\n\n")


def test_of_another_build_one_target_counts(root, wheel, built, tmp_path):
    """make_wheels.sh lays one library of the build of another torch into the wheel."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "CMakeCache.txt").touch()
    (other / "a.cpp").write_text("#include <zlib.h>\n")
    (other / "b.cpp").write_text("#include <webp/decode.h>\n")
    (other / "build.ninja").write_text(
        NINJA.format(source="a.cpp") + "build b.o: cxx b.cpp\nbuild library: phony a.o\n"
    )
    subprocess.run(["ninja", "-C", other], check=True, capture_output=True)
    build = built("<vector>")
    for word, expected in {other: ["libwebp-dev", "zlib1g-dev"], f"{other}:library": ["zlib1g-dev"]}.items():
        assert components(written(root, wheel, build, tmp_path / "out", word))[0] == expected


def test_the_digits_have_the_licence_of_scikit_learn_alone_and_their_credit(root, wheel, built, tmp_path):
    build = built(source="src/data/digits.cpp")
    names, notices = components(written(root, wheel, build, tmp_path / "out"))
    assert names == ["optical-recognition-of-handwritten-digits", "scikit-learn"]
    assert "The scikit-learn developers" in notices and "also bundles" not in notices
    assert "E. Alpaydin and C. Kaynak" in notices and "CC BY 4.0" in notices


def test_headers_of_a_cuda_toolkit_have_the_licence_of_its_runtime(root, wheel, built, tmp_path):
    compiler, header = tmp_path / "cuda/bin/nvcc", tmp_path / "cuda/include/cuda.h"
    for file in (compiler, header):
        file.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.48'\n")
    compiler.chmod(0o755)
    header.touch()
    build = built(f'"{header}"')
    (build / "CMakeCache.txt").write_text(f"CMAKE_CUDA_COMPILER:FILEPATH={compiler}\n")
    assert str(header) in run(root, wheel, build, tmp_path / "out"), "the runtime is not linked"
    (build / "build.ninja").write_text(NINJA.format(source="a.cpp").replace("-o $out", "-o $out -lcudart_static"))
    assert len(run(root, wheel, build, tmp_path / "out").splitlines()) == 1
    assert components(tmp_path / "out" / wheel.name)[0] == ["cuda-cudart"]
