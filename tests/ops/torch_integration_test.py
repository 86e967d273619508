"""What torch expects of an operator: opcheck, Meta shapes, whole eval graphs under compile, no threads but torch's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SA, SW = torch.tensor(0.1), torch.tensor(0.2)


def matmul_samples(o):
    """Those of the products of two activations, with batches that are equal, broadcast and of other ranks."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, 3, 4, 17, generator=g), torch.randn(2, 3, 5, 17, generator=g)
    gy, both = torch.randn(2, 3, 4, 5, generator=g), {"want_x": True, "want_y": True}
    nbit = both | {"eps": 1e-5, "reference_grad": False}
    return [
        (o.binary_matmul, (x, y, SA, SW), {}),
        (o.binary_matmul, (x.clone().requires_grad_(), y[:, :1].clone().requires_grad_(), SA, SW), {}),
        (o.q8_matmul, (x.bfloat16(), y[0].bfloat16(), SA, SW), {}),
        (o.q8_matmul, (x[:1].clone().requires_grad_(), y.clone().requires_grad_(), SA, SW), {"reference_grad": True}),
        (o.q4_matmul, (x.mT.contiguous().mT, y, SA, SW), {"eps": 1e-3}),
        (o.q4_matmul, (x.clone().requires_grad_(), y, SA, SW), {}),
        (o.binary_matmul_backward, (gy, x, y, SA, SW), both),
        (o.binary_matmul_backward, (gy, x.bfloat16(), y[:1].bfloat16(), SA, SW), both | {"want_x": False}),
        (o.q8_matmul_backward, (gy, x, y[0], SA, SW), nbit | {"want_y": False}),
        (o.q8_matmul_backward, (gy, x[:, :1], y.mT.contiguous().mT, SA, SW), nbit),
        (o.q4_matmul_backward, (gy.half(), x, y, SA, SW), nbit | {"reference_grad": True}),
    ]


def weight_only_samples(o):
    """Weights of packed codes: whole and float zeros, groups by index, permuted rows of two widths."""
    g = torch.Generator().manual_seed(2)
    q = torch.randint(-(2**31), 2**31 - 1, (5, 9), generator=g).int()
    scales, whole, zeros = (
        torch.rand(2, 9, generator=g),
        torch.zeros(2, 2, dtype=torch.int32),
        torch.rand(2, 9, generator=g),
    )
    x, gy, panels = torch.randn(3, 40, generator=g), torch.randn(3, 9, generator=g), {"in_features": 40}
    plain, index = {"bits": 4, "group_size": 20}, torch.arange(40, dtype=torch.int32) % 2
    mixed = {"bit_rows": [8, 8, 2, 32], "g_idx": (torch.arange(40) >= 8).int()}
    mixed["q_perm"] = torch.arange(39, -1, -1, dtype=torch.int16)
    few, anchor = q[:4], torch.zeros(1).expand(40, 9).requires_grad_()
    step = {"step": 5, "lr": 0.1, "beta1": 0.9, "beta2": 0.9, "eps": 1e-6}
    grad, rest = torch.randn(40, 9, generator=g), torch.zeros(40, 9, dtype=torch.bfloat16)
    return [
        (o.weight_only_linear, (x, q, scales, whole), plain),
        (o.weight_only_linear, (x.clone().requires_grad_(), q, scales, zeros), {"bits": 4, "g_idx": index}),
        (
            o.weight_only_linear,
            (x.clone().requires_grad_(), few, scales, None, torch.ones(9, requires_grad=True)),
            mixed,
        ),
        (o.weight_only_linear, (x.bfloat16(), q, scales, whole), plain | {"anchor": anchor}),
        (
            o.weight_only_linear,
            (x, q, scales, whole),
            plain | {"panels": o.weight_only_prepack(q, scales, whole, **panels, **plain)},
        ),
        (o.weight_only_linear, (x, q, scales, whole), plain | {"int8_activations": True, "anchor": anchor}),
        (
            o.weight_only_linear,
            (x.clone().requires_grad_(), few, scales),
            mixed
            | {
                "int8_activations": True,
                "panels": o.weight_only_prepack(few, scales, **panels, **mixed, int8_activations=True),
            },
        ),
        (o.weight_only_linear_backward, (gy, x, q, scales, whole), plain),
        (o.weight_only_linear_backward, (gy, x, few, scales, zeros), mixed | {"want_weight": False}),
        (o.weight_only_prepack, (q, scales, whole), panels | plain),
        (o.weight_only_prepack, (few, scales.half(), zeros), panels | mixed),
        (o.weight_only_prepack, (q, scales, whole), panels | plain | {"int8_activations": True}),
        (o.weight_only_open, (q, scales, whole), panels | plain),
        (o.weight_only_open, (few, scales, zeros), panels | mixed | {"dtype": torch.bfloat16}),
        (o.weight_only_pack, (grad, scales, whole), plain),
        (o.weight_only_pack, (grad, scales, zeros), mixed | {"at_random": True}),
        (
            o.diode_mix_weight_only_,
            (q.clone(), scales, zeros.clone(), grad, torch.zeros(40, 9), torch.zeros(40, 9), rest),
            step | plain | {"moves_zeros": True},
        ),
        (o.diode_mix_weight_only_, (q.clone(), scales, whole.clone(), grad), step | plain | {"moves_zeros": True}),
        (
            o.diode_mix_places_many_,
            (
                *([q.clone(), q.clone()], [scales.clone(), scales.clone()], [zeros.clone(), zeros.clone()]),
                *([grad, grad], [torch.zeros(40, 9), torch.zeros(40, 9)], [torch.zeros(40, 9), torch.zeros(40, 9)]),
                *(None, [torch.zeros(40, 9, dtype=torch.int8) for _ in range(2)], None),
            ),
            {name: value for name, value in step.items() if name != "step"}
            | {"bits": [4, 4], "tops": [-1, 14], "group_sizes": [20, 20], "steps": [1, 2], "streams": [0, 1]},
        ),
        (o.pack_words, (torch.arange(10).int().view(5, 2), 3), {}),
        (o.unpack_words, (q, 5, 57, 1), {}),
    ]


