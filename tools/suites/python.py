"""The Python tests: in the tree, of the installed wheels; the pages."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from suites.builds import build
from suites.commands import BIN, BUILD, ROOT, Transcript, environment, run
from suites.junit import ONE_THREAD, run_pytest
from suites.tally import TALLY


def suite_python() -> None:
    """pytest on tests/ with the release build; others belong to "wheel", "docs" and "runtime"."""
    build("release")
    others = [f"--ignore=tests/{name}" for name in ("docs", "llm", "llm_long", "python", "written")]
    run_pytest("pytest", "tests", *others, env=environment(**ONE_THREAD))
    run_pytest("pytest files of the command in Python", "tests/written", env=package_environment() | ONE_THREAD)


def suite_wheel() -> None:
    """The wheels in an environment of their own, tested outside of the source tree; the build counts as one test."""
    with tempfile.TemporaryDirectory(prefix="bie-wheel-") as folder:
        home = Path(folder)
        python = home / "env/bin/python"
        env = {key: value for key, value in environment().items() if not key.startswith("PYTHON")}
        quiet = ("--quiet", "--no-deps")
        log = Transcript(env)

        def install() -> bool:
            # torch and the test tools come from .venv, through a .pth file.
            (theirs,) = (ROOT / ".venv/lib").glob("python*/site-packages")
            (ours,) = (home / "env/lib").glob("python*/site-packages")
            (ours / "tools.pth").write_text(f"{theirs}\n")
            wheels = (home / "dist").glob("*.whl")
            return log.step(BIN / "pip", "--python", python, "install", *quiet, "--ignore-installed", *wheels)

        built = (
            # With the flags of the release preset, so that ccache has the kernels.
            log.step(
                *(BIN / "pip", "wheel", *quiet, "--no-build-isolation", "--wheel-dir", home / "dist"),
                *(
                    "--config-settings=cmake.define.BIE_WERROR=ON",
                    ROOT,
                    ROOT / "python/bie-cli",
                    ROOT / "python/bie-llm",
                ),
            )
            and log.step(BIN / "python", "-m", "venv", "--without-pip", home / "env")
            and install()
        )
        if not TALLY.check("build and install the wheels", log.seconds, built, log.text):
            return
        # Requirements on BITorch Engine, which this package follows, are met by its wheel.
        resolver = (BIN / "pip", "--python", python, "install", *quiet, "--no-index", "--find-links", home / "dist")
        followed = log.step(*resolver, "--dry-run", "--ignore-installed", "bitorch_engine>=0.2.6")
        TALLY.check("bitorch_engine>=0.2.6 is met", log.seconds, followed, log.text)
        # Copy the files that the tests read, and nothing of the package's sources.
        for part in ("bench", "docs", "examples", "tests", "tools"):
            shutil.copytree(ROOT / part, home / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("README.md", "pyproject.toml"):
            shutil.copy(ROOT / part, home)
        run_pytest("pytest tests/python", "tests/python", env=env | ONE_THREAD, python=python, cwd=home)


def package_environment() -> dict[str, str]:
    """The Python packages out of the tree, with the libraries of the release build."""
    return environment(
        BIE_OPS_LIBRARY=str(BUILD / "release/src/ops/libbie_ops.so"),
        BIE_LLM_LIBRARY=str(BUILD / "release/src/llm/libbie_llm.so"),
        PYTHONPATH=f"{ROOT / 'python'}:{ROOT / 'python/bie-llm'}",
    )


def suite_docs() -> None:
    """Sphinx has nothing to complain of, which counts as one test; then what the pages say is tried (tests/docs)."""
    build("release")
    env = package_environment()
    shutil.rmtree(BUILD / "docs", ignore_errors=True)  # pages that are gone
    status, output, seconds = run(
        BIN / "python", "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "docs", BUILD / "docs", env=env
    )
    TALLY.check("docs", seconds, status == 0, output)
    run_pytest("pytest tests/docs", "tests/docs", env=env | ONE_THREAD)
