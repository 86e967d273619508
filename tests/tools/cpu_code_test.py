"""What the compiler made of the CPU tiles: hot loops without calls, spills or moves, and the instructions meant."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

# Library and object to (what multiplies, how many of it a turn of the full tile's loop has, its share at least).
FULL_TILES = {
    "avx512/binary_gemm": ("vpopcntd", 24, 0.27),
    "avx512/binary_conv2d": ("vpopcntd", 24, 0.27),
    "avx512/int8_conv2d": ("vpdpbusd", 24, 0.6),
    "avx512/int4_conv2d": ("vpdpbusd", 48, 0.45),
    "avx512/int8_gemm": ("vpdpbusd", 24, 0.6),
    "avx512/int4_gemm": ("vpdpbusd", 48, 0.6),
    "avx2/binary_gemm": ("vpshufb", 16, 0.2),
    "avx512bw/binary_gemm": ("vpshufb", 24, 0.2),
    "avx512bw/int8_gemm": ("vpmaddwd", 12, 0.3),
    "avx512bw/int4_gemm": ("vpmaddubsw", 24, 0.25),
    "avxvnni_vex/int8_gemm": ("vpdpbusd", 12, 0.5),
    "avxvnni_vex/int4_gemm": ("vpdpbusd", 16, 0.4),
    "avxvnni_evex/int8_gemm": ("vpdpbusd", 12, 0.5),
    "avxvnni_evex/int4_gemm": ("vpdpbusd", 16, 0.4),
    "avx2/int8_gemm": ("vpmaddwd", 12, 0.3),
    "avx2/int4_gemm": ("vpmaddubsw", 16, 0.25),
    "avx512/grouped_conv2d": ("vpdpbusd", 16, 0.4),
    "avx2/grouped_conv2d": ("vpmaddwd", 8, 0.25),
}
# Loops for any CPU, which are the compiler's.
PLAIN_TILES = {"portable/binary_gemm", "portable/int4_gemm", "portable/int8_gemm"}
REGISTER_MOVE = re.compile(r"vmov\S+\s+%[xyz]mm\d+,%[xyz]mm\d+$")


def run(*words) -> str:
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture(scope="module")
def objects(build):
    """The tiles' object files, by library and stem, as clang made them."""
    if shutil.which("objdump") is None:
        pytest.skip("there is no objdump (Debian: binutils)")
    found = {}
    for name in FULL_TILES:
        library, stem = name.split("/")
        found[name] = next(build.glob(f"src/kernels/**/bie_kernels_{library}.dir/cpu/*/{stem}.cpp.o"), None)
    if all(path is None for path in found.values()):
        pytest.skip("this build has no x86 tiles")
    missing = [name for name, path in found.items() if path is None]
    assert not missing, f"no object files of {missing}"
    comments = [run("objdump", "-s", "-j", ".comment", path) for path in found.values()]
    if not all("clang" in re.sub(r"(?m)^ \S+ .{36}|\n", "", text) for text in comments):
        pytest.skip("the ISA folders were not compiled with clang: g++ 12 spends registers and moves on these loops")
    return found


@cache
def loops(path: Path) -> list[list[str]]:
    """The instructions of every innermost loop of a file."""
    sections = run("objdump", "-d", "--no-show-raw-insn", path).split("Disassembly of section")
    return [body for section in sections for body in loops_of(section)]


