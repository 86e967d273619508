"""The layers on CUDA: forward passes are the CPU's to the bit in every form of every operand, nothing waits for the
device, and calls live in graphs, in torch.compile and beside other streams.
"""

import math
import os
import random
import subprocess
import sys

import pytest
import torch
from cuda_operands import (
    BF16,
    CONV,
    DTYPES,
    F16,
    F32,
    GEOMETRIES,
    LINEAR,
    binary_conv_operands,
    conv_operands,
    integer_forms,
    linear_operands,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SHAPES = [(1, 1, 1), (3, 7, 5), (4, 129, 65), (17, 1000, 130), (65, 64, 3), (130, 257, 300), (300, 96, 520)]


def cuda(value):
    return value.cuda() if isinstance(value, torch.Tensor) else value


def equal(ours, cpu):
    assert ours.is_cuda and ours.dtype == cpu.dtype and ours.shape == cpu.shape
    assert torch.equal(ours.cpu(), cpu)


def on_both(op, *args, **kwargs):
    """Compares, and hands on the CPU's."""
    wanted = op(*args, **kwargs)
    equal(op(*map(cuda, args), **{name: cuda(value) for name, value in kwargs.items()}), wanted)
    return wanted


@LINEAR
@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
def test_linear_forward_is_the_cpus(operators, layer, dtype, shape):
    x, weight, sa, sw, bias = linear_operands(layer, *shape, dtype)
    op = getattr(operators, f"{layer}_linear")
    for b in (None, bias, bias.to(dtype)):
        on_both(op, x, weight, sa, sw, b)
    integers, packed, prepack, scale = integer_forms(operators, layer, weight)
    for form in (integers, packed):
        on_both(op, x, form, sa, scale, bias)
    wanted = op(x, packed, sa, scale, bias)
    equal(op(x.cuda(), packed.cuda(), sa.cuda(), scale.cuda(), bias.cuda(), panels=prepack(packed.cuda())), wanted)
    # scales of one element on the CPU, and strided rows
    equal(op(x.cuda(), packed.cuda(), sa, scale, bias.cuda()), wanted)
    wide = torch.cat([x, x], 1).cuda()
    equal(op(wide[:, : x.shape[1]], packed.cuda(), sa, scale, bias.cuda()), wanted)
    equal(op(x.cuda()[None, :, None], packed.cuda(), sa, scale, bias.cuda()), wanted[None, :, None])


@LINEAR
def test_packed_activations(operators, layer):
    x, weight, sa, _, _ = linear_operands(layer, 9, 77, 21)
    _, packed, _, scale = integer_forms(operators, layer, weight)
    codes = {
        "binary": lambda: operators.pack_signs(x),
        "q8": lambda: operators.q8_quantize(x, sa)[0],
        "q4": lambda: operators.pack_int4(operators.q4_quantize(x, sa)[0]),
    }[layer]()
    on_both(getattr(operators, f"{layer}_linear"), codes, packed, sa, scale, in_features=77)


def test_every_kernel_id_gives_the_same(operators):
    x, weight, sa, sw, bias = linear_operands("binary", 3, 200, 70)
    wanted = operators.binary_linear(x, weight, sa, sw, bias)
    given = [t.cuda() for t in (x, weight, sa, sw, bias)]
    for kernel_id in (0, 3, 9, *range(100, 106), *range(200, 206)):
        equal(operators.binary_linear(*given, kernel_id=kernel_id), wanted)


@CONV
@DTYPES
@pytest.mark.parametrize("case", range(len(GEOMETRIES)))
def test_conv_forward_is_the_cpus(operators, layer, dtype, case):
    x_shape, w_shape, *geometry = GEOMETRIES[case]
    x, weight, sa, sw, bias = conv_operands(layer, x_shape, w_shape, dtype)
    op = getattr(operators, f"{layer}_conv2d")
    keys = dict(zip(("stride", "padding", "dilation"), geometry, strict=True)) | {"kernel_size": w_shape[2:]}
    codes, scale = getattr(operators, f"{layer}_quantize")(weight)
    packed = codes if layer == "q8" else operators.pack_int4(codes.flatten(1))
    prepack = (
        operators.q8_conv2d_prepack
        if layer == "q8"
        else lambda t: operators.q4_conv2d_prepack(t, x_shape[1], w_shape[2:])
    )
    for layout in (torch.contiguous_format, torch.channels_last):
        images = x.contiguous(memory_format=layout)
        for b in (None, bias):
            wanted = on_both(op, images, weight, sa, sw, b, **keys)
            assert op(images.cuda(), weight.cuda(), sa.cuda(), sw.cuda(), cuda(b), **keys).is_contiguous(
                memory_format=layout
            )
            on_both(op, images, codes, sa, scale, b, **keys)
            wanted = on_both(op, images, packed, sa, scale, b, **keys)
        panels = prepack(packed.cuda())
        equal(op(images.cuda(), packed.cuda(), sa, scale, bias.cuda(), panels=panels, **keys), wanted)
        on_both(op, getattr(operators, f"{layer}_quantize")(images, sa)[0], packed, sa, scale, **keys)


@CONV
@pytest.mark.parametrize("form", ["float", "codes", "packed", "panels"])
def test_grouped_convolutions_are_the_cpus(operators, layer, form):
    x, weight, sa, _, bias = conv_operands(layer, (2, 6, 9, 7), (9, 2, 3, 2), F32)
    op, keys = getattr(operators, f"{layer}_conv2d"), {"groups": 3, "padding": 1, "kernel_size": (3, 2)}
    codes, scale = getattr(operators, f"{layer}_quantize")(weight)
    packed = codes if layer == "q8" else operators.pack_int4(codes.flatten(1))
    given = {"float": weight, "codes": codes}.get(form, packed)
    if form != "panels":
        on_both(op, x, given, sa, scale, bias, **keys)
        return
    size = (3,) if layer == "q8" else (6, (3, 2), 3)
    panels = getattr(operators, f"{layer}_conv2d_prepack")(packed.cuda(), *size)
    wanted = op(x, packed, sa, scale, bias, **keys)
    equal(op(x.cuda(), packed.cuda(), sa, scale, bias.cuda(), panels=panels, **keys), wanted)


@DTYPES
@pytest.mark.parametrize("value", [-1, 0])
@pytest.mark.parametrize("case", range(len(GEOMETRIES)))
def test_binary_conv_forward_is_the_cpus(operators, dtype, value, case):
    x, weight, sa, sw, bias, moves = binary_conv_operands(case, dtype)
    keys = moves | {"kernel_size": tuple(weight.shape[2:]), "padding_value": value}
    packed = operators.pack_signs(weight.flatten(1))
    for layout in (torch.contiguous_format, torch.channels_last):
        images = x.contiguous(memory_format=layout)
        for b in (None, bias):
            for form in (weight, (100 * weight).to(torch.int8), packed):
                wanted = on_both(operators.binary_conv2d, images, form, sa, sw, b, **keys)
        panels = operators.binary_conv2d_prepack(
            packed.cuda(), x.shape[1], keys["kernel_size"], moves.get("groups", 1), value
        )
        equal(operators.binary_conv2d(images.cuda(), packed.cuda(), sa, sw, bias.cuda(), panels=panels, **keys), wanted)
    x.view(-1)[-1] = float("inf")
    assert operators.binary_conv2d(x.cuda(), weight.cuda(), sa, sw, **keys).isnan().all()


def test_random_layers(operators):
    random.seed(7)
    for _ in range(int(os.environ.get("BIE_TEST_SHAPES", "300"))):
        layer = random.choice(["binary", "q8", "q4"])
        m, k, n = (random.choice([1, 2, 5, 16, 33, 64, 130, 257]) for _ in range(3))
        dtype = random.choice([F32, F16, BF16])
        x, weight, sa, sw, bias = linear_operands(layer, m, k, n, dtype)
        on_both(getattr(operators, f"{layer}_linear"), x, weight, sa, sw, random.choice([None, bias]))


@LINEAR
def test_nan_in_a_float_weight_reaches_the_output(operators, layer):
    for m in (1, 50):
        x, weight, sa, sw, _ = (t.cuda() for t in linear_operands(layer, m, 40, 9))
        weight[3, 7] = math.nan
        assert getattr(operators, f"{layer}_linear")(x, weight, sa, sw).isnan().all()


@LINEAR
def test_nan_reaches_the_output(operators, layer):
    for m in (1, 50):
        x, weight, sa, sw, _ = (t.cuda() for t in linear_operands(layer, m, 40, 9))
        x[-1, 3] = math.nan
        assert getattr(operators, f"{layer}_linear")(x, weight, sa, sw).isnan().all()


def calls(operators):
    """(name, a call without arguments) of every layer, forward and backward, on warm memory."""
    out = []
    for layer in ("binary", "q8", "q4"):
        for m in (2, 70):
            x, w, sa, sw, bias = (t.cuda() for t in linear_operands(layer, m, 130, 70))
            op = getattr(operators, f"{layer}_linear")
            out.append((f"{layer}_linear {m}", lambda op=op, a=(x, w, sa, sw, bias): op(*a)))
            back = getattr(operators, f"{layer}_linear_backward")
            g = torch.randn(m, 70, device="cuda")
            more = {} if layer == "binary" else {"eps": 1e-5, "reference_grad": False, "plain_codes": False}
            arguments = (g, x, w, sa, sw, bias)
            out.append(
                (
                    f"{layer}_linear_backward {m}",
                    lambda f=back, a=arguments, k=more: f(*a, weight_grad=torch.float32, **k),
                )
            )
    for layer in ("q8", "q4"):
        x, w, sa, sw, bias = (t.cuda() for t in conv_operands(layer, (2, 20, 9, 9), (30, 20, 3, 3)))
        op = getattr(operators, f"{layer}_conv2d")
        out.append((f"{layer}_conv2d", lambda op=op, a=(x, w, sa, sw, bias): op(*a, padding=(1, 1))))
        back = getattr(operators, f"{layer}_conv2d_backward")
        keys = {
            "stride": (1, 1),
            "padding": (1, 1),
            "dilation": (1, 1),
            "groups": 1,
            "kernel_size": (3, 3),
            "eps": 1e-5,
        }
        arguments = (torch.randn(2, 30, 9, 9, device="cuda"), x, w, sa, sw, bias)
        out.append(
            (
                f"{layer}_conv2d_backward",
                lambda f=back, a=arguments, k=keys: f(*a, reference_grad=False, weight_grad=torch.float32, **k),
            )
        )
    return out


CALLS = [f"{layer}_linear{way} {m}" for layer in ("binary", "q8", "q4") for m in (2, 70) for way in ("", "_backward")]
CALLS += [f"{layer}_conv2d{way}" for layer in ("q8", "q4") for way in ("", "_backward")]


@pytest.fixture(params=CALLS)
def call(operators, request):
    return dict(calls(operators))[request.param]


def test_the_calls_have_these_names(operators):
    assert [name for name, _ in calls(operators)] == CALLS


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def test_nothing_waits_for_the_device(call):
    call()  # loads modules
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_every_call_is_captured_in_a_graph(call):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        wanted = [t.clone() for t in flat(call())]
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = flat(call())
    for t in found:
        t.fill_(-7)
    graph.replay()
    torch.cuda.synchronize()
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)