def embedding_samples(o):
    """Lookups in tables of signs and of codes, and the step on rows."""
    signs, index = torch.arange(15, dtype=torch.uint8).view(5, 3), torch.tensor([[0, 4], [2, 2]])
    scale, words = torch.rand(5, 1), torch.arange(15).int().view(5, 3)
    return [
        (o.binary_embedding, (index, signs, scale), {"embedding_dim": 21, "padding_idx": -1}),
        (o.binary_embedding, (index.int()[0], signs, scale), {"embedding_dim": 24, "dtype": torch.bfloat16}),
        (o.binary_embedding_bag, (index, signs > 7), {}),
        (o.binary_embedding_bag, (index, signs), {"embedding_dim": 20, "padding_idx": 2}),
        (o.weight_only_embedding, (index, words, scale), {"bits": 4, "embedding_dim": 21}),
        (o.weight_only_embedding, (index, words, scale, scale), {"bits": 3, "embedding_dim": 32, "padding_idx": 0}),
        (
            o.diode_mix_embedding_,
            (signs.clone(), torch.tensor([1, 4]), torch.ones(2, 21), torch.zeros(5, 21)),
            {"embedding_dim": 21, "step": 1, "lr": 0.1, "beta2": 0.9},
        ),
        (
            o.diode_mix_weight_only_rows_,
            (words.clone(), scale, scale.clone(), torch.tensor([1, 4]), torch.ones(2, 24), *torch.zeros(2, 5, 24)),
            {"bits": 4, "moves_zeros": True, "step": 5, "lr": 0.1, "beta1": 0.9, "beta2": 0.9, "eps": 1e-6},
        ),
    ]


