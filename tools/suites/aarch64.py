"""The kernels and the runtime built for 64-bit ARM and run by qemu: the same numbers as here."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from suites.builds import build, test_executables
from suites.commands import BUILD, ROOT, environment, run
from suites.junit import run_junit
from suites.tally import TALLY

sys.path.insert(0, str(ROOT / "tests/support"))

CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SYSROOT = "/usr/aarch64-linux-gnu"
GTEST = Path("/usr/src/googletest/googletest")
# CPUs by what their kernels are compiled for: SMMLA and SDOT, SDOT alone, neither.
CPUS = ("max", "neoverse-n1", "cortex-a53")
# What has a kernel of its own on ARM, of the tests of kernels.
OWN_KERNELS = "*Gemm*:*Conv2d*:*Pack*:Quantize*:Table*:Isa.A*:Registry*-*Refusals*"


def run_kernels() -> None:
    """bie_kernels_test on every CPU; the whole of it takes a quarter of an hour."""
    if not GTEST.exists():
        TALLY.skip("aarch64", f"{GTEST} is not there (Debian: googletest): the kernels do not run on ARM")
        return
    if not build("aarch64-kernels"):
        return
    (tests,) = test_executables("aarch64-kernels")
    for cpu in CPUS:
        command = (EMULATOR, "-cpu", cpu, "-L", SYSROOT, tests, "--gtest_brief=1", f"--gtest_filter={OWN_KERNELS}")
        run_junit(f"{tests.name} on {cpu}", *command, report="--gtest_output=xml:", env=environment())


def suite_aarch64() -> None:
    """The kernels; examples/runtime/run_net.c of both builds, on nets of each width and 20 images of other floats."""
    from net_writer import coded_net

    missing = [name for name in (CROSS, EMULATOR) if shutil.which(name) is None]
    if missing:
        TALLY.skip("aarch64", f"{' and '.join(missing)} are not installed (Debian: g++-aarch64-linux-gnu, qemu-user)")
        return
    run_kernels()
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
