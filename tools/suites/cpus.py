"""Settings, instruction-set caps and emulators that stand for other CPUs."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from suites.builds import build, test_executables
from suites.commands import BUILD, environment, run
from suites.junit import ONE_THREAD, run_gtest, run_junit, run_pytest, run_side_by_side
from suites.tally import TALLY

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


@cache
def isa_caps() -> list[str]:
    """What kernels of the release build are compiled for and this CPU has, weakest first; and the strongest one, which
    is no cap: what is emulated runs with it alone.
    """
    status, output, _ = run(BUILD / "release/src/cli/bie", "doctor", "--json", env=environment())
    if status != 0:
        raise RuntimeError(f"bie doctor: {output}")
    found = json.loads(output[output.index("{") :])
    used = {kernel["isa"] for kernel in found["kernels"]}
    sets = [isa for isa in found["instruction_sets"] if isa["name"] in used]
    return [isa["name"] for isa in sets if isa["state"] == "available" or isa is sets[-1]]


def run_as_another_cpu(setting: dict[str, str], said: str) -> None:
    """What trains and what compares floats, under one setting."""
    names = ("bie_layers_test", "bie_models_test", "bie_train_test", "bie_optim_test")
    jobs = [
        partial(run_gtest, executable, f" {said}", environment(**setting))
        for executable in test_executables("release")
        if executable.name in names
    ]
    if setting.get("OMP_NUM_THREADS") == "1":
        run_side_by_side(jobs)
    else:
        for job in jobs:
            job()


def suite_avx2() -> None:
    """The leg of test-cpus that every run has: a CPU with AVX2 and no more."""
    if build("release"):
        run_as_another_cpu(AN_AVX2_CPU, "with AVX2 alone")


def run_all_as_another_cpu(setting: dict[str, str]) -> None:
    ((name, value),) = setting.items()
    said = f"{name}={value}"
    run_as_another_cpu({"OMP_NUM_THREADS": "2"} | setting, said)
    run_pytest(f"tests/ops {said}", "tests/ops", env=environment(**(ONE_THREAD | setting)), processes=2)


def suite_cpus() -> None:
    """Every setting and instruction-set cap, tests/ops included; the kernels under qemu's CPUs."""
    if not build("release"):
        return
    # Each takes two cores: a large machine runs them side by side.
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        list(pool.map(run_all_as_another_cpu, [*OTHER_CPUS, *({"BIE_MAX_ISA": isa} for isa in isa_caps())]))
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None:
        TALLY.skip("qemu", "qemu-user is not installed: the kernels do not run on whole other CPUs")
        return
    for cpu in QEMU_CPUS:
        (executable,) = (path for path in test_executables("release") if path.name == "bie_kernels_test")
        command = (emulator, "-cpu", cpu, executable, "--gtest_brief=1", f"--gtest_filter=-{':'.join(NOT_IN_QEMU)}")
        run_junit(f"{executable.name} on {cpu}", *command, report="--gtest_output=xml:", env=environment())
