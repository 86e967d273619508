"""libbie_runtime.so: what it holds, and programs in C, C++ and Python that use it."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from net_writer import coded_net, crc32c


def run(*words) -> str:
    process = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_checksum_is_that_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283


def test_it_has_no_symbol_of_torch_and_shows_its_api_alone(runtime_library, root):
    if shutil.which("nm") is None:
        pytest.skip("there is no nm (Debian: binutils)")
    header = (root / "include/bie/runtime/bie_runtime.h").read_text()
    wanted = set(re.findall(r"BIE_RUNTIME_API .*?(bie_\w+)\(", header))
    defined = {line.split()[-1] for line in run("nm", "-D", "--defined-only", runtime_library).splitlines()}
    assert defined == wanted
    names = run("nm", "-C", runtime_library)
    assert not re.search(r"\b(torch|at|c10|caffe2)::|\bPy[A-Z]\w+", names)
    assert not re.search(r"libtorch|libc10|libpython|libgomp|libpng|libz\.", run("ldd", runtime_library))


def test_it_is_small(runtime_library, build, tmp_path):
    if shutil.which("strip") is None:
        pytest.skip("there is no strip (Debian: binutils)")
    run("strip", "-o", tmp_path / "stripped.so", runtime_library)
    by_clang = b"clang version" in runtime_library.read_bytes()  # g++ makes larger tiles
    most = 520_000 if build.name == "runtime-avx2" else 1_060_000 if by_clang else 1_300_000
    assert (tmp_path / "stripped.so").stat().st_size <= most


@pytest.mark.parametrize("source", ["run_net.c", "run_net.cpp"])
def test_the_examples_compile_and_run(source, runtime_library, root, float_net, tmp_path):
    compiler = shutil.which("cc" if source.endswith(".c") else "c++")
    if compiler is None:
        pytest.skip("there is no compiler")
    program = tmp_path / "run_net"
    options = ["-std=c99", "-pedantic"] if source.endswith(".c") else ["-std=c++17"]
    folder = runtime_library.parent
    run(compiler, *options, "-Wall", "-Wextra", "-Werror", root / "examples/runtime" / source, "-I", root / "include",
        "-L", folder, f"-Wl,-rpath,{folder}", "-lbie_runtime", "-o", program)  # fmt: skip
    pixels = tmp_path / "pixels"
    pixels.write_bytes(np.array([1, 2, 3, 4], np.float32).tobytes())
    said = run(program, float_net, pixels)
    if source.endswith(".c"):
        assert [float(line) for line in said.split()] == [3, 7, 4, 6, 9]
    else:
        assert said.splitlines()[4] == "frame 4: class 4"


def test_python_runs_files_and_bytes(bie_runtime, float_net):
    x = np.array([[[[1, 2], [3, 4]]], [[[0, -1], [8, 0]]]], np.float32)
    for source in (float_net, str(float_net), float_net.read_bytes()):
        net = bie_runtime.Net(source, max_batch=1)
        assert net.input_shape == (4,)
        assert net.class_names == ["top", "bottom", "left", "right", "all"]
        assert net.run(x).tolist() == [[3, 7, 4, 6, 9], [-1, 8, 8, -1, 6]]
        assert net.run(x[:0]).shape == (0, 5)
    assert bie_runtime.library_version().count(".") == 2


def test_python_says_what_is_wrong(bie_runtime, float_net, tmp_path):
    with pytest.raises(bie_runtime.NetError, match="no_such"):
        bie_runtime.Net(tmp_path / "no_such")
    with pytest.raises(bie_runtime.NetError, match="no net of bie"):
        bie_runtime.Net(b"x" * 100)
    with pytest.raises(bie_runtime.NetError, match=r"x: expected \[batch, 4\], got \[2, 3\]"):
        bie_runtime.Net(float_net).run(np.zeros((2, 3), np.float32))
    with pytest.raises(bie_runtime.NetError, match="threads"):
        bie_runtime.Net(float_net, threads=-1)
    net = bie_runtime.Net(coded_net(8).bytes())
    with pytest.raises(bie_runtime.NetError, match="the input holds NaN or infinity"):
        net.run(np.full((1, 32), np.nan, np.float32))


@pytest.mark.parametrize("bits", [0, 1, 4, 8])
def test_one_net_is_run_by_eight_threads(bie_runtime, float_net, bits):
    net = bie_runtime.Net(coded_net(bits).bytes() if bits else float_net.read_bytes(), max_batch=4)
    rng = np.random.default_rng(bits)
    inputs = [rng.standard_normal((64, *net.input_shape)).astype(np.float32) for _ in range(8)]
    wanted = [net.run(x) for x in inputs]

    def wrong(i: int) -> int:
        return sum(not np.array_equal(net.run(inputs[i]), wanted[i]) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(wrong, range(8))) == 0


def signs(bytes_: bytes, count: int) -> np.ndarray:
    return np.array([1 if bytes_[i // 8] >> i % 8 & 1 else -1 for i in range(count)])


def test_a_net_of_signs_by_its_formulas(bie_runtime):
    """The net of coded_net(1) once more in NumPy: two convolutions of signs, a threshold with a pool, mean, linear."""
    net = bie_runtime.Net(coded_net(1).bytes())
    x = np.random.default_rng(1).standard_normal((5, 2, 4, 4)).astype(np.float32)
    rows = bytes(range(6))
    weight = np.stack([signs(rows[3 * o : 3 * o + 3], 18) for o in range(2)]).reshape(2, 2, 3, 3)
    shares = []
    for image in x:

        def conv(codes):
            padded = np.pad(codes, ((0, 0), (1, 1), (1, 1)), constant_values=-1)
            size = codes.shape[1]
            return np.array([[[(padded[:, i : i + 3, j : j + 3] * w).sum() for j in range(size)] for i in range(size)]
                             for w in weight])  # fmt: skip

        acc = conv(np.where(image + np.array([0.5, -0.5], np.float32)[:, None, None] >= 0, 1, -1))
        sign = np.stack([acc[0] >= 1, ~(acc[1] >= -3)])
        pooled = np.where(sign.reshape(2, 2, 2, 2, 2).any(axis=(2, 4)), 1, -1)
        means = conv(pooled).astype(np.float32).mean(axis=(1, 2)) * np.float32(0.01)
        linear = np.stack([signs(bytes([o]), 2) for o in range(3)])
        logits = linear @ np.where(means >= 0, 1, -1) * 0.01
        shares.append(np.exp(logits) / np.exp(logits).sum())
    np.testing.assert_allclose(net.run(x), shares, rtol=1e-6)
