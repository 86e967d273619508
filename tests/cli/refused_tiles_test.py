"""A process to which the system refuses AMX: it runs what AVX-512 has, and doctor says why."""

import ctypes
import os
import platform
import struct
import subprocess

import pytest

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is of x86")

ARCH_PRCTL, REQUEST_PERMISSION = 158, 0x1023  # asm/prctl.h: ARCH_REQ_XCOMP_PERM


def refuse_tiles():
    """A seccomp filter for this process and those it starts: arch_prctl(ARCH_REQ_XCOMP_PERM) gives EPERM."""
    load, jump_if_equal, give = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | 1
    program = [
        (load, 0, 0, 0),  # the number of the call
        (jump_if_equal, 0, 3, ARCH_PRCTL),
        (load, 0, 0, 16),  # the low half of its first argument
        (jump_if_equal, 0, 1, REQUEST_PERMISSION),
        (give, 0, 0, refuse),
        (give, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, with_filter = 38, 22, 2
    for arguments in ((no_new_privileges, 1, 0, 0, 0), (set_seccomp, with_filter, filter_, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def test_a_process_that_is_refused_tiles_runs_without_them(program):
    environment = {k: v for k, v in os.environ.items() if k != "BIE_MAX_ISA"}
    doctor = subprocess.run(
        [program.path, "doctor"], capture_output=True, text=True, preexec_fn=refuse_tiles, env=environment
    )
    assert doctor.returncode == 0, doctor.stderr
    (amx,) = [line for line in doctor.stdout.splitlines() if line.startswith("  amx ")]
    with open("/proc/cpuinfo") as file:
        has_tiles = "amx_int8" in file.read()
    assert amx.endswith("refused by the system" if has_tiles else "not on this machine")
    kernels = [line.split() for line in doctor.stdout.splitlines() if line.startswith("  s8xs8_gemm_")]
    assert [rest for name, *rest in kernels if name.endswith("_amx")] == [amx.split()[-4:]]
    assert any(rest == ["available"] for name, *rest in kernels)
