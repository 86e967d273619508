"""The file readers on bytes that nobody wrote on purpose."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from functools import partial
from pathlib import Path

from suites.builds import build
from suites.commands import BIN, BUILD, ROOT, run
from suites.junit import run_side_by_side
from suites.tally import TALLY

FUZZ_INPUTS = int(os.environ.get("BIE_FUZZ_INPUTS", "80000"))
FUZZ_SEED = 1
# Targets that compute with what they have read take a share of the inputs.
SHARES = {"language_config_fuzz": 8, "language_folder_fuzz": 8}


def run_target(name: str, seeds: Path) -> None:
    inputs = FUZZ_INPUTS // SHARES.get(name, 1)
    status, output, seconds = run(
        *(BUILD / "asan/tests/fuzz" / name, f"-seed={FUZZ_SEED}", f"-runs={inputs}"),
        *("-max_len=4096", "-timeout=20", "-rss_limit_mb=4096", f"-dict={ROOT}/tests/fuzz/{name}.dict"),
        *(f"-artifact_prefix={BUILD}/asan/{name}-", seeds / name),
    )
    done = re.search(r"^Done (\d+) runs", output, re.MULTILINE)
    ok = status == 0 and done is not None
    TALLY.check(f"{name}, {done[1] if done else 0} inputs", seconds, ok, output[-20000:])


def suite_fuzz() -> None:
    """The file readers under libFuzzer, $BIE_FUZZ_INPUTS inputs from fresh seeds; each target counts as one test."""
    if shutil.which("clang++") is None:
        TALLY.skip("fuzz", "clang++ is not installed")
        return
    if not build("asan", torch_free=True):
        return
    with tempfile.TemporaryDirectory(prefix="bie-fuzz-") as folder:
        status, output, seconds = run(BIN / "python", ROOT / "tests/fuzz/make_seeds.py", folder)
        if status != 0:
            TALLY.check("fuzz seeds", seconds, False, output)
            return
        names = sorted(dictionary.stem for dictionary in (ROOT / "tests/fuzz").glob("*.dict"))
        run_side_by_side(partial(run_target, name, Path(folder)) for name in names)