def samples(operators):
    """(operator, arguments, keywords) of every operator, forward and backward, in every form of x and the weight."""
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(3, 17, generator=g), torch.randn(5, 17, generator=g)
    image, kernel = torch.randn(2, 3, 8, 7, generator=g), torch.randn(4, 3, 3, 2, generator=g)
    codes8, codes4 = operators.q8_quantize(w)[0], operators.q4_quantize(w)[0]
    o = operators
    moments = (torch.zeros(5, 17), torch.zeros(5, 17))
    step = {"step": 1, "lr": 0.1, "beta1": 0.9, "beta2": 0.9}
    many = {"steps": [1, 2], "streams": [0, 1], "lr": 0.1, "beta1": 0.9, "beta2": 0.9}
    pairs = ([torch.zeros(5, 17), torch.zeros(3, 17)], [torch.zeros(5, 17), torch.zeros(3, 17)])
    gy, bits, rows = torch.randn(3, 5, generator=g), o.pack_signs(w), o.pack_int4(codes4)
    nbit = {"eps": 1e-5, "reference_grad": False, "plain_codes": False, "weight_grad": torch.float32}
    g_image, last = torch.randn(2, 4, 3, 6, generator=g), torch.channels_last
    conv = {"stride": (2, 1), "padding": 0, "dilation": 1, "groups": 1, "kernel_size": (3, 2)} | {
        name: nbit[name] for name in ("eps", "reference_grad", "weight_grad")
    }
    signs = {name: conv[name] for name in ("stride", "padding", "dilation", "kernel_size", "weight_grad")}
    signs |= {"groups": 1, "padding_value": -1}
    padded, g_padded = signs | {"padding": 1}, torch.randn(2, 4, 4, 8, generator=g)
    grouped = signs | {"groups": 3, "padding_value": 0, "weight_grad": None}
    three = torch.randn(3, 1, 3, 2, generator=g)
    kernel_bits, three_bits = o.pack_signs(kernel.flatten(1)), o.pack_signs(three.flatten(1))
    kernel8, kernel4 = o.q8_quantize(kernel)[0], o.q4_quantize(kernel)[0]
    return [
        (o.binary_prepack, (bits, 17), {}),
        (o.q8_prepack, (codes8,), {}),
        (o.q4_prepack, (rows, 17), {}),
        (o.binary_conv2d_prepack, (kernel_bits, 3, (3, 2)), {}),
        (o.binary_conv2d_prepack, (three_bits, 3, (3, 2), 3, 0), {}),
        (o.q8_conv2d_prepack, (kernel8,), {}),
        (o.q4_conv2d_prepack, (o.pack_int4(kernel4.flatten(1)), 3, (3, 2)), {}),
        (o.q8_conv2d_prepack, (kernel8[:, :1].contiguous(), 4), {}),
        (o.binary_linear_backward, (gy, x, w, SA, SW, torch.zeros(17)), {"weight_grad": torch.float32}),
        (o.binary_linear_backward, (gy, x.bfloat16(), bits, SA, SW, None), {"weight_grad": None}),
        (o.binary_linear_backward, (gy, o.pack_signs(x), codes8, SA, SW, None), {"weight_grad": torch.float32}),
        (o.q8_linear_backward, (gy, x, w, SA, None, torch.zeros(17)), nbit),
        (o.q8_linear_backward, (gy, codes8[:3], codes8, SA, SW, None), nbit),
        (o.q4_linear_backward, (gy, x.half(), codes4, SA, SW, None), nbit | {"plain_codes": True}),
        (o.q4_linear_backward, (gy, x, rows, SA, SW, None), nbit | {"weight_grad": None}),
        (
            o.q4_linear_backward,
            (gy.view(1, 1, 3, 5), x.view(1, 1, 3, 17).to(memory_format=last), w, SA, SW, None),
            nbit,
        ),
        (o.binary_conv2d_backward, (g_image, image, kernel, SA, SW, torch.zeros(3)), signs),
        (o.binary_conv2d_backward, (g_padded, image.to(memory_format=last), kernel8, SA, SW, None), padded),
        (o.binary_conv2d_backward, (g_image[:, :3], image.bfloat16(), three_bits, SA, SW, None), grouped),
        (o.q8_conv2d_backward, (g_image, image, kernel, SA, SW, torch.zeros(3)), conv),
        (o.q8_conv2d_backward, (g_image, image.to(memory_format=last), kernel8, SA, SW, None), conv),
        (o.q4_conv2d_backward, (g_image, image, kernel.to(memory_format=last), SA, None, None), conv),
        (o.q4_conv2d_backward, (g_image, image, kernel4, SA, SW, None), conv | {"reference_grad": True}),
        (o.q8_conv2d_backward, (g_image[:, :3], image, three, SA, SW, torch.zeros(3)), conv | {"groups": 3}),
        (o.binary_linear, (x, w, SA, SW, torch.zeros(17)), {}),
        (o.binary_linear, (x.clone().requires_grad_(), w.clone().requires_grad_(), SA, SW), {}),
        (o.q8_linear, (x, w, SA, None), {}),
        (o.q8_linear, (x.clone().requires_grad_(), w.clone().requires_grad_(), SA, SW), {}),
        (o.q4_linear, (x, w, SA, SW), {}),
        (o.q4_linear, (x.clone().requires_grad_(), w.clone().requires_grad_(), SA, None), {"reference_grad": True}),
        (o.binary_conv2d, (image, kernel, SA, SW), {"stride": (2, 1), "padding": (1, 0)}),
        (o.binary_conv2d, (image.clone().requires_grad_(), kernel.clone().requires_grad_(), SA, SW), {"padding": 1}),
        (o.binary_conv2d, (image, three_bits, SA, SW, torch.zeros(3)), {"groups": 3, "kernel_size": (3, 2)}),
        (o.q8_conv2d, (image, kernel, SA, SW), {"stride": (2, 1), "padding": (1, 0)}),
        (o.q4_conv2d, (image.clone().requires_grad_(), kernel.clone().requires_grad_(), SA, SW), {}),
        (
            o.q4_conv2d,
            (image, o.pack_int4(o.q4_quantize(three)[0].flatten(1)), SA, SW),
            {"groups": 3, "kernel_size": (3, 2)},
        ),
        *matmul_samples(o),
        *weight_only_samples(o),
        *embedding_samples(o),
        (o.pack_signs, (x,), {}),
        (o.unpack_signs, (o.pack_signs(x), 17), {}),
        (o.pack_int4, (codes4,), {}),
        (o.unpack_int4, (o.pack_int4(codes4), 17), {}),
        (o.signs_from_layout, (torch.arange(32 * 4, dtype=torch.uint8), 5, 32, "bstc"), {}),
        (o.signs_to_layout, (o.pack_signs(x[:, :16]), 16, "columns"), {}),
        (o.q8_quantize, (x,), {}),
        (o.q4_quantize, (x, SA), {}),
        (o.amax_quantize, (x,), {}),
        (o.int8_grad, (x,), {}),
        (o.binary_init, (w,), {}),
        (o.weight_scale, (w, 8), {}),
        (o.prepare_weight, (w, 4, SW), {}),
        (o.pack_weight, (w, 4), {}),
        (o.step_sizes, (w, 4, "mse", 99.9), {}),
        (o.pack_weight, (codes8, 1), {}),
        (o.read_packed_weight, (bits, (5, 17), 1, True, "qweight"), {}),
        (o.split_channels, (w,), {}),
        (o.init_scale_, (torch.tensor(0.0), x, 2.0), {}),
        (o.block_tail, (x, torch.zeros(17), torch.ones(17)), {}),
        (
            o.block_tail,
            (image.to(memory_format=last), *[torch.ones(3)] * 4, image.clone(), torch.tensor([0.25])),
            {"activation": "prelu", "pool": 2},
        ),
        (o.training_tail, (x.clone().requires_grad_(), torch.ones(17), None, torch.zeros(17), torch.ones(17)), {}),
        (
            o.training_tail,
            (image.to(memory_format=last), *[torch.ones(3)] * 4, image.clone(), torch.tensor([0.25])),
            {"activation": "prelu", "pool": 2},
        ),
        (
            o.training_tail_backward,
            (
                torch.ones(image.shape[0], 3, image.shape[2] // 2, image.shape[3] // 2),
                image,
                *[torch.ones(3)] * 3,
                None,
                image.clone(),
                torch.tensor([0.25]),
            ),
            {"activation": "prelu", "pool": 2, "want_shortcut": True},
        ),
        (o.diode_mix_float_, (w.clone(), w, *moments), step | {"eps": 1e-6}),
        (o.diode_mix_codes_, (codes8.clone(), w, *moments, SW.clone()), step | {"eps": 1e-6, "bits": 8}),
        (o.diode_mix_signs_, (codes8.clone(), codes8, *moments), step),
        (o.diode_mix_float_many_, ([w.clone(), x.clone()], [w, x], *pairs), many | {"eps": 1e-6}),
        (
            o.diode_mix_codes_many_,
            ([codes8.clone(), codes4[:3].clone()], [w, x], *pairs, [SW.clone(), SW.clone()]),
            many | {"eps": 1e-6, "bits": [8, 4], "renew_scale": [True, False]},
        ),
        (o.diode_mix_signs_many_, ([codes8.clone(), codes8[:3].clone()], [codes8, x], *pairs), many),
        (o.diode_mix_first_moment, (codes8, torch.bfloat16), {}),
        (o.q8_linear, (x, codes8, SA, SW), {}),
        (o.q4_linear, (x, codes4, SA, SW), {}),
        (o.q4_linear, (x.clone().requires_grad_(), codes4, SA, SW), {}),
        (o.q4_conv2d, (image, o.q4_quantize(kernel)[0], SA, SW), {"kernel_size": (3, 2)}),
        (o.q4_conv2d, (image.clone().requires_grad_(), o.q4_quantize(kernel)[0], SA, SW), {"kernel_size": (3, 2)}),
    ]


def test_opcheck(sample):
    op, args, kwargs = sample
    torch.library.opcheck(op.default, args, kwargs)


def test_every_operator_is_a_sample(operators):
    names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("bie::")}
    names -= {"bie::select_binary_kernel", "bie::tune_gemm", "bie::packed_weight_shape"}  # take no tensor
    # Look at values: never in a graph.
    names -= {f"bie::check_{part}_entry" for part in ("weight", "scale", "groups", "permutation")}
    names -= {"bie::check_entry", "bie::weight_only_ranges", "bie::mixed_rows", "bie::gptq", "bie::add_second_moment"}
    names -= {f"bie::gguf_{part}" for part in ("read", "codes", "blocks", "rounded", "write")}
    names -= {"bie::weights_folder_read", "bie::safetensors_write", "bie::net_bytes"}
    assert names == {op._qualified_op_name for op, _, _ in samples(operators)}


