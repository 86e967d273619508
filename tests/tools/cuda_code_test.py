"""What nvcc made of the CUDA kernels, read without a GPU: the instructions that were meant, no emulation, no spills."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch

EXPECTED = {  # file name to (instruction, architectures)
    r"binary_(gemm|conv2d)_(mma|halo)_(\d|lines)": ("BMMA.168256.AND.POPC", {"sm_80", "sm_90a"}),
    r"binary_(gemm|conv2d)_wgmma_": ("BGMMA", {"sm_90a"}),
    r"int[48]_(gemm|conv2d)_(wgmma|halo_pipeline)_": ("IGMMA", {"sm_90a"}),
    r"int[48]_(gemm|conv2d)_(mma|halo)_(\d|lines)": ("IMMA.16832.S8.S8", {"sm_80", "sm_90a"}),
    r"int4_(gemm|conv2d)_mma_s4_": ("IMMA.16864.S4.S4", {"sm_80"}),
    r"int[48]_(gemm|conv2d)_portable": ("IDP.4A", {"sm_80", "sm_90a"}),
    r"grouped_conv2d_": ("IDP.4A", {"sm_80", "sm_90a"}),
    r"weight_only_gemm_mma_": ("HMMA.16816.F32", {"sm_80", "sm_90a"}),
    r"weight_only_gemm_wgmma_": ("HGMMA", {"sm_90a"}),
    r"weight_only_int8_mma_": ("IMMA.16832.U8.S8", {"sm_80", "sm_90a"}),
    r"weight_only_int8_wgmma_": ("IGMMA", {"sm_90a"}),
    r"binary_gemm_portable": ("POPC", {"sm_80", "sm_90a"}),
}


@cache
def cuobjdump() -> str | None:
    """That of the toolkit, or the one that comes with torch's Triton."""
    bundled = Path(torch.__file__).parent.parent / "triton/backends/nvidia/bin/cuobjdump"
    return shutil.which("cuobjdump") or (str(bundled) if bundled.exists() else None)


def dump(option: str, path: Path) -> str:
    return subprocess.run([cuobjdump(), option, str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture(scope="module")
def objects(build):
    """The object files with device code, by their stem."""
    found = {path.name.removesuffix(".cu.o"): path for path in build.glob("src/kernels/**/*.cu.o")}
    if not found:
        pytest.skip("this build has no CUDA kernels")
    if cuobjdump() is None:
        pytest.skip("there is no cuobjdump, neither a toolkit's nor Triton's")
    read = [path for stem, path in found.items() if any(re.match(pattern, stem) for pattern in EXPECTED)]
    with ThreadPoolExecutor() as pool:  # disassembling takes seconds a file
        list(pool.map(functions, read))
    return found


@cache
def functions(path: Path):
    """[(architecture, name, [(address, instruction)])] of every kernel."""
    found, arch = [], ""
    for line in dump("-sass", path).splitlines():
        if match := re.match(r"\s*arch = (\S+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function : (\S+)", line):
            found.append((arch, match[1], []))
        elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line):
            found[-1][2].append((int(match[1], 16), match[2]))
    return found


def innermost(found):
    """Of loops as lists of (address, instruction), those that hold no other one."""
    spans = [(loop[0][0], loop[-1][0]) for loop in found]
    return [
        loop
        for loop, (first, last) in zip(found, spans, strict=True)
        if not any((first, last) != (a, b) and first <= a and b <= last for a, b in spans)
    ]


def loops(body):
    """What stands between a branch back and its target, as (address, instruction)."""
    for address, text in body:
        if match := re.search(r"\bBRA\S*\s+(?:\S+,\s*)?`?\(?\.?\S*?0x([0-9a-f]+)\)?", text):
            target = int(match[1], 16)
            if target < address:
                yield [(at, inner) for at, inner in body if target <= at <= address]


def test_the_expected_instructions_are_there(objects):
    for pattern, (instruction, architectures) in EXPECTED.items():
        matching = [path for stem, path in objects.items() if re.match(pattern, stem)]
        assert matching, pattern
        for path in matching:
            seen = {arch for arch, _, body in functions(path) if any(instruction in text for _, text in body)}
            assert seen == architectures, f"{path.name}: {instruction} in {seen or 'nothing'}"


def routines(loop, body):
    """Calls of routines, but for the few instructions in which a warp of sm_80 converges, and for jumps over the next
    branch, which are written as calls there too."""
    for address, text in loop:
        match = re.search(r"\bCALL\S*\s+(?:0x([0-9a-f]+))?", text)
        if match is None or (match[1] is not None and int(match[1], 16) == address + 0x20):
            continue
        called = [inner for at, inner in body if match[1] is not None and 0 <= at - int(match[1], 16) < 8 * 0x10]
        if not any("WARPSYNC" in inner for inner in called):
            yield text


def test_no_loop_around_a_matrix_instruction_calls_a_routine(objects):
    checked = 0
    for stem, path in objects.items():
        if not re.search("_((wg)?mma|halo)_", stem):
            continue
        for arch, name, body in functions(path):
            if "poison_kernel" in name:
                continue  # it multiplies nothing
            hot = innermost([loop for loop in loops(body) if any("MMA" in inner for _, inner in loop)])
            assert hot, f"{name} ({arch}) has no loop around its matrix instructions"
            for loop in hot:
                calls = list(routines(loop, body))
                assert not calls, f"{name} ({arch}): {calls[0]}"
                checked += 1
    assert checked > 0


def test_nothing_spills(objects):
    """But for up to four registers of kernels that have few of them, so that a multiprocessor holds more blocks."""
    kernels = 0
    for path in objects.values():
        for usage in re.findall(r"REG:\d+ STACK:\d+ SHARED:\d+ LOCAL:\d+", dump("--dump-resource-usage", path)):
            stack = int(re.search(r"STACK:(\d+)", usage)[1])
            assert stack <= 16 and usage.endswith("LOCAL:0"), f"{path.name}: {usage}"
            kernels += 1
    assert kernels > 0


def test_no_source_of_device_code_knows_torch(root):
    for path in (root / "src/kernels").rglob("*.cu*"):
        assert not re.search(r"#include\s+[<\"](torch|ATen|c10)/", path.read_text()), path
