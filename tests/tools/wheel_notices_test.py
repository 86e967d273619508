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

import pytest

pytest.importorskip("cyclonedx")
if shutil.which("dpkg-query") is None:
    pytest.skip("this system has no dpkg", allow_module_level=True)

NINJA = """
rule cxx
  command = c++ -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
build a.o: cxx a.cpp
"""


@pytest.fixture
def build(tmp_path):
    """A build of one source that reads a header of zlib, its compiler's and its own."""
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "build.ninja").write_text(NINJA)
    (folder / "CMakeCache.txt").touch()
    (folder / "own.h").touch()
    (folder / "a.cpp").write_text('#include <vector>\n#include <zlib.h>\n#include "own.h"\n')
    subprocess.run(["ninja", "-C", folder], check=True, capture_output=True)
    return folder


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


def written(root, wheel, build, out):
    command = [sys.executable, root / "tools/wheel_notices.py", wheel, build, out]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
    return out / wheel.name


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
