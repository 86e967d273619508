"""bie serve under load."""

from __future__ import annotations

import shutil

from suites.builds import build
from suites.commands import ROOT, environment
from suites.junit import run_pytest

PROMISE, LIMITS, HTTP = (f"tests/llm/serve_{name}_test.py" for name in ("promise", "limits", "http"))


def suite_serve() -> None:
    """2,000 requests by 16 clients, again with other instruction sets; then those that come, leave and end a server at
    all moments, under ThreadSanitizer and AddressSanitizer where clang is installed."""
    if build("runtime", torch_free=True):
        for isa in ("", "avx2", "portable"):
            most = {"BIE_MAX_ISA": isa} if isa else {}
            env = environment(BIE_BUILD_DIR="build/runtime", BIE_SERVE_REQUESTS="2000", **most)
            run_pytest(f"pytest 2,000 requests {isa}".strip(), PROMISE, env=env)
    if shutil.which("clang++") is None:
        return
    options = f"suppressions={ROOT / 'tests/tsan.supp'} second_deadlock_stack=1"
    if build("tsan", targets=("bie",)):
        env = environment(BIE_BUILD_DIR="build/tsan", TSAN_OPTIONS=options)
        run_pytest("pytest serving tsan", PROMISE, LIMITS, HTTP, env=env)
    if build("asan", torch_free=True, targets=("bie",)):
        run_pytest("pytest serving asan", PROMISE, LIMITS, HTTP, env=environment(BIE_BUILD_DIR="build/asan"))
