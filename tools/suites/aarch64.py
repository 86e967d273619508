"""The kernels, the runtime and the command built for 64-bit ARM and run by qemu: the same numbers as here."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from suites.builds import build, test_executables
from suites.commands import BUILD, ROOT, environment, run
from suites.install import install_and_use
from suites.junit import run_junit, run_pytest
from suites.tally import TALLY

sys.path.insert(0, str(ROOT / "tests/support"))

CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SYSROOT = "/usr/aarch64-linux-gnu"
LIBRARIES = BUILD / "aarch64-sysroot"
GTEST = Path("/usr/src/googletest/googletest")
# CPUs by the best kernels they have: SMMLA, SDOT, NEON.
CPUS = {"max": "i8mm", "neoverse-n1": "dotprod", "cortex-a53": "neon"}
# The sweeps over every kernel of the tables that ARM has kernels of its own in, but for the slowest ones, in a minute.
QUICK = (
    "*Pack*:Quantize*:WeightOnlyGemm*:WeightOnlyQ8*:FloatGemm*:HalfGemm*:Table*:Isa.A*:Registry*:*GemmRows.Every*"
    ":*Conv2dRows.GeometryAtTheEdges*:*Conv2dRows.DepthwiseOfWholeBytes*:*Conv2dRows.EveryMixOfChannelCounts*-*Refusals*"
)
# Tests that ask the machine below the emulator.
WHOLE = "*-IsaDeathTest*:HugePages*:Isa.TheProbe*"


def missing() -> bool:
    names = [name for name in (CROSS, EMULATOR) if shutil.which(name) is None]
    if names:
        TALLY.skip("aarch64", f"{' and '.join(names)} are not installed (Debian: g++-aarch64-linux-gnu, qemu-user)")
    return bool(names)


def run_kernels(preset: str, cpus: tuple[str, ...], tests: str) -> None:
    if not GTEST.exists():
        TALLY.skip("aarch64", f"{GTEST} is not there (Debian: googletest): the kernels do not run on ARM")
        return
    if not build(preset):
        return
    (program,) = test_executables(preset)
    for cpu in cpus:
        command = (EMULATOR, "-cpu", cpu, "-L", SYSROOT, program, "--gtest_brief=1", f"--gtest_filter={tests}")
        run_junit(f"{program.name} of {preset} on {cpu}", *command, report="--gtest_output=xml:", env=environment())


def suite_aarch64() -> None:
    """Kernels on the CPU that has all; examples/runtime/run_net.c of both builds, on nets of each width and 20 images
    of other floats."""
    from net_writer import coded_net

    if missing():
        return
    run_kernels("aarch64-kernels", ("max",), QUICK)
    if not (build("aarch64") and build("runtime", torch_free=True)):
        return
    with tempfile.TemporaryDirectory(prefix="bie-aarch64-") as folder:
        programs = {}
        for preset, compiler in (("aarch64", CROSS), ("runtime", "cc")):
            library, program = BUILD / preset / "src/runtime", Path(folder) / preset
            status, output, seconds = run(
                *(compiler, ROOT / "examples/runtime/run_net.c", "-I", ROOT / "include", "-L", library),
                *(f"-Wl,-rpath,{library}", "-lbie_runtime", "-o", program),
            )
            if not TALLY.check(f"run_net for {preset}", seconds, status == 0, output):
                return
            programs[preset] = program
        emulated = (EMULATOR, "-L", SYSROOT, programs["aarch64"])
        for bits in (1, 4, 8):
            net, pixels = Path(folder) / "net.bie", Path(folder) / "pixels"
            net.write_bytes(coded_net(bits).bytes())
            differ, took = "", 0.0
            for image in range(20):
                pixels.write_bytes(
                    b"".join(((i * 37 + image * 11) % 256 << 16 | 0x3E000000).to_bytes(4, "little") for i in range(32))
                )
                here, there = run(programs["runtime"], net, pixels), run(*emulated, net, pixels)
                took += there[2]
                if here[0] != 0 or here[:2] != there[:2]:
                    differ += f"image {image}:\n{here[1]}{there[1]}"
            TALLY.check(f"aarch64, {bits} bits", took, not differ, differ)


def answers_are_the_same(emulated: tuple[object, ...]) -> None:
    """Tokens and all log-probabilities of small language models, by the runtime build here and on every CPU of ARM."""
    from small_models import write_model

    if not build("runtime", torch_free=True):
        return
    with tempfile.TemporaryDirectory(prefix="bie-arm-llm-") as folder:
        for dtype in ("F32", "Q4_1", "Q8_0"):
            model = Path(folder) / f"{dtype}.gguf"
            write_model(model, "qwen3", dtype)
            for option in ("--exact", "--kv=q8", "--kv=f16"):
                words = ("generate", model, "--prompt", "Water boils at", "--tokens", 80, option, "--logprobs", 96)
                programs = {"here": (BUILD / "runtime/src/cli/bie",)}
                programs |= {cpu: (EMULATOR, "-cpu", cpu, *emulated) for cpu in CPUS}
                told, took = {}, 0.0
                for name, program in programs.items():
                    status, output, seconds = run(*program, *words, "--json", "--quiet")
                    took += seconds
                    answer = json.loads(output) if status == 0 else {}
                    told[name] = (answer.get("tokens"), answer.get("logprobs")) if status == 0 else output
                same = all(each == told["here"] for each in told.values()) and len(told["here"][0] or []) == 80
                TALLY.check(f"bie generate on ARM, {dtype} {option}", took, same, str(told))


def run_command() -> None:
    """bie doctor on every CPU, and the tests of the command on hand-written nets."""
    if not (LIBRARIES / "complete").exists():
        TALLY.skip("arm", "build/aarch64-sysroot is not there (tools/arm_sysroot.sh): the command does not run on ARM")
        return
    if not build("aarch64-command"):
        return
    paths = ":".join(str(LIBRARIES / path / "aarch64-linux-gnu") for path in ("lib", "usr/lib"))
    emulated = ("-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={paths}", BUILD / "aarch64-command/src/cli/bie")
    for cpu, best in CPUS.items():
        status, output, seconds = run(EMULATOR, "-cpu", cpu, *emulated, "doctor", "--json")
        kernels = json.loads(output)["kernels"] if status == 0 else []
        runs = [kernel["name"] for kernel in kernels if kernel["state"] == "available"]
        products = [name for name in runs if name.startswith("s8xs8_gemm_")]
        TALLY.check(f"bie doctor on {cpu}", seconds, products[:1] == [f"s8xs8_gemm_{best}"], output)
    answers_are_the_same(emulated)
    with tempfile.TemporaryDirectory(prefix="bie-arm-") as folder:
        program = Path(folder) / "src/cli/bie"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {EMULATOR} {" ".join(map(str, emulated))} "$@"\n')
        program.chmod(0o755)
        run_pytest("pytest command on ARM", "tests/runtime/command_test.py", env=environment(BIE_BUILD_DIR=folder))


def suite_arm() -> None:
    """All tests of the kernels on CPUs with and without SDOT and SMMLA, the quick ones of clang's; the installed
    kernels in another project; the command."""
    if missing():
        return
    run_kernels("aarch64-kernels", tuple(CPUS), WHOLE)
    if shutil.which("clang++"):
        run_kernels("aarch64-kernels-clang", ("max",), QUICK)
    else:
        TALLY.skip("arm", "clang++ is not installed")
    cross = (
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
    )
    install_and_use("aarch64-kernels", "kernels", True, cross, (EMULATOR, "-L", SYSROOT))
    run_command()
