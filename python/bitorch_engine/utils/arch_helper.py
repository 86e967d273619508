"""What processor this is."""

from bie.bitorch.arch_helper import ARCH_CPU, check_cpu_instruction_support, linux_arch_ident

__all__ = ["ARCH_CPU", "check_cpu_instruction_support", "linux_arch_ident"]
