"""BIE_LOG=dispatch: one line on stderr a shape and kernel, with the reason why no better kernel runs."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, torch
torch.ops.load_library(sys.argv[1])
op, one = torch.ops.bie, torch.tensor(1.0)
x, packed = torch.ones(3, 40), torch.zeros(7, 5, dtype=torch.uint8)
for _ in range(2):
    op.binary_linear(x, packed, one, one)
op.binary_linear(x, packed, one, one, panels=op.binary_prepack(packed, 40, 0))
image, codes = torch.ones(2, 3, 5, 5), torch.zeros(4, 3, 3, 3, dtype=torch.int8)
op.q8_conv2d(image, codes, one, one)
"""


def lines(library, **env):
    command = [sys.executable, "-c", SCRIPT, library]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | env)
    return done.stderr.splitlines()


@pytest.mark.parametrize("topics", ["dispatch", "other,dispatch"])
def test_a_shape_and_row_is_written_once(library, topics):
    linear, panels, conv = lines(library, BIE_LOG=topics, BIE_MAX_ISA="reference")
    assert linear.startswith("bie: binary_linear m 3, n 7, k 40: b1xb1_gemm_reference (the first that fits)")
    assert panels.startswith("bie: binary_linear m 3, n 7, k 40: b1xb1_gemm_reference (its panels were given)")
    assert conv.startswith(
        "bie: q8_conv2d 2 x 3 x 5 x 5, 4 filters of 3x3, stride 1x1, groups 1: s8xs8_conv2d_reference"
    )


def test_rows_that_did_not_run_have_a_reason(library):
    reasons = {"left out by BIE_MAX_ISA", "not on this machine"}
    for line in lines(library, BIE_LOG="dispatch", BIE_MAX_ISA="reference"):
        for row in line.split("; ")[1:]:
            name, reason = row.split(": ")
            assert (
                name.endswith(("_amx", "_avx512", "_avx512bw", "_avxvnni", "_avx2", "_portable")) and reason in reasons
            ), line


@pytest.mark.parametrize("env", [{}, {"BIE_LOG": ""}, {"BIE_LOG": "dispatcher"}])
def test_nothing_is_written_unasked(library, env):
    assert lines(library, **env) == []
