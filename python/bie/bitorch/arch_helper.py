"""What processor this is."""

from __future__ import annotations

import platform
from enum import Enum
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_ARM_PARTS = {"0xd05": "cortex-a55", "0xd0b": "cortex-a76"}


class ARCH_CPU(Enum):
    """The ARM cores that BITorch Engine had kernels for."""

    ARM_A76 = 1
    ARM_A55 = 2


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo, lower case; empty where there is no such file."""
    if not _CPUINFO.is_file():
        return {}
    lines = _CPUINFO.read_text(errors="replace").lower().split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


class linux_arch_ident:
    """ARM, and which ARM."""

    @staticmethod
    def is_arm() -> bool:
        """Whether this process runs on an ARM processor."""
        return platform.machine().lower().startswith(("arm", "aarch64"))

    @staticmethod
    def get_arm_model() -> ARCH_CPU:
        """The core by its part number in /proc/cpuinfo. ``RuntimeError`` for any other processor."""
        info = _cpuinfo()
        name = _ARM_PARTS.get(info.get("cpu part", ""), info.get("model name", "unknown"))
        for core, member in (("cortex-a55", ARCH_CPU.ARM_A55), ("cortex-a76", ARCH_CPU.ARM_A76)):
            if core in name:
                return member
        raise RuntimeError(f"get_arm_model: this processor: expected cortex-a55 or cortex-a76, got {name}")


def check_cpu_instruction_support(search_term: str) -> bool:
    """Whether the processor has the feature of this name in Linux' spelling, such as ``avx2`` or ``asimd``."""
    info = _cpuinfo()
    return search_term.lower() in (info.get("flags", "") + " " + info.get("features", "")).split()
