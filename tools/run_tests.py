"""Runs every suite and ends with one line, `N passed, N failed, N skipped`; exit status 1 on a failure or an empty run.

Usage: run_tests.py [--only SUITE]... A check that is not a test framework's (a build, a format, the layers) counts as
one test. The output of whatever fails is printed in full; skips with their reasons, and after them the failures once
more with the first lines of what they said, stand at the end, where the tail of a log still has them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import check_layers

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv/bin"
BUILD = ROOT / "build"
# pytest on two processes or more, each on one thread; what a file's tests share is made once.
SIDE_BY_SIDE = ("-n", str(max(2, os.cpu_count() or 1)), "--dist", "loadfile")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
ISA_CAPS = ["reference", "avx2", "avx512bw", "avxvnni", "avx512"]
TIME_LIMIT_S = 1800
FUZZ_INPUTS = int(os.environ.get("BIE_FUZZ_INPUTS", "80000"))
FUZZ_SEED = 1
FAILURE_LINES = 12


class Tally:
    """Counts over all suites, and one printed line for each part of a suite."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.skips: list[tuple[str, str]] = []
        self.failures: list[str] = []

    def add(
        self,
        label: str,
        seconds: float,
        passed: int,
        failed: int,
        skips: list[str],
        output: str = "",
        failures: list[tuple[str, str]] | None = None,
    ) -> None:
        """`failures`: names of the failed tests and what they said; without them the suite's last lines are told."""
        self.passed += passed
        self.failed += failed
        self.skips += [(label, reason) for reason in skips]
        counts = [f"{passed} passed"] if passed else []
        counts += [f"{failed} FAILED"] if failed else []
        counts += [f"{len(skips)} skipped"] if skips else []
        print(f"{label:<40} {', '.join(counts) or 'nothing ran':<34} {seconds:7.1f} s", flush=True)
        if failed and output:
            print(f"---- {label}\n{output.rstrip()}\n----", flush=True)
        if failed and failures:
            for name, said in failures:
                lines = [line for line in said.splitlines() if line.strip()]
                self.failures.append("\n  ".join([f"{label}: {name}", *lines[:FAILURE_LINES]]))
        elif failed:
            self.failures.append("\n  ".join([label, *output.rstrip().splitlines()[-FAILURE_LINES:]]))

    def check(self, label: str, seconds: float, ok: bool, output: str) -> bool:
        self.add(label, seconds, int(ok), int(not ok), [], output)
        return ok

    def skip(self, label: str, reason: str) -> None:
        self.add(label, 0.0, 0, 0, [reason])


TALLY = Tally()


def run(*command: object, env: dict[str, str] | None = None, cwd: Path = ROOT) -> tuple[int, str, float]:
    """Exit status, stdout and stderr together, seconds. A command past its time limit is a failure that says so."""
    start = time.monotonic()
    arguments = [str(word) for word in command]
    try:
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env=env or environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT_S,
        )
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, output = 124, (late.stdout or b"") + f"\nstopped after {TIME_LIMIT_S} s".encode()
    except OSError as error:
        status, output = 127, f"{arguments[0]} could not be started: {error}".encode()
    return status, output.decode(errors="replace"), time.monotonic() - start


@cache
def empty_cache() -> str:
    return tempfile.mkdtemp(prefix="bie-cache-")