def on_meta(value):
    if isinstance(value, torch.Tensor):
        return value.detach().to("meta")
    return [on_meta(v) for v in value] if isinstance(value, list) else value


def test_meta_shapes_and_dtypes_are_the_real_ones(sample):
    op, args, kwargs = sample
    real = op(*[a.detach() if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
    fake = op(*map(on_meta, args), **kwargs)
    if op.__name__.endswith("_"):
        assert real is None and fake is None
        return
    pairs = zip(real, fake, strict=True) if isinstance(real, tuple) else [(real, fake)]
    for r, f in pairs:
        if r is None:  # an undefined gradient
            assert f is None
            continue
        assert (r.shape, r.dtype, r.stride()) == (f.shape, f.dtype, f.stride())


def mixtures(args):
    """The arguments all on meta; each that has tensors there alone, and with all others there."""
    places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) or (isinstance(a, list) and a)]
    places = [i for i in places if not isinstance(args[i], list) or isinstance(args[i][0], torch.Tensor)]
    yield [on_meta(a) for a in args]
    for odd in places if len(places) > 1 else []:
        yield [on_meta(a) if i == odd else a for i, a in enumerate(args)]
        yield [a if i == odd else on_meta(a) for i, a in enumerate(args)]


def test_a_mixture_of_devices_is_refused(sample):
    """A Meta kernel runs as soon as one tensor is on meta; it must not hand out memory of the CPU as if filled."""
    op, args, kwargs = sample
    everything, *mixed = mixtures([a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args])
    for case in (everything, *mixed):
        try:
            result = op(*case, **kwargs)
        except ValueError as refusal:
            assert case is not everything and "expected one device, got" in str(refusal)
            continue
        given = [r for r in (result if isinstance(result, tuple) else (result,)) if r is not None]
        assert all(r.is_meta for r in given)
        for value, argument in zip(case, op.default._schema.arguments, strict=False):
            if argument.alias_info is not None and value is not None:  # what was to be written
                assert all(v.is_meta for v in (value if isinstance(value, list) else [value]))


