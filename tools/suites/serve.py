"""bie serve under load."""

from __future__ import annotations

import shutil

from suites.builds import build
from suites.commands import ROOT, environment
from suites.junit import run_pytest

TESTS = {name: f"tests/llm/serve_{name}_test.py" for name in ("promise", "limits", "http", "framing", "soak")}


def suite_serve() -> None:
    """2,000 requests by 16 clients, again with other instruction sets; what a server keeps after 8,000 requests, 10,000
    hostile ones, and its limits of time; then requests that come, leave and end a server at all moments, under
    ThreadSanitizer and AddressSanitizer where clang is installed."""
    if build("runtime", torch_free=True):
        for isa in ("", "avx2", "portable"):
            most = {"BIE_MAX_ISA": isa} if isa else {}
            env = environment(BIE_BUILD_DIR="build/runtime", BIE_SERVE_REQUESTS="2000", **most)
            run_pytest(f"pytest 2,000 requests {isa}".strip(), TESTS["promise"], env=env)
        env = environment(BIE_BUILD_DIR="build/runtime", BIE_SERVE_REQUESTS="2000")
        run_pytest("pytest serving for long", TESTS["soak"], TESTS["framing"], env=env)
    if shutil.which("clang++") is None:
        return
    options = f"suppressions={ROOT / 'tests/tsan.supp'} second_deadlock_stack=1"
    if build("tsan", targets=("bie",)):
        env = environment(BIE_BUILD_DIR="build/tsan", TSAN_OPTIONS=options)
        run_pytest("pytest serving tsan", *TESTS.values(), env=env)
    if build("asan", torch_free=True, targets=("bie",)):
        run_pytest("pytest serving asan", *TESTS.values(), env=environment(BIE_BUILD_DIR="build/asan"))
