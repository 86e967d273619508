"""The C++ tests: of the release build, without torch, under the sanitizers; the CUDA build."""

from __future__ import annotations

import platform
import re
import shutil
from functools import partial
from pathlib import Path

from suites.builds import build, test_executables
from suites.commands import BUILD, ROOT, environment, run, torch_free_environment
from suites.cpus import isa_caps
from suites.junit import run_gtest, run_gtest_in_parts, run_pytest, run_side_by_side
from suites.tally import TALLY


def suite_cpp() -> None:
    """Every gtest executable of the release build; the kernels once per instruction-set cap."""
    if not build("release"):
        return
    for executable in test_executables("release"):
        if executable.name == "bie_kernels_test":
            run_side_by_side(
                partial(run_gtest, executable, f" BIE_MAX_ISA={isa}", environment(BIE_MAX_ISA=isa))
                for isa in reversed(isa_caps())  # the longest first
            )
        else:
            run_gtest(executable)


CUDA_TARGETS = ("bie_ops", "bie_cuda_test", "bie_cuda_gemm_bench", "bie_cuda_conv2d_bench", "bie_cuda_roofline")


def suite_cuda() -> None:
    """The CUDA kernels and what calls them are compiled, where there is a toolkit; layers and commands are the same."""
    nvcc = next(filter(None, (shutil.which("nvcc"), shutil.which("nvcc", path="/usr/local/cuda/bin"))), None)
    release = re.search(r"release (\d+)", run(nvcc, "--version")[1]) if nvcc else None
    if release is None or int(release[1]) < 12:
        TALLY.skip("cuda", "there is no CUDA toolkit from 12.0 on: the CUDA kernels are not compiled")
        return
    if build("cuda", targets=CUDA_TARGETS):
        run_pytest("pytest CUDA code", "tests/tools/cuda_code_test.py", env=environment(BIE_BUILD_DIR="build/cuda"))


def foreign_libraries(listed: str) -> list[str]:
    """Names of torch's and Python's libraries in what ldd prints; its addresses, which can hold "c10", are not read."""
    names = [Path(line.split()[0]).name for line in listed.splitlines() if line.strip()]
    return [name for name in names if name.startswith(("libtorch", "libc10", "libpython"))]


def suite_kernels_only() -> None:
    """The kernels built where neither torch nor Python can be found; the release build runs the same tests."""
    if not build("kernels-only", torch_free=True):
        return
    commands = (BUILD / "kernels-only/compile_commands.json").read_text()
    traces = [text for text in ("/torch/include", "include/python3") if text in commands]
    for executable in test_executables("kernels-only"):
        status, listed, _ = run("ldd", executable)
        traces += foreign_libraries(listed) if status == 0 else [listed]
    TALLY.check("kernels-only knows no torch", 0.0, not traces, "\n".join(traces))


def suite_runtime() -> None:
    """What runs exported nets and language models, built where neither torch nor Python can be found. The release build
    runs the same C++ tests."""
    if not build("runtime", torch_free=True):
        return
    commands = (BUILD / "runtime/compile_commands.json").read_text()
    traces = [text for text in ("/torch/include", "include/python3") if text in commands]
    status, listed, _ = run("ldd", BUILD / "runtime/src/cli/bie")
    traces += foreign_libraries(listed) if status == 0 else [listed]
    TALLY.check("the runtime knows no torch", 0.0, not traces, "\n".join(traces))
    run_pytest("pytest runtime", "tests/runtime", env=environment(BIE_BUILD_DIR="build/runtime"))
    run_pytest("pytest language models", "tests/llm", env=environment(BIE_BUILD_DIR="build/runtime"))
    if platform.machine() == "x86_64" and build("runtime-avx2", torch_free=True):
        small = environment(BIE_BUILD_DIR="build/runtime-avx2")
        run_pytest("pytest runtime-avx2", "tests/runtime/library_test.py", env=small)


def suite_asan() -> None:
    """What knows no torch under AddressSanitizer and UndefinedBehaviorSanitizer."""
    if shutil.which("clang++") is None:
        TALLY.skip("asan", "clang++ is not installed")
        return
    if build("asan", torch_free=True):
        for executable in test_executables("asan"):
            run_gtest_in_parts(executable, " asan", torch_free_environment() | {"UBSAN_OPTIONS": "print_stacktrace=1"})


def suite_tsan() -> None:
    """The runtime, operators and layers called side by side under ThreadSanitizer."""
    if shutil.which("clang++") is None:
        TALLY.skip("tsan", "clang++ is not installed")
        return
    if build("tsan"):
        options = f"suppressions={ROOT / 'tests/tsan.supp'} second_deadlock_stack=1"
        for executable in test_executables("tsan"):
            run_gtest(executable, " tsan", environment(TSAN_OPTIONS=options))