def test_how_a_mixture_of_devices_is_refused(operators):
    meta = torch.ones((), device="meta")
    with pytest.raises(ValueError, match="binary_linear: expected one device, got x on cpu and another tensor on meta"):
        operators.binary_linear(torch.ones(2, 8), torch.ones(4, 8), meta, SW)


def test_panels_made_inside_a_graph(operators):
    packed = torch.randint(-128, 128, (5, 9), generator=torch.Generator().manual_seed(0)).to(torch.int8)

    class Model(torch.nn.Module):
        def forward(self, x):
            return operators.q4_linear(x, packed, SA, SW, panels=operators.q4_prepack(packed, 17))

    x = torch.randn(3, 17)
    wanted = operators.q4_linear(x, packed, SA, SW)
    assert torch.equal(torch.export.export(Model(), (x,)).module()(x), wanted)
    assert torch.equal(torch.compile(Model(), backend="aot_eager", fullgraph=True)(x), wanted)


def test_eval_graph_is_whole_with_a_dynamic_batch(operators):
    w = torch.randn(5, 17)
    packed = operators.pack_signs(w)
    panels = operators.binary_prepack(packed, 17)

    @torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
    def model(x):
        y = operators.binary_linear(x, packed, SA, SW, panels=panels)
        return operators.q4_linear(y.relu(), torch.ones(3, 5), SA, SW)

    with torch.no_grad():
        for batch in (3, 4, 9):
            x = torch.randn(batch, 17)
            eager = operators.q4_linear(operators.binary_linear(x, packed, SA, SW).relu(), torch.ones(3, 5), SA, SW)
            assert torch.equal(model(x), eager)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(max(2, before))
    yield
    torch.set_num_threads(before)


