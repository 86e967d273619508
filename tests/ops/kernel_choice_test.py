"""kernel_id and select_binary_kernel: every kernel gives the same numbers, a wrong id is automatic."""

import os
import subprocess
import sys

import pytest
import torch

SHAPES = [(1, 1, 1), (3, 7, 5), (7, 31, 33), (2, 129, 65), (65, 64, 3)]
ONE = torch.tensor(1.0)
ROWS = range(100, 105)  # avx512, avx512bw, avx2, portable, reference


def make(m, k, n):
    g = torch.Generator().manual_seed(m + 31 * k + 977 * n)
    return torch.randn(m, k, generator=g), torch.randint(0, 256, (n, (k + 7) // 8), generator=g).to(torch.uint8)


def run(library, script, **env):
    """The script in a fresh process with `op` = torch.ops.bie; its streams."""
    start = "import sys, torch; torch.ops.load_library(sys.argv[1]); op = torch.ops.bie; one = torch.tensor(1.0)\n"
    command = [sys.executable, "-c", start + script, library]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | env)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_id_gives_the_same_integers(operators, shape):
    x, packed = make(*shape)
    k = shape[1]
    call = operators.binary_linear
    wanted = call(x, packed, ONE, ONE)
    for kernel_id in (0, 3, 99, *ROWS, 105, 10**12, -1):
        assert torch.equal(call(x, packed, ONE, ONE, kernel_id=kernel_id), wanted)
        assert torch.equal(call(x, operators.unpack_signs(packed, k), ONE, ONE, kernel_id=kernel_id), wanted)
        panels = operators.binary_prepack(packed, k, kernel_id)
        for other in (0, 100, 101):  # the panels' own row runs, whatever the id says
            assert torch.equal(call(x, packed, ONE, ONE, panels=panels, kernel_id=other), wanted)


def test_an_id_of_a_row_arranges_its_own_panels(library):
    """The last id is the reference kernel: its panels carry its name and are the packed bytes themselves."""
    script = """
packed = torch.randint(0, 256, (5, 9)).to(torch.uint8)
panels = op.binary_prepack(packed, 70, 104)
print(bytes(panels[32:64].tolist()).split(b"\\0")[0].decode(), torch.equal(panels[64:], packed.flatten()))
"""
    done = run(library, script)
    assert done.stdout.split() == ["b1xb1_gemm_reference", "True"]
    assert done.stderr == ""


def test_an_unsuitable_id_warns_once_and_bie_ids_never(library):
    script = """
x, w = torch.ones(3, 70), torch.ones(5, 70)
for i in (0, 3, 9, 99): op.binary_linear(x, w, one, one, kernel_id=i)
print("quiet so far", file=sys.stderr, flush=True)
for i in (1000, 1001, -1): op.binary_linear(x, w, one, one, kernel_id=i)
"""
    before, after = run(library, script).stderr.split("quiet so far")
    assert before == ""
    assert after.count("kernel_id 1000 names no kernel for [3, 5, 70] on this machine") == 1
    assert after.count("names no kernel") == 1


def test_a_row_above_the_cap_is_automatic(library):
    script = "print(op.binary_linear(torch.ones(3, 70), -torch.ones(5, 70), one, one, kernel_id=100).unique().item())"
    done = run(library, script, BIE_MAX_ISA="reference")
    assert float(done.stdout) == -70
    assert "kernel_id 100 names no kernel" in done.stderr


@pytest.mark.parametrize("shape", [*SHAPES, (256, 1024, 1024)])
def test_the_selected_kernel_is_a_row_that_runs(operators, shape):
    m, k, n = shape
    kernel_id = operators.select_binary_kernel(m, n, k)
    assert isinstance(kernel_id, int) and kernel_id in ROWS
    x, packed = make(*shape)
    wanted = operators.binary_linear(x, packed, ONE, ONE)
    assert torch.equal(operators.binary_linear(x, packed, ONE, ONE, kernel_id=kernel_id), wanted)


def test_selected_ids_keep_to_the_cap(library):
    script = "print(*{op.select_binary_kernel(m, n, k) for m, n, k in ((1, 1, 1), (3, 5, 70), (64, 512, 512))})"
    done = run(library, script, BIE_MAX_ISA="reference")
    assert done.stdout.split() == ["104"]
    done = run(library, script, BIE_MAX_ISA="avx2")
    assert set(done.stdout.split()) <= {"102", "103", "104"}


def test_bad_input(operators):
    for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (-3, 1, 1)):
        with pytest.raises(ValueError, match=r"select_binary_kernel: m, n and k: expected positive numbers, got"):
            operators.select_binary_kernel(*sizes)
    x, packed = make(3, 7, 5)
    with pytest.raises(RuntimeError, match="kernel_id"):
        operators.binary_linear(x, packed, ONE, ONE, kernel_id="fast")
    with pytest.raises(RuntimeError, match="kernel_id"):
        operators.binary_prepack(packed, 7, 0.5)


def test_opcheck(operators):
    x, packed = make(3, 17, 5)
    for kernel_id in (0, 104):
        torch.library.opcheck(operators.binary_linear.default, (x, packed, ONE, ONE), {"kernel_id": kernel_id})