def test_steady_calls_take_no_new_memory(call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["num_device_alloc"]
    for _ in range(10):
        call()
    assert torch.cuda.memory_stats()["num_device_alloc"] == before


def test_the_same_bits_every_time(call):
    first = [t.clone() for t in flat(call())]
    for _ in range(5):
        for a, b in zip(flat(call()), first, strict=True):
            assert torch.equal(a, b)


def test_another_stream(operators):
    x, w, sa, sw, bias = (t.cuda() for t in linear_operands("q8", 200, 1000, 300))
    wanted = operators.q8_linear(x, w, sa, sw, bias)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        late = x.clone()
        found = operators.q8_linear(late, w, sa, sw, bias)
    side.synchronize()
    assert torch.equal(found, wanted)


@LINEAR
def test_tensors_on_two_devices_are_refused(operators, layer):
    x, weight, sa, sw, bias = linear_operands(layer, 4, 40, 9)
    op = getattr(operators, f"{layer}_linear")
    for moved in ([0], [1], [0, 1], [4]):
        given = [t.cuda() if i in moved else t for i, t in enumerate((x, weight, sa, sw, bias))]
        with pytest.raises(ValueError, match=rf"^{layer}_linear: .*cuda:0"):
            op(*given)
    with pytest.raises(ValueError, match="scale_a is on cpu"):
        op(x.cuda(), weight.cuda(), sa.view(1), sw.cuda(), bias.cuda())


def test_panels_that_do_not_fit_are_refused(operators):
    x, weight, sa, sw, _ = linear_operands("q8", 4, 40, 9)
    codes = operators.q8_quantize(weight)[0].cuda()
    good = operators.q8_prepack(codes)
    shifted = torch.empty(good.numel() + 1, dtype=torch.uint8, device="cuda")[1:].view(good.shape)
    for bad in (
        shifted,
        good[:, :-1],
        good[:-1],
        good.flatten(),
        good.cpu(),
        good.to(torch.int8),
        operators.q8_prepack(codes.cpu()),
    ):
        with pytest.raises(ValueError, match=r"^q8_linear: "):
            operators.q8_linear(x.cuda(), codes, sa, sw, panels=bad)


@LINEAR
def test_compiled(operators, layer):
    x, weight, sa, _, bias = linear_operands(layer, 8, 64, 32)
    _, packed, prepack, scale = integer_forms(operators, layer, weight)
    op = getattr(operators, f"{layer}_linear")
    packed, sa, scale, bias, x = (t.cuda() for t in (packed, sa, scale, bias, x))
    panels = prepack(packed)

    def model(x):
        return torch.relu(op(x * 2, packed, sa, scale, bias, panels=panels))

    assert torch.equal(torch.compile(model, fullgraph=True)(x), model(x))


def test_tuning_is_remembered_and_damaged_files_are_ignored(operators, library, tmp_path):
    script = """if True:
        import sys, torch
        torch.ops.load_library(sys.argv[1])
        op = torch.ops.bie
        if sys.argv[2] == "tune":
            names = [op.tune_gemm(bits, 64, 512, 512, torch.device("cuda")) for bits in (1, 4, 8)]
            assert [name.split("_gemm_")[0] for name in names] == ["b1xb1", "s4xs4", "s8xs8"], names
            assert op.select_binary_kernel(64, 512, 512, torch.device("cuda")) >= 200
        x = torch.randn(50, 512, device="cuda")
        y = op.q8_linear(x, torch.randn(512, 512, device="cuda"), torch.tensor(0.1), None)
        print(float(y.isfinite().all()))
    """
    env = os.environ | {"BIE_CACHE_DIR": str(tmp_path / "cache")}

    def run(*words):
        return subprocess.run(
            [sys.executable, "-c", script, library, *words], env=env, capture_output=True, text=True, check=True
        )

    assert "damaged" not in run("tune").stderr
    path = tmp_path / "cache/gemm_tuning.tsv"
    lines = path.read_text().splitlines()
    assert lines[0] == "bie gemm tuning 1" and len(lines) == 4
    assert "damaged" not in run("use").stderr
    writers = [
        subprocess.Popen([sys.executable, "-c", script, library, "tune"], env=env, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [w.wait() for w in writers] == [0, 0]
    assert len(path.read_text().splitlines()) == 4
    path.write_bytes(b"bie gemm tuning 1\nrubbish\n\xff\xfe")
    done = run("use")
    assert done.stderr.count("damaged and ignored") == 1 and done.stdout.strip() == "1.0"


def test_a_capped_architecture_runs_the_portable_rows(library):
    script = """if True:
        import sys, torch
        torch.ops.load_library(sys.argv[1])
        g = torch.Generator().manual_seed(1)
        x, w = torch.randn(70, 200, generator=g), torch.randn(50, 200, generator=g)
        for name in ("q8_linear", "q4_linear"):
            op = getattr(torch.ops.bie, name)
            assert torch.equal(op(x.cuda(), w.cuda(), torch.tensor(0.1), torch.tensor(0.1)).cpu(),
                               op(x, w, torch.tensor(0.1), torch.tensor(0.1)))
    """
    for cap in ("75", "80", "89"):
        subprocess.run([sys.executable, "-c", script, library], env=os.environ | {"BIE_MAX_SM": cap}, check=True)
    done = subprocess.run(
        [sys.executable, "-c", script, library],
        env=os.environ | {"BIE_MAX_SM": "hopper"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode != 0 and "BIE_MAX_SM is no number" in done.stderr
