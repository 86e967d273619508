"""binary_matmul, q8_matmul and q4_matmul: forward bit for bit, backward in both modes against the formula in float64.

Runs on the CPU, and on CUDA where there is one: for given clips the integers, so the floats too, are the same.
"""

import formulas
import pytest
import torch
from formulas import Q4, Q8
from torch._dynamo.testing import CompileCounterWithBackend

# (batch of x, batch of y, m, k, n)
SHAPES = [
    ((1,), (1,), 1, 1, 1),
    ((3,), (3,), 5, 33, 7),
    ((2, 3), (2, 3), 7, 31, 5),
    ((2, 3), (1,), 4, 65, 3),
    ((2, 3), (2, 1), 3, 17, 9),
    ((2, 3), (3,), 3, 17, 9),
    ((3,), (2, 3), 2, 63, 11),
    ((2, 1), (1, 3), 6, 129, 2),
    ((1, 3), (2, 1), 33, 8, 1),
    ((4, 1, 2), (3, 1), 1, 127, 6),
    ((19,), (19,), 3, 64, 65),
]
SHAPED = pytest.mark.parametrize("shape", SHAPES, ids=str)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
BITS = pytest.mark.parametrize("bits", [1, 8, 4])
MODES = pytest.mark.parametrize("reference", [False, True], ids=["exact", "reference"])
DEVICES = pytest.mark.parametrize("device", ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
WIDTH = {8: Q8, 4: Q4}
# Small enough that some activations are clipped.
CLIPS = {1: (0.8, 1.1), 8: (0.013, 0.017), 4: (0.21, 0.27)}


def op(operators, bits):
    return {1: operators.binary_matmul, 8: operators.q8_matmul, 4: operators.q4_matmul}[bits]


def make(shape, bits, dtype=torch.float32, device="cpu"):
    x_batch, y_batch, m, k, n = shape
    g = torch.Generator().manual_seed(m + 31 * k + 977 * n)
    x = torch.randn(*x_batch, m, k, generator=g).to(dtype)
    y = torch.randn(*y_batch, n, k, generator=g).to(dtype)
    x[..., 0, 0] = 0  # its sign is +1 forward and 0 backward
    x_clip, y_clip = map(torch.tensor, CLIPS[bits])
    return [t.to(device) for t in (x, y, x_clip, y_clip)]


@DEVICES
@BITS
@DTYPES
@SHAPED
def test_forward_equals_the_formula(operators, shape, dtype, bits, device):
    x, y, x_clip, y_clip = make(shape, bits, dtype, device)
    out = op(operators, bits)(x, y, x_clip, y_clip)
    wanted = formulas.matmul_forward(x.cpu(), y.cpu(), x_clip.cpu(), y_clip.cpu(), WIDTH.get(bits))
    assert out.dtype == dtype and out.is_contiguous()
    assert torch.equal(out.cpu(), wanted)


@DEVICES
@BITS
def test_strides_and_views(operators, bits, device):
    """Heads cut out of one tensor, transposed operands, sliced rows: read where they lie or copied, all the same."""
    call, clips = op(operators, bits), [torch.tensor(c, device=device) for c in CLIPS[bits]]
    g = torch.Generator().manual_seed(1)
    q, k = (torch.randn(2, 9, 5 * 24, generator=g).to(device).view(2, 9, 5, 24).transpose(1, 2) for _ in range(2))
    assert torch.equal(call(q, k, *clips), call(q.contiguous(), k.contiguous(), *clips))
    assert torch.equal(call(q[:, 1:4], k[:, :1], *clips), call(q[:, 1:4].contiguous(), k[:, :1].contiguous(), *clips))
    assert torch.equal(call(q[..., 1::2, :], k, *clips), call(q[..., 1::2, :].contiguous(), k.contiguous(), *clips))
    assert torch.equal(call(q.mT, k.mT, *clips), call(q.mT.contiguous(), k.mT.contiguous(), *clips))
    one = q[:1, :1, :1]
    assert torch.equal(call(one.expand(2, 5, 3, 24), k, *clips), call(one.repeat(2, 5, 3, 1), k, *clips))
    assert torch.equal(call(q, k[:1, :1].expand_as(k), *clips), call(q, k[:1, :1], *clips))


@DEVICES
@BITS
def test_each_entry_is_the_linear_operator(operators, bits, device):
    x, y, x_clip, y_clip = make(SHAPES[2], bits, device=device)
    linear = {1: operators.binary_linear, 8: operators.q8_linear, 4: operators.q4_linear}[bits]
    out = op(operators, bits)(x, y, x_clip, y_clip)
    for i in range(2):
        for j in range(3):
            assert torch.equal(out[i, j], linear(x[i, j], y[i, j], x_clip, y_clip))


@DEVICES
@BITS
@pytest.mark.parametrize(
    "shape",
    [
        ((0,), (0,), 2, 3, 4),
        ((0,), (1,), 2, 3, 4),
        ((2,), (2,), 0, 3, 4),
        ((2,), (1,), 2, 3, 0),
        ((2, 1), (2, 0), 2, 3, 4),
    ],
    ids=str,
)
def test_empty_products(operators, shape, bits, device):
    x_batch, y_batch, m, k, n = shape
    clips = [torch.tensor(c, device=device, requires_grad=True) for c in CLIPS[bits]]
    x = torch.ones(*x_batch, m, k, device=device, requires_grad=True)
    y = torch.ones(*y_batch, n, k, device=device, requires_grad=True)
    out = op(operators, bits)(x, y, *clips)
    assert out.shape == (*torch.broadcast_shapes(x_batch, y_batch), m, n)
    out.sum().backward()
    for leaf in (x, y, *clips):
        assert leaf.grad.shape == leaf.shape and not leaf.grad.any()


@DEVICES
@BITS
@MODES
@DTYPES
@SHAPED
def test_backward_equals_the_formula(operators, shape, dtype, reference, bits, device):
    if reference and bits == 1:
        return  # signs have one mode
    leaves = [t.requires_grad_() for t in make(shape, bits, dtype, device)]
    out = op(operators, bits)(*leaves, **({} if bits == 1 else {"reference_grad": reference}))
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    out.backward(g.to(device))
    wanted = formulas.matmul_backward(*(t.detach().cpu() for t in leaves), g, WIDTH.get(bits), reference)
    for leaf, (grad, size) in zip(leaves, wanted, strict=True):
        assert leaf.grad.dtype == leaf.dtype and leaf.grad.is_contiguous()
        formulas.close(leaf.grad.cpu(), grad, leaf.dtype, size)


@BITS
def test_the_clips_clip(operators, bits):
    """Gradients vanish outside the range and pass inside it: at k = 1 each element of x is one product."""
    x_clip, y_clip = map(torch.tensor, CLIPS[bits])
    bound = {1: 1, 8: 127, 4: 7}[bits] * float(x_clip)
    x = torch.tensor([[[0.5 * bound], [2 * bound], [-0.5 * bound], [-2 * bound]]], requires_grad=True)
    op(operators, bits)(x, torch.ones(1, 1, 1), x_clip, y_clip).sum().backward()
    assert x.grad.flatten().ne(0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("bits", [8, 4])
def test_the_two_modes_differ(operators, bits):
    grads = []
    for reference in (False, True):
        x, y, x_clip, y_clip = make(SHAPES[1], bits)
        x_clip.requires_grad_()
        op(operators, bits)(x, y, x_clip, y_clip, reference_grad=reference).square().sum().backward()
        grads.append(x_clip.grad)
    assert not torch.allclose(grads[0], grads[1], rtol=1e-3)


@BITS
def test_only_what_is_wanted_is_computed(operators, bits):
    x, y, x_clip, y_clip = make(SHAPES[2], bits)
    call = op(operators, bits)
    whole = [t.clone().requires_grad_() for t in (x, y, x_clip, y_clip)]
    call(*whole).sum().backward()
    for wanted in range(4):
        leaves = [t.clone().requires_grad_(i == wanted) for i, t in enumerate((x, y, x_clip, y_clip))]
        call(*leaves).sum().backward()
        assert torch.equal(leaves[wanted].grad, whole[wanted].grad)
        assert all(leaf.grad is None for i, leaf in enumerate(leaves) if i != wanted)


@BITS
def test_a_product_with_itself(operators, bits):
    x, _, clip, _ = make(((2,), (2,), 5, 17, 5), bits)
    leaf, one, two = (x.clone().requires_grad_() for _ in range(3))
    op(operators, bits)(leaf, leaf, clip, clip).square().sum().backward()
    op(operators, bits)(one, two, clip, clip).square().sum().backward()
    torch.testing.assert_close(leaf.grad, one.grad + two.grad)


@BITS
def test_double_backward_is_refused(operators, bits):
    x, y, x_clip, y_clip = make(SHAPES[1], bits)
    out = op(operators, bits)(x.requires_grad_(), y, x_clip, y_clip)
    with pytest.raises(RuntimeError, match=f"{op(operators, bits).__name__}: .* no second derivative"):
        torch.autograd.grad(out.square().sum(), x, create_graph=True)


@BITS
def test_a_clip_of_zero(operators, bits):
    """Not initialised: nothing but zeros may have met it."""
    call = op(operators, bits)
    x, y, _, y_clip = make(SHAPES[1], bits)
    zero = torch.tensor(0.0)
    dead = torch.zeros_like(x).requires_grad_()
    out = call(dead, y, zero, y_clip)
    assert not out.any()
    out.sum().backward()
    assert dead.grad.isfinite().all()
    for clips, name in (((zero, y_clip), "x_clip"), ((y_clip, zero), "y_clip")):
        with pytest.raises(ValueError, match=f"{name} is 0, training wants it initialised"):
            call(x.clone().requires_grad_(), y, *clips).sum().backward()


@pytest.mark.parametrize("bits", [8, 4])
def test_a_step_below_eps_is_lifted(operators, bits):
    x, y = (1e-5 * t for t in make(SHAPES[1], bits)[:2])
    tiny = torch.tensor(1e-7)
    wanted = formulas.matmul_forward(x, y, tiny, tiny, WIDTH[bits])
    assert torch.equal(op(operators, bits)(x, y, tiny, tiny), wanted)
    assert not torch.equal(op(operators, bits)(x, y, tiny, tiny, eps=1e-7), wanted)


@BITS
def test_refusals(operators, bits):
    call, name = op(operators, bits), op(operators, bits).__name__
    x, y, x_clip, y_clip = make(SHAPES[2], bits)
    for bad in (x[0, 0], x[0, 0, 0]):
        with pytest.raises(ValueError, match=f"{name}: .* of at least three axes"):
            call(bad, y, x_clip, y_clip)
        with pytest.raises(ValueError, match=f"{name}: .* of at least three axes"):
            call(y, bad, x_clip, y_clip)
    with pytest.raises(ValueError, match=r"x and y: expected last axes, .*, got \[2, 3, 7, 30\] and \[2, 3, 5, 31\]"):
        call(x[..., :30], y, x_clip, y_clip)
    with pytest.raises(ValueError, match=r"x and y: .* one positive size, got \[2, 3, 7, 0\] and \[2, 3, 5, 0\]"):
        call(x[..., :0], y[..., :0], x_clip, y_clip)
    with pytest.raises(
        ValueError, match=r"x and y: expected batch axes that are equal or 1, got \[2, 3, 7, 31\] and \[2, 2, 5, 31\]"
    ):
        call(x, y[:, :2], x_clip, y_clip)
    with pytest.raises(TypeError, match=f"{name}: x: expected float32, bfloat16 or float16, got Double"):
        call(x.double(), y.double(), x_clip, y_clip)
    with pytest.raises(TypeError, match=f"{name}: y: expected Float, as x is, got Half"):
        call(x, y.half(), x_clip, y_clip)
    with pytest.raises(ValueError, match=r"y_clip: expected one element, got \[2\]"):
        call(x, y, x_clip, torch.ones(2))
    with pytest.raises(ValueError, match="x_clip: expected a finite number, got nan"):
        call(x, y, torch.tensor(float("nan")), y_clip)
    if bits != 1:
        with pytest.raises(ValueError, match="eps: expected a positive number, got 0"):
            call(x, y, x_clip, y_clip, eps=0.0)
    for poison in (float("nan"), float("inf"), -float("inf")):
        for i, operand in enumerate((x, y)):
            bad = operand.clone()
            bad[1, 2, 4, 30] = poison
            with pytest.raises(ValueError, match="NaN or infinity"):
                call(*([bad, y] if i == 0 else [x, bad]), x_clip, y_clip)
    if bits != 1:
        too_deep = 131072 if bits == 8 else 1 << 21
        with pytest.raises(ValueError, match="too long for an int32"):
            call(torch.ones(1, 1, too_deep), torch.ones(1, 1, too_deep), x_clip, y_clip)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@BITS
def test_nan_on_cuda_spoils_the_products_that_read_it(operators, bits):
    x, y, x_clip, y_clip = make(SHAPES[2], bits, device="cuda")
    wanted = op(operators, bits)(x, y, x_clip, y_clip)
    for operand in (x, y):
        kept = operand[1, 2, 4, 30].clone()
        operand[1, 2, 4, 30] = float("nan")
        out = op(operators, bits)(x, y, x_clip, y_clip)
        operand[1, 2, 4, 30] = kept
        assert out[1, 2].isnan().all()
        assert torch.equal(out[0], wanted[0]) and torch.equal(out[1, :2], wanted[1, :2])


@BITS
def test_results_do_not_depend_on_threads(operators, bits):
    count = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            leaves = [t.requires_grad_() for t in make(((16,), (16,), 33, 65, 31), bits)]
            out = op(operators, bits)(*leaves)
            out.square().sum().backward()
            results.append([out, leaves[2].grad, leaves[3].grad])
    finally:
        torch.set_num_threads(count)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@BITS
def test_a_graph_keeps_its_sizes_dynamic(operators, bits):
    """The length of a sequence is m, n and k of attention: none of them becomes a constant."""
    call, clips = op(operators, bits), [torch.tensor(c) for c in CLIPS[bits]]
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def attention(q, k, v):
        scores = call(q, k, *clips).softmax(-1)
        return call(scores, v.mT.contiguous(), *clips)

    with torch.no_grad():
        for length in (7, 11, 13):
            q, k, v = torch.randn(3, 2, 4, length, 16, generator=torch.Generator().manual_seed(length))
            eager = call(call(q, k, *clips).softmax(-1), v.mT.contiguous(), *clips)
            assert torch.equal(attention(q, k, v), eager)
    assert counter.frame_count == 1
