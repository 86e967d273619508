"""safe_import and arch_helper: what they say on this machine and on others."""

import copy
import logging
import platform
import sys
import types
from pathlib import Path

import pytest

from bie.bitorch import arch_helper
from bitorch_engine.utils.arch_helper import ARCH_CPU, check_cpu_instruction_support, linux_arch_ident
from bitorch_engine.utils.safe_import import ExtensionModulePlaceholder, import_extension


def test_an_absent_extension_is_a_placeholder(caplog, capsys):
    with caplog.at_level(logging.WARNING):
        found = import_extension("binary_linear_cuda")
    assert isinstance(found, ExtensionModulePlaceholder)
    assert "'binary_linear_cuda' is not part of this package" in caplog.text
    assert capsys.readouterr().out == ""
    for use in (lambda: found.forward, lambda: setattr(found, "x", 1), lambda: found._name2):
        with pytest.raises(RuntimeError, match="the extension 'binary_linear_cuda' is not part of this package"):
            use()
    assert copy.copy(found)._name == "binary_linear_cuda"


def test_a_known_absence_is_silent(caplog):
    with caplog.at_level(logging.DEBUG):
        assert isinstance(import_extension("later", not_yet_implemented=True), ExtensionModulePlaceholder)
    assert not caplog.text


def test_an_extension_that_is_there(monkeypatch):
    module = types.ModuleType("bitorch_engine.extensions.here")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert import_extension("here") is module


def test_a_broken_extension_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module_at_all")
    import bitorch_engine.extensions

    monkeypatch.setattr(bitorch_engine.extensions, "__path__", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        import_extension("broken")


def pretend(monkeypatch, tmp_path, text):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(arch_helper, "_CPUINFO", tmp_path / "cpuinfo")


@pytest.mark.parametrize(
    ("text", "core"),
    [
        ("processor : 0\nCPU part : 0xd0b\n\nprocessor : 1\nCPU part : 0xd05\n", ARCH_CPU.ARM_A76),
        ("processor : 0\nCPU part\t: 0xd05\n", ARCH_CPU.ARM_A55),
        ("model name : ARM Cortex-A76 r4p0\n", ARCH_CPU.ARM_A76),
    ],
)
def test_arm_cores(monkeypatch, tmp_path, text, core):
    pretend(monkeypatch, tmp_path, text)
    assert linux_arch_ident.get_arm_model() is core


def test_other_processors_are_named(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, "model name : Some CPU @ 3 GHz\nflags : fpu sse4_2 avx2\n")
    with pytest.raises(RuntimeError, match="this processor: expected cortex-a55 or cortex-a76, got some cpu @ 3 ghz"):
        linux_arch_ident.get_arm_model()
    assert check_cpu_instruction_support("avx2") and check_cpu_instruction_support("SSE4_2")
    assert not check_cpu_instruction_support("avx") and not check_cpu_instruction_support("")
    pretend(monkeypatch, tmp_path, "Features : fp asimd\n")
    assert check_cpu_instruction_support("asimd")
    monkeypatch.setattr(arch_helper, "_CPUINFO", tmp_path / "absent")
    assert not check_cpu_instruction_support("avx2")


def test_this_machine(capsys):
    for machine, arm in (("aarch64", True), ("armv7l", True), ("x86_64", False)):
        original = platform.machine
        platform.machine = lambda machine=machine: machine
        try:
            assert linux_arch_ident.is_arm() is arm
        finally:
            platform.machine = original
    flags = Path("/proc/cpuinfo").read_text()
    for feature in ("avx2", "avx512f", "asimd", "no_such_feature"):
        assert check_cpu_instruction_support(feature) == (feature in flags.split("\n\n")[0].split())
    assert capsys.readouterr().out == ""