LINEAR = pytest.mark.parametrize("linear", ["binary_linear", "q8_linear", "q4_linear"])
CONV2D = pytest.mark.parametrize("conv2d", ["binary_conv2d", "q8_conv2d", "q4_conv2d"])


@LINEAR
def test_no_second_thread_pool(operators, two_threads, linear):
    """Work of ours on torch's threads starts none of its own beyond them."""
    x, w = torch.randn(512, 1024), torch.randn(1024, 1024)
    torch.mm(x, w)
    before = len(list(Path("/proc/self/task").iterdir()))
    getattr(operators, linear)(x, w, SA, SW)
    assert len(list(Path("/proc/self/task").iterdir())) == before


def test_two_threads_share_the_work(library):
    """In a fresh process the second thread gains CPU time while our operator runs (torch itself ran nothing)."""
    script = """
import sys, time, torch
from pathlib import Path
torch.ops.load_library(sys.argv[1])
torch.set_num_threads(int(sys.argv[2]))
w = torch.ops.bie.pack_signs(torch.randn(2048, 2048)); x = torch.randn(1024, 2048); s = torch.tensor(1.0)
panels = torch.ops.bie.binary_prepack(w, 2048)
def busy():
    ticks = {}
    for t in Path('/proc/self/task').iterdir():
        f = (t / 'stat').read_text().rsplit(')', 1)[1].split()
        ticks[t.name] = int(f[11]) + int(f[12])
    return ticks
start = busy(); stop = time.monotonic() + 1.0
while time.monotonic() < stop: torch.ops.bie.binary_linear(x, w, s, s, panels=panels)
print(sum(t - start.get(name, 0) >= 10 for name, t in busy().items()))
"""
    for threads in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", script, library, str(threads)], capture_output=True, text=True, check=True
        )
        assert int(done.stdout) == threads


def with_threads(compute):
    """What ``compute`` gives on one, two and three threads."""
    count = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(compute())
    finally:
        torch.set_num_threads(count)
    return results


@LINEAR
def test_results_do_not_depend_on_threads(operators, linear):
    x, w = torch.randn(100, 300), torch.randn(200, 300)
    one, two, three = with_threads(lambda: getattr(operators, linear)(x, w, SA, SW))
    assert torch.equal(one, two) and torch.equal(one, three)


@CONV2D
def test_results_of_convolutions_do_not_depend_on_threads(operators, conv2d):
    image, kernel = torch.randn(2, 20, 15, 15), torch.randn(70, 20, 3, 3)
    one, two, three = with_threads(lambda: getattr(operators, conv2d)(image, kernel, SA, SW))
    assert torch.equal(one, two) and torch.equal(one, three)


def scale_gradient(op, x, w, **options):
    scale = torch.tensor(0.1, requires_grad=True)
    op(x, w, scale, SW, **options).sum().backward()
    return scale.grad


@LINEAR
def test_gradients_do_not_depend_on_threads(operators, linear):
    g = torch.Generator().manual_seed(1)
    x, w = torch.randn(65, 333, generator=g), torch.randn(3, 333, generator=g)
    one, two, three = with_threads(lambda: scale_gradient(getattr(operators, linear), x, w))
    assert one != 0 and one == two == three


@CONV2D
def test_gradients_of_convolutions_do_not_depend_on_threads(operators, conv2d):
    g = torch.Generator().manual_seed(1)
    image, kernel = torch.randn(2, 20, 15, 15, generator=g), torch.randn(7, 20, 3, 3, generator=g)
    one, two, three = with_threads(lambda: scale_gradient(getattr(operators, conv2d), image, kernel, padding=1))
    assert one != 0 and one == two == three


def test_integer_gradients_do_not_depend_on_threads(operators):
    x = torch.randn(65, 333, generator=torch.Generator().manual_seed(1))
    one, two, three = with_threads(lambda: operators.int8_grad(x))
    assert torch.equal(one, two) and torch.equal(one, three)


def test_a_cap_of_nonsense_is_one_sentence(library):
    script = "import sys, torch; torch.ops.load_library(sys.argv[1]); torch.ops.bie.pack_signs(torch.ones(3))"
    done = subprocess.run(
        [sys.executable, "-c", script, library],
        capture_output=True,
        text=True,
        env=os.environ | {"BIE_MAX_ISA": "sse9"},
    )
    assert done.returncode == 1
    assert "BIE_MAX_ISA is none of reference, " in done.stderr
