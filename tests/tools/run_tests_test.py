"""What `tools/run_tests.py` counts and tells of a suite."""

import sys

import pytest
from suites import junit
from suites.commands import environment
from suites.cpp import foreign_libraries
from suites.tally import Tally


@pytest.fixture
def tally(monkeypatch):
    monkeypatch.setattr(junit, "TALLY", Tally())
    return junit.TALLY


def test_a_failure_is_named_with_what_it_said(tally, tmp_path, capsys):
    suite = tmp_path / "sums_test.py"
    suite.write_text(
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 1 + 1 == 3\n"
        "def test_left(): pytest.skip('no abacus')\n"
    )
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, suite)
    junit.run_junit("sums", *command, report="--junitxml=", env=environment(), cwd=tmp_path)
    assert (tally.passed, tally.failed) == (1, 1)
    assert [label for label, _ in tally.skips] == ["sums"]
    (failure,) = tally.failures
    assert failure.startswith("sums: sums_test.test_wrong\n")
    assert "assert (1 + 1) == 3" in failure
    assert "test_wrong" in capsys.readouterr().out


def test_a_crash_is_a_failure(tally):
    command = (sys.executable, "-c", "print('on the way'); raise SystemExit(3)")
    junit.run_junit("crash", *command, report="--report=", env=environment())
    assert (tally.passed, tally.failed) == (0, 1)
    (failure,) = tally.failures
    assert failure.splitlines()[0] == "crash"
    assert "on the way" in failure
    assert "crash ended with status 3" in failure


def test_a_long_failure_is_cut_to_its_end(tally):
    tally.check("build", 1.0, False, "\n".join(f"line {i}" for i in range(100)))
    (failure,) = tally.failures
    assert "line 99" in failure
    assert "line 50" not in failure


def test_foreign_libraries_are_told_by_name_alone():
    listed = (
        "\tlinux-vdso.so.1 (0x00007f089bfc1000)\n"
        "\tlibc10.so => /venv/torch/lib/libc10.so (0x00007f0800000000)\n"
        "\tlibpython3.11.so.1.0 => not found\n"
        "\tlibstdc++.so.6 => /opt/torch/libstdc++.so.6 (0x00007f0c10c10000)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f0400000000)\n"
    )
    assert foreign_libraries(listed) == ["libc10.so", "libpython3.11.so.1.0"]