def loops_of(section: str) -> list[list[str]]:
    """Between a branch back and its target, without another such branch. Addresses are those of a section."""
    code = []
    for line in section.splitlines():
        if match := re.match(r"\s*([0-9a-f]+):\s+(?:\{vex\} )?(\S.*?)\s*(?:#.*)?$", line):
            code.append((int(match[1], 16), match[2]))
    places = {address: place for place, (address, _) in enumerate(code)}
    spans = []
    for place, (address, text) in enumerate(code):
        match = re.match(r"j\w+\s+([0-9a-f]+)", text)
        if match and (target := int(match[1], 16)) <= address and target in places:
            spans.append((places[target], place))
    inner = [s for s in spans if not any(s != o and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [[text for _, text in code[first : last + 1]] for first, last in inner]


def hot_loops(name: str, path: Path) -> list[list[str]]:
    return [body for body in loops(path) if any(text.startswith(FULL_TILES[name][0]) for text in body)]


def multiplies(name: str, body: list[str]) -> int:
    return sum(text.split()[0] == FULL_TILES[name][0] for text in body)


STEMS = {"b1xb1": "binary", "s4xs4": "int4", "s8xs8": "int8"}


def tile_of(kernel: str) -> str:
    """What a kernel runs: avx2/int8_gemm of s8xs8_conv2d_avx2, because convolutions read the tiles of GEMMs."""
    width, _, isa, *which = kernel.split("_")
    return f"{isa}/" + "_".join([STEMS[width], "gemm", *which])


def test_every_kernel_of_a_product_is_checked(bie):
    """A kernel whose tile stands nowhere in FULL_TILES would go unread."""
    kernels = json.loads(run(bie, "doctor", "--json"))["kernels"]
    products = [k for k in kernels if k["name"].split("_")[0] in STEMS and k["isa"] != "reference"]
    known = {re.sub(r"_(vex|evex)/", "/", name) for name in FULL_TILES} | set(AMX_TILES) | PLAIN_TILES
    assert {k["name"] for k in products if tile_of(k["name"]) not in known} == set()


def test_the_loop_of_a_full_tile_has_the_instructions_that_were_meant(objects):
    for name, path in objects.items():
        _, wanted, share = FULL_TILES[name]
        fullest = max(hot_loops(name, path), key=lambda body, name=name: (multiplies(name, body), -len(body)))
        assert multiplies(name, fullest) == wanted, name
        assert wanted / len(fullest) >= share, f"{name}: {len(fullest)} instructions a turn\n" + "\n".join(fullest)


def test_no_hot_loop_calls_spills_or_moves_vectors(objects):
    for name, path in objects.items():
        hot = hot_loops(name, path)
        assert hot, f"{name} has no loop with {FULL_TILES[name][0]}"
        for body in hot:
            bad = [t for t in body if t.startswith("call") or "(%rsp" in t or REGISTER_MOVE.match(t)]
            assert not bad, f"{name}: {bad}\n" + "\n".join(body)


def test_tiles_of_every_number_of_rows_have_a_loop(objects):
    """A tile that had lost its template instance would run as another one."""
    for name, path in objects.items():
        sizes = {multiplies(name, body) for body in hot_loops(name, path)}
        least = 3 if name == "avx2/grouped_conv2d" else 4  # its loop of one pixel is unrolled to that of two
        assert len(sizes) >= least, f"{name}: loops with {sorted(sizes)}"


def test_signs_are_counted_by_full_adders_in_registers(objects, build):
    """Turns of one and of two vectors, with and without a mask: 15 ternary operations, 8 more for masks. One of the
    three operands is overwritten, so that moves belong to it."""
    path = next(build.glob("src/kernels/**/bie_kernels_avx512.dir/cpu/*/depthwise_signs.cpp.o"))
    adders = [body for body in loops(path) if sum(text.startswith("vpternlog") for text in body) >= 15]
    assert {sum(text.startswith("vpternlog") for text in body) for body in adders} == {15, 23, 30, 46}
    for body in adders:
        bad = [text for text in body if text.startswith("call") or "(%rsp" in text]
        assert not bad, f"{bad}\n" + "\n".join(body)


# Tiles of AMX to (product, how many a turn of the loop of 32 rows and 32 outputs has, its loads): two tiles of weights
# and two of activations, which each come from where they are or from a copy; of floats three parts of activations.
AMX_TILES = {
    "amx/int8_gemm": ("tdpbusd", 4, range(4, 7)),
    "amx/int4_gemm": ("tdpbusd", 4, range(4, 7)),
    "amx/mixed_gemm": ("tdpbf16ps", 12, [8]),
}


def test_the_loop_of_an_amx_tile_has_its_products_and_loads(objects, build):
    for name, (product, products, loads) in AMX_TILES.items():
        library, stem = name.split("/")
        path = next(build.glob(f"src/kernels/**/bie_kernels_{library}.dir/cpu/*/{stem}.cpp.o"))
        full = [body for body in loops(path) if sum(t.startswith(product) for t in body) == products]
        assert full, f"{name} has no loop with {products} products"
        for body in full:
            assert sum(t.startswith("tileloadd") for t in body) in loads, "\n".join(body)
            assert not any(t.startswith("call") for t in body), "\n".join(body)


def test_the_loop_of_floats_and_codes_multiplies_from_registers(objects, build):
    path = next(build.glob("src/kernels/**/bie_kernels_avx512bw.dir/cpu/*/mixed_gemm.cpp.o"))
    full = [body for body in loops(path) if sum(t.startswith("vfmadd") for t in body) == 24]
    assert full, "no loop with 12 rows of two vectors"
    for body in full:
        bad = [t for t in body if t.startswith("call") or "(%rsp" in t or REGISTER_MOVE.match(t)]
        assert not bad, "\n".join(body)


# Weight-only tiles to (register, multiplications in a turn of the loop of six rows: of 4-bit codes, of opened ones).
WEIGHT_ONLY_TILES = {"avx512bw/weight_only_gemm": ("zmm", 48), "avx2/weight_only_gemm": ("ymm", 12)}


def test_the_loop_of_a_weight_only_tile_multiplies_from_registers(objects, build):
    for name, (register, wanted) in WEIGHT_ONLY_TILES.items():
        library, stem = name.split("/")
        path = next(build.glob(f"src/kernels/**/bie_kernels_{library}.dir/cpu/*/{stem}.cpp.o"))
        full = [body for body in loops(path) if sum(t.startswith("vfmadd") and register in t for t in body) == wanted]
        assert full, f"{name} has no loop with {wanted} multiplications"
        bad = [[t for t in body if t.startswith("call") or "(%rsp" in t or REGISTER_MOVE.match(t)] for body in full]
        assert [] in bad, f"{name}: {bad}"


# Integer activations: (instruction, register, multiplications in one turn of the full loop).
WEIGHT_ONLY_Q8_TILES = {
    "avx512/weight_only_q8": ("vpdpbusd", "zmm", 24),
    "avxvnni_vex/weight_only_q8": ("vpdpbusd", "ymm", 20),
    "avxvnni_evex/weight_only_q8": ("vpdpbusd", "ymm", 20),
    "avx2/weight_only_q8": ("vpmaddubsw", "ymm", 16),
}


def test_the_loop_of_a_weight_only_tile_of_codes_multiplies_from_registers(objects, build):
    for name, (product, register, wanted) in WEIGHT_ONLY_Q8_TILES.items():
        library, stem = name.split("/")
        path = next(build.glob(f"src/kernels/**/bie_kernels_{library}.dir/cpu/*/{stem}.cpp.o"))
        full = [body for body in loops(path) if sum(t.startswith(product) and register in t for t in body) == wanted]
        assert full, f"{name} has no loop with {wanted} of {product}"
        bad = [[t for t in body if t.startswith("call") or "(%rsp" in t or REGISTER_MOVE.match(t)] for body in full]
        assert [] in bad, f"{name}: {bad}"


def test_an_amx_tile_of_codes_ends_rows_in_registers(objects, build):
    """The loops between its products: a row of 64 outputs, whose small sums become floats in one multiplication, with
    one more for zeros and one for the step."""
    path = next(build.glob("src/kernels/**/bie_kernels_amx.dir/cpu/*/weight_only_q8.cpp.o"))
    rows = [body for body in loops(path) if sum(t.startswith("vfmadd") and "zmm" in t for t in body) in (8, 12)]
    assert rows, "no loop of a row"
    for body in rows:
        bad = [t for t in body if t.startswith("call") or "(%rsp" in t]
        assert not bad, f"{bad}\n" + "\n".join(body)


# Float tiles of AVX-512 to (multiplications in a turn of a full loop, such loops): of float_tile twelve rows by two
# panels and six by four, of three types of elements.
FLOAT_TILES = {"float_conv": (12, 1), "float_tile": (24, 6)}


def test_the_loops_of_a_float_tile_multiply_from_registers(objects, build):
    for stem, (terms, least) in FLOAT_TILES.items():
        path = next(build.glob(f"src/kernels/**/bie_kernels_avx512bw.dir/cpu/*/{stem}.cpp.o"))
        full = [body for body in loops(path) if sum(t.startswith("vfmadd") and "zmm" in t for t in body) == terms]
        assert len(full) >= least, f"{stem} has {len(full)} loops of {terms} multiplications"
        bad = [[t for t in body if t.startswith("call") or "(%rsp" in t or REGISTER_MOVE.match(t)] for body in full]
        assert not any(bad), f"{stem}: {bad}"


def test_every_weight_only_kernel_is_checked(bie):
    kernels = json.loads(run(bie, "doctor", "--json"))["kernels"]
    names = {k["name"] for k in kernels if k["name"].startswith("weight_only_gemm_")}
    plain = {"weight_only_gemm_portable", "weight_only_gemm_reference"}
    assert names - plain == {"weight_only_gemm_" + name.split("/")[0] for name in WEIGHT_ONLY_TILES}
    names = {k["name"] for k in kernels if k["name"].startswith("weight_only_q8_")}
    plain = {"weight_only_q8_portable", "weight_only_q8_reference"}
    checked = {re.split("[/_]", name)[0] for name in WEIGHT_ONLY_Q8_TILES} | {"amx"}
    assert names - plain == {"weight_only_q8_" + name for name in checked}


# Source of src/kernels/cpu/passes to an instruction that its loops have eight of at once.
PASSES = {
    "amax_codes": "vroundps",
    "attention_q8": "vmulps",
    "block_tail": "vmulps",
    "code_step": "vsqrtps",
    "code_tail": "vdivps",
    "decoder": "vfmadd231ps",
    "diode_mix": "vsqrtps",
    "embedding": "vmulps",
    "float_conv": "vfmadd231ps",
    "gradient": "vdivps",
    "input_grad": "vdivps",
    "mean": "vaddpd",
    "planes": "vdivps",
    "sigmoid": "vdivps",
    "weight_only": "vaddps",
    "weight_only_tile": "vfmadd231ps",
    "weight_only_q8_tile": "vpmulld",
    "weight_values": "vsqrtps",
}


def test_loops_over_elements_are_vectors(objects, build, root):
    assert set(PASSES) == {path.stem for path in (root / "src/kernels/cpu/passes").glob("*.cpp")}
    for stem, instruction in PASSES.items():
        path = next(build.glob(f"src/kernels/**/bie_kernels_passes_avx2.dir/cpu/passes/{stem}.cpp.o"))
        found = [t for body in loops(path) for t in body if t.startswith(f"{instruction} ") and "%ymm" in t]
        assert found, f"no loop of {path} has a {instruction} of 256 bits"


def test_no_code_with_flags_could_stand_in_for_plain_code(build):
    """The linker keeps one copy of an inline function, which must not be one that was compiled for a newer CPU."""
    if shutil.which("nm") is None:
        pytest.skip("there is no nm (Debian: binutils)")
    paths = [p for p in build.glob("src/kernels/**/bie_kernels_*.dir/cpu/**/*.o") if "passes_plain" not in str(p)]
    if not paths:
        pytest.skip("this build has no ISA folders")
    for path in paths:
        weak = [line for line in run("nm", "-C", path).splitlines() if re.search(r" [WVu] ", line)]
        assert not weak, f"{path}: {weak}"