def environment(**more: str) -> dict[str, str]:
    """Ours, without settings and tuned choices of the caller that would change what is tested."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("BIE_", "GTEST_", "PYTEST_"))}
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    return env | {"BIE_CACHE_DIR": empty_cache()} | more


@cache
def torch_free_environment() -> dict[str, str]:
    """PATH without .venv, and a python3 in front that finds nothing."""
    stub = Path(tempfile.mkdtemp(prefix="bie-no-torch-")) / "python3"
    stub.write_text("#!/bin/sh\necho 'no Python and no torch here' >&2\nexit 1\n")
    stub.chmod(0o755)
    env = {key: value for key, value in environment().items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    paths = [path for path in env["PATH"].split(os.pathsep) if ".venv" not in path]
    env["PATH"] = os.pathsep.join([str(stub.parent), *paths])
    return env


@cache
def torch_free_options() -> tuple[str, ...]:
    python = Path(torch_free_environment()["PATH"].split(os.pathsep)[0]) / "python3"
    return (f"-DBIE_PYTHON={python}", f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}")


@cache
def build(preset: str, torch_free: bool = False) -> bool:
    """Configures and builds a preset, once; counts as one test."""
    env = torch_free_environment() if torch_free else environment()
    options = torch_free_options() if torch_free else ()
    status, output, seconds = run(BIN / "cmake", "--preset", preset, *options, env=env)
    if status == 0:
        status, build_output, build_seconds = run(BIN / "cmake", "--build", "--preset", preset, env=env)
        output, seconds = output + build_output, seconds + build_seconds
    return TALLY.check(f"build {preset}", seconds, status == 0, output)


def run_junit(label: str, *command: object, report: str, env: dict[str, str], cwd: Path = ROOT) -> None:
    """A test program that writes a JUnit report: `report` is its option, up to the file name."""
    with tempfile.TemporaryDirectory(prefix="bie-report-") as folder:
        path = Path(folder) / "report.xml"
        status, output, seconds = run(*command, f"{report}{path}", env=env, cwd=cwd)
        passed, failures, skips = 0, [], []
        try:
            cases = list(ET.parse(path).iter("testcase"))
        except (OSError, ET.ParseError):
            cases, status = [], status or 1
            output += f"\n{label} left no readable report\n"
        for case in cases:
            name = f"{case.get('classname', '')}.{case.get('name')}"
            skipped = case.find("skipped")
            failure = case.find("failure") if case.find("failure") is not None else case.find("error")
            if failure is not None:
                failures.append((name, failure.get("message") or failure.text or ""))
            elif skipped is not None:
                skips.append((skipped.get("message") or skipped.text or f"{name} gives no reason").strip())
            elif case.get("status") == "notrun":
                skips.append(f"{name} is disabled")
            else:
                passed += 1
        # A crash, a sanitizer's report, an error outside the cases.
        failed = len(failures)
        if status != 0 and failed == 0:
            failed = 1
            output += f"\n{label} ended with status {status}\n"
        TALLY.add(label, seconds, passed, failed, skips, output, failures)


def run_gtest(executable: Path, suffix: str = "", env: dict[str, str] | None = None) -> None:
    run_junit(
        executable.name + suffix, executable, "--gtest_brief=1", report="--gtest_output=xml:", env=env or environment()
    )


def test_executables(preset: str) -> list[Path]:
    found = sorted((BUILD / preset / "tests").rglob("bie_*_test"))
    return [path for path in found if path.is_file() and os.access(path, os.X_OK)]


def suite_cpp() -> None:
    """Every gtest executable of the release build; the kernels once per instruction-set cap."""
    if not build("release"):
        return
    for executable in test_executables("release"):
        if executable.name == "bie_kernels_test":
            for isa in ISA_CAPS:
                run_gtest(executable, f" BIE_MAX_ISA={isa}", environment(BIE_MAX_ISA=isa))
        else:
            run_gtest(executable)


def suite_cuda() -> None:
    """The CUDA kernels and their operators are compiled, where there is a toolkit."""
    nvcc = next(filter(None, (shutil.which("nvcc"), shutil.which("nvcc", path="/usr/local/cuda/bin"))), None)
    release = re.search(r"release (\d+)", run(nvcc, "--version")[1]) if nvcc else None
    if release is None or int(release[1]) < 12:
        TALLY.skip("cuda", "there is no CUDA toolkit from 12.0 on: the CUDA kernels are not compiled")
        return
    build("cuda")


def suite_python() -> None:
    """pytest on tests/ with the release build; tests/python imports an installed package and belongs to "wheel"."""
    build("release")
    command = (BIN / "python", "-m", "pytest", *SIDE_BY_SIDE, "-q", "tests", "--ignore=tests/python")
    run_junit("pytest", *command, report="--junitxml=", env=environment(**ONE_THREAD))


def suite_wheel() -> None:
    """Both wheels in an environment of their own, tested outside of the source tree; the build counts as one test."""
    with tempfile.TemporaryDirectory(prefix="bie-wheel-") as folder:
        home = Path(folder)
        python = home / "env/bin/python"
        env = {key: value for key, value in environment().items() if not key.startswith("PYTHON")}
        quiet = ("--quiet", "--no-deps")
        transcript, total = "", 0.0

        def step(*command: object) -> bool:
            nonlocal transcript, total
            status, output, seconds = run(*command, env=env)
            transcript += f"$ {' '.join(map(str, command))}\n{output}"
            total += seconds
            return status == 0

        def install() -> bool:
            # torch and the test tools come from .venv, through a .pth file.
            (theirs,) = (ROOT / ".venv/lib").glob("python*/site-packages")
            (ours,) = (home / "env/lib").glob("python*/site-packages")
            (ours / "tools.pth").write_text(f"{theirs}\n")
            wheels = (home / "dist").glob("*.whl")
            return step(BIN / "pip", "--python", python, "install", *quiet, "--ignore-installed", *wheels)

        built = (
            # With the flags of the release preset, so that ccache has the kernels.
            step(
                *(BIN / "pip", "wheel", *quiet, "--no-build-isolation", "--wheel-dir", home / "dist"),
                *("--config-settings=cmake.define.BIE_WERROR=ON", ROOT, ROOT / "python/bie-cli"),
            )
            and step(BIN / "python", "-m", "venv", "--without-pip", home / "env")
            and install()
        )
        if not TALLY.check("build and install the wheels", total, built, transcript):
            return
        # What the tests read, and nothing of the package's sources.
        for part in ("docs", "examples", "tests", "tools"):
            shutil.copytree(ROOT / part, home / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("README.md", "pyproject.toml"):
            shutil.copy(ROOT / part, home)
        command = (python, "-m", "pytest", *SIDE_BY_SIDE, "-q", "tests/python")
        run_junit("pytest tests/python", *command, report="--junitxml=", env=env | ONE_THREAD, cwd=home)


def package_environment() -> dict[str, str]:
    """The Python package out of the tree, with the operators of the release build."""
    return environment(BIE_OPS_LIBRARY=str(BUILD / "release/src/ops/libbie_ops.so"), PYTHONPATH=str(ROOT / "python"))


def suite_docs() -> None:
    """Sphinx has nothing to complain of; counts as one test."""
    build("release")
    env = package_environment()
    status, output, seconds = run(
        BIN / "python", "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "docs", BUILD / "docs", env=env
    )
    TALLY.check("docs", seconds, status == 0, output)


def foreign_libraries(listed: str) -> list[str]:
    """Names of torch's and Python's libraries in what ldd prints; its addresses, which can hold "c10", are not read."""
    names = [Path(line.split()[0]).name for line in listed.splitlines() if line.strip()]
    return [name for name in names if name.startswith(("libtorch", "libc10", "libpython"))]


def suite_kernels_only() -> None:
    """The kernels built and tested where neither torch nor Python can be found."""
    if not build("kernels-only", torch_free=True):
        return
    commands = (BUILD / "kernels-only/compile_commands.json").read_text()
    traces = [text for text in ("/torch/include", "include/python3") if text in commands]
    for executable in test_executables("kernels-only"):
        status, listed, _ = run("ldd", executable)
        traces += foreign_libraries(listed) if status == 0 else [listed]
    TALLY.check("kernels-only knows no torch", 0.0, not traces, "\n".join(traces))
    for executable in test_executables("kernels-only"):
        run_gtest(executable, " kernels-only", torch_free_environment())


def suite_asan() -> None:
    """The kernels under AddressSanitizer and UndefinedBehaviorSanitizer."""
    if build("asan", torch_free=True):
        for executable in test_executables("asan"):
            run_gtest(executable, " asan", torch_free_environment() | {"UBSAN_OPTIONS": "print_stacktrace=1"})


def suite_tsan() -> None:
    """Kernels, operators and layers called side by side under ThreadSanitizer."""
    if build("tsan"):
        options = f"suppressions={ROOT / 'tests/tsan.supp'} second_deadlock_stack=1"
        for executable in test_executables("tsan"):
            run_gtest(executable, " tsan", environment(TSAN_OPTIONS=options))


def suite_fuzz() -> None:
    """The file readers under libFuzzer, $BIE_FUZZ_INPUTS inputs from fresh seeds; each target counts as one test."""
    if run("clang++", "--version")[0] != 0:
        TALLY.skip("fuzz", "clang++ is not installed")
        return
    if not build("fuzz"):
        return
    with tempfile.TemporaryDirectory(prefix="bie-fuzz-") as folder:
        status, output, seconds = run(BIN / "python", ROOT / "tests/fuzz/make_seeds.py", folder)
        if status != 0:
            TALLY.check("fuzz seeds", seconds, False, output)
            return
        for dictionary in sorted((ROOT / "tests/fuzz").glob("*.dict")):
            name = dictionary.stem
            status, output, seconds = run(
                *(BUILD / "fuzz/tests/fuzz" / name, f"-seed={FUZZ_SEED}", f"-runs={FUZZ_INPUTS}"),
                *("-max_len=4096", "-timeout=20", "-rss_limit_mb=4096", f"-dict={dictionary}"),
                *(f"-artifact_prefix={BUILD}/fuzz/{name}-", Path(folder) / name),
            )
            done = re.search(r"^Done (\d+) runs", output, re.MULTILINE)
            ok = status == 0 and done is not None
            TALLY.check(f"{name}, {done[1] if done else 0} inputs", seconds, ok, output[-20000:])


def install_and_use(preset: str, component: str, torch_free: bool) -> None:
    """Installs a build, moves the installation, and builds and runs tests/install against it; counts as one test."""
    env = torch_free_environment() if torch_free else environment()
    options = torch_free_options() if torch_free else (f"-DBIE_PYTHON={BIN / 'python'}",)
    with tempfile.TemporaryDirectory(prefix="bie-install-") as folder:
        staged, prefix, consumer = (Path(folder) / name for name in ("staged", "moved", "consumer"))
        options += (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCONSUMER_COMPONENT={component}")
        steps = [
            ["cmake", "--install", BUILD / preset, "--prefix", staged],
            ["mv", staged, prefix],
            # An installed package that names a folder of the machine that built it cannot be moved.
            ["sh", "-c", f"! grep -rIl -F -e '{ROOT}' -e '{staged}' '{prefix}'"],
            ["cmake", "-G", "Ninja", "-S", ROOT / "tests/install", "-B", consumer, *options],
            ["cmake", "--build", consumer],
            [consumer / "consumer"],
        ]
        transcript, total, status = "", 0.0, 0
        for step in steps:
            command = [BIN / "cmake", *step[1:]] if step[0] == "cmake" else step
            status, output, seconds = run(*command, env=env)
            transcript += f"$ {' '.join(map(str, step))}\n{output}"
            total += seconds
            if status != 0:
                break
        TALLY.check(f"install {component}", total, status == 0, transcript)


def suite_install() -> None:
    """find_package(bie) from another project: the kernels without torch, then everything."""
    if build("kernels-only", torch_free=True):
        install_and_use("kernels-only", "kernels", torch_free=True)
    if build("release"):
        install_and_use("release", "nn", torch_free=False)


def suite_layers() -> None:
    """Includes go downward only."""
    start = time.monotonic()
    found = check_layers.check(ROOT)
    TALLY.check("layers", time.monotonic() - start, not found, "\n".join(found))


def sources(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in suffixes)


def suite_format() -> None:
    """clang-format and ruff have nothing to say."""
    files = sources("include", "src", "tests", "bench", "examples", suffixes=(".h", ".cpp", ".cu", ".cuh"))
    status, output, seconds = run(BIN / "clang-format", "--dry-run", "-Werror", *files)
    changed = sorted({line.split(":")[0] for line in output.splitlines() if ": error:" in line})
    summary = "\n".join(f"{Path(name).relative_to(ROOT)} differs: run `make format`" for name in changed)
    TALLY.check("clang-format", seconds, status == 0, summary or output)
    for label, *options in [("ruff check", "--quiet"), ("ruff format", "--check")]:
        status, output, seconds = run(BIN / "ruff", label.split()[1], "--no-cache", *options, ".")
        TALLY.check(label, seconds, status == 0, output)


def tidy_keys(files: list[Path], build_folder: Path) -> dict[Path, str]:
    """For each file a hash of all that clang-tidy's answer depends on: its version and options, the compiler's command,
    the file and what of the project it includes (from ninja's log of dependencies)."""
    objects = {entry["file"]: entry for entry in json.loads((build_folder / "compile_commands.json").read_text())}
    includes: dict[str, list[str]] = {}
    target = ""
    for line in run(BIN / "ninja", "-C", build_folder, "-t", "deps")[1].splitlines():
        if line.startswith("    "):
            includes[target].append(line.strip())
        elif ": #deps" in line:
            target = line.split(": #deps")[0]
            includes[target] = []
    common = run("clang-tidy", "--version")[1] + (ROOT / ".clang-tidy").read_text()
    keys = {}
    for file in files:
        entry = objects[str(file)]
        seen = {file, *((build_folder / name).resolve() for name in includes.get(entry["output"], []))}
        ours = [path for path in sorted(seen) if path.is_relative_to(ROOT) and path.suffix in (".h", ".cpp")]
        texts = [common, entry["command"], *(path.read_text() for path in ours)]
        keys[file] = hashlib.sha256("".join(texts).encode()).hexdigest()
    return keys


def suite_tidy() -> None:
    """clang-tidy on the kernels, the file readers and the headers they include; counts as one test. A file that passed
    and has not changed since, nor what it includes, is not read again."""
    if run("clang-tidy", "--version")[0] != 0:
        TALLY.skip("clang-tidy", "clang-tidy is not installed")
        return
    preset = "release" if build("release") else "kernels-only"
    database = BUILD / preset / "compile_commands.json"
    if not database.exists():
        return
    listed = database.read_text()
    files = [file for file in sources("src/kernels", "src/io", suffixes=(".cpp",)) if f'{file}"' in listed]
    start = time.monotonic()
    stamps = BUILD / "tidy.json"
    passed = json.loads(stamps.read_text()) if stamps.exists() else {}
    keys = tidy_keys(files, database.parent)
    changed = [file for file in files if passed.get(str(file)) != keys[file]]

    def tidy(file: Path) -> str:
        # g++ brings an OpenMP header and clang none.
        status, output, _ = run("clang-tidy", "--quiet", "-p", database.parent, "--extra-arg=-fno-openmp", file)
        if status == 0:
            passed[str(file)] = keys[file]
        return f"{file.relative_to(ROOT)}\n{output}" if status != 0 else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = "".join(pool.map(tidy, changed))
    stamps.write_text(json.dumps(passed))
    label = f"clang-tidy, {len(changed)} of {len(files)} files changed"
    TALLY.check(label, time.monotonic() - start, bool(files) and not complaints, complaints)


# Settings that make torch's libraries and ours take the paths of other CPUs.
OTHER_CPUS = [
    {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"MKL_CBWR": "COMPATIBLE"},
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    {"OMP_NUM_THREADS": "1"},
    {"OMP_NUM_THREADS": "2"},
]
AN_AVX2_CPU = {
    **{"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    **{"BIE_MAX_ISA": "avx2", "OMP_NUM_THREADS": "1"},
}
# Whole CPUs under qemu: without AVX, with AVX2 alone. In the first an instruction of a later one ends the program.
QEMU_CPUS = ["Nehalem", "Haswell"]
# They ask /proc, which answers for the machine below.
NOT_IN_QEMU = ["Isa.TheProbeAgreesWithTheKernelOfTheSystem", "HugePages.WholePagesInsideTheRangeAreAskedFor"]


def run_as_another_cpu(setting: dict[str, str], said: str) -> None:
    """What trains and what compares floats, under one setting."""
    for executable in test_executables("release"):
        if executable.name in ("bie_nn_test", "bie_train_test", "bie_optim_test"):
            run_gtest(executable, f" {said}", environment(**setting))


def suite_avx2() -> None:
    """The leg of test-cpus that every run has: a CPU with AVX2 and no more."""
    if build("release"):
        run_as_another_cpu(AN_AVX2_CPU, "with AVX2 alone")


def suite_cpus() -> None:
    """Every setting and instruction-set cap, tests/ops included; the kernels under qemu's CPUs."""
    if not build("release"):
        return
    for setting in [*OTHER_CPUS, *({"BIE_MAX_ISA": isa} for isa in ISA_CAPS)]:
        ((name, value),) = setting.items()
        said = f"{name}={value}"
        run_as_another_cpu(setting, said)
        command = (BIN / "python", "-m", "pytest", *SIDE_BY_SIDE, "-q", "tests/ops")
        run_junit(f"tests/ops {said}", *command, report="--junitxml=", env=environment(**(ONE_THREAD | setting)))
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None:
        TALLY.skip("qemu", "qemu-user is not installed: the kernels do not run on whole other CPUs")
        return
    for cpu in QEMU_CPUS:
        (executable,) = (path for path in test_executables("release") if path.name == "bie_kernels_test")
        command = (emulator, "-cpu", cpu, executable, "--gtest_brief=1", f"--gtest_filter=-{':'.join(NOT_IN_QEMU)}")
        run_junit(f"{executable.name} on {cpu}", *command, report="--gtest_output=xml:", env=environment())


SUITES = {
    "layers": suite_layers,
    "format": suite_format,
    "cpp": suite_cpp,
    "python": suite_python,
    "avx2": suite_avx2,
    "wheel": suite_wheel,
    "docs": suite_docs,
    "kernels-only": suite_kernels_only,
    "asan": suite_asan,
    "tsan": suite_tsan,
    "fuzz": suite_fuzz,
    "install": suite_install,
    "tidy": suite_tidy,
    "cuda": suite_cuda,
    "cpus": suite_cpus,
}
# Suites that run where they are asked for: they take a quarter of an hour and an hour.
ON_REQUEST = {"tsan", "cpus"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=SUITES, help="run this suite; may be repeated")
    chosen = parser.parse_args().only or [name for name in SUITES if name not in ON_REQUEST]
    start = time.monotonic()
    for name in SUITES:
        if name in chosen:
            SUITES[name]()
    print(f"{'all suites':<75} {time.monotonic() - start:7.1f} s")
    if "wheel" in chosen:
        print(run(BIN / "python", ROOT / "tools/support_matrix.py", "--count", env=package_environment())[1].strip())
    for (label, reason), count in Counter(TALLY.skips).items():
        print(f"skipped {count} in {label}: {reason}")
    for failure in TALLY.failures:
        print(f"failed: {failure}")
    print(f"{TALLY.passed} passed, {TALLY.failed} failed, {len(TALLY.skips)} skipped", flush=True)
    return 1 if TALLY.failed or not TALLY.passed else 0


if __name__ == "__main__":
    sys.exit(main())
