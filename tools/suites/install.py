"""The installed C++ libraries, used by another project."""

from __future__ import annotations

import tempfile
from pathlib import Path

from suites.builds import build, torch_free_options
from suites.commands import BIN, BUILD, ROOT, Transcript, environment, torch_free_environment
from suites.tally import TALLY


def install_and_use(
    preset: str, component: str, torch_free: bool, cross: tuple[str, ...] = (), emulator: tuple[object, ...] = ()
) -> None:
    """Installs a build, moves the installation, and builds and runs tests/install against it; counts as one test.
    `cross`: options of CMake for another machine, whose programs `emulator` runs."""
    env = torch_free_environment() if torch_free else environment()
    options = cross or torch_free_options() if torch_free else (f"-DBIE_PYTHON={BIN / 'python'}",)
    with tempfile.TemporaryDirectory(prefix="bie-install-") as folder:
        staged, prefix, consumer = (Path(folder) / name for name in ("staged", "moved", "consumer"))
        options += (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCONSUMER_COMPONENT={component}")
        log = Transcript(env)
        built = (
            log.step(BIN / "cmake", "--install", BUILD / preset, "--prefix", staged)
            and log.step("mv", staged, prefix)
            # An installed package that names a folder of the machine that built it cannot be moved.
            and log.step("sh", "-c", f"! grep -rIl -F -e '{ROOT}' -e '{staged}' '{prefix}'")
            and log.step(BIN / "cmake", "-G", "Ninja", "-S", ROOT / "tests/install", "-B", consumer, *options)
            and log.step(BIN / "cmake", "--build", consumer)
            and log.step(*emulator, consumer / "consumer")
        )
        TALLY.check(f"install {component}" + (f" of {preset}" if cross else ""), log.seconds, built, log.text)


def suite_install() -> None:
    """find_package(bie) from another project: kernels and runtime without torch, then everything."""
    if build("kernels-only", torch_free=True):
        install_and_use("kernels-only", "kernels", torch_free=True)
    if build("runtime", torch_free=True):
        install_and_use("runtime", "runtime", torch_free=True)
    if build("release"):
        install_and_use("release", "train", torch_free=False)
