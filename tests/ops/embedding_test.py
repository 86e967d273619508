"""Embeddings of low-bit rows: lookups, gradients of the rows that were used, DiodeMix's step on them, refusals."""

import re

import pytest
import torch

N, D = 11, 21


def sign_bits(weight: torch.Tensor, dim: int) -> torch.Tensor:
    """+-1 of packed signs, a bit at a time."""
    i = torch.arange(dim)
    return ((weight[:, i // 8].long() >> (i % 8)) & 1) * 2.0 - 1


@pytest.fixture
def table():
    g = torch.Generator().manual_seed(0)
    weight = torch.randint(0, 256, (N, (D + 7) // 8), generator=g).byte()
    return weight, torch.rand(N, 1, generator=g) + 0.1


INDICES = [
    torch.tensor(3),
    torch.tensor([], dtype=torch.int64),
    torch.tensor([[0, 10, 3], [3, 3, 7]], dtype=torch.int32),
    torch.randint(0, N, (2, 3, 4)),
]


@pytest.mark.parametrize("padding", [None, 3, -1])
def test_binary_lookup(operators, table, padding):
    weight, scale = table
    for indices in INDICES:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            y = operators.binary_embedding(indices, weight, scale, embedding_dim=D, padding_idx=padding, dtype=dtype)
            wanted = (sign_bits(weight, D) * scale)[indices.long()]
            if padding is not None:
                wanted[indices == padding % N] = 0
            assert y.dtype == dtype and torch.equal(y, wanted.to(dtype))


@pytest.mark.parametrize("padding", [None, 3, -8])
def test_binary_gradient_is_that_of_the_rows_used(operators, table, padding):
    weight, scale = table
    indices = torch.tensor([[0, 10, 3], [3, 3, 7]])
    g = torch.randn(2, 3, D)
    anchor = torch.zeros(1).expand(N, D).requires_grad_()

    def forward():
        return operators.binary_embedding(indices, weight, scale, embedding_dim=D, padding_idx=padding, anchor=anchor)

    forward().backward(g)
    assert anchor.grad.is_sparse
    grad = anchor.grad.coalesce()
    used = [0, 3, 7, 10] if padding is None else [0, 7, 10]
    assert grad.indices()[0].tolist() == used
    wanted = torch.zeros(N, D, dtype=torch.float64)
    wanted.index_add_(0, indices.flatten(), (g * scale[indices]).double().view(-1, D))
    if padding is not None:
        wanted[3] = 0
    assert torch.allclose(grad.to_dense().double(), wanted, atol=1e-6)
    forward().backward(g)
    assert torch.allclose(anchor.grad.coalesce().to_dense().double(), 2 * wanted, atol=1e-6)
    (again,) = torch.autograd.grad(forward(), anchor, g)
    assert torch.equal(again.to_dense(), grad.to_dense())
    with torch.no_grad():
        assert not forward().requires_grad


def test_a_table_of_a_million_rows_has_no_dense_gradient(operators):
    rows, dim = 1_000_000, 64
    weight = torch.zeros(rows, dim // 8, dtype=torch.uint8)
    anchor = torch.zeros(1).expand(rows, dim).requires_grad_()
    indices = torch.randint(0, rows, (4, 16))
    y = operators.binary_embedding(indices, weight, torch.ones(rows, 1), embedding_dim=dim, anchor=anchor)
    y.sum().backward()
    assert anchor.grad._values().shape == (indices.unique().numel(), dim)


def test_bag_is_the_majority(operators, table):
    packed, _ = table
    signs = sign_bits(packed, D)
    for weight, options in [(signs > 0, {}), (packed, {"embedding_dim": D})]:
        for padding in (None, 2):
            indices = torch.tensor([[0, 1, 2], [2, 2, 5], [2, 2, 2], [9, 10, 10]])
            y = operators.binary_embedding_bag(indices, weight, padding_idx=padding, **options)
            for bag, found in zip(indices.tolist(), y, strict=True):
                real = [i for i in bag if i != padding]
                ones = (signs[real] > 0).sum(0) if real else torch.zeros(D)
                assert torch.equal(found, torch.where(ones >= (len(real) + 1) // 2, 1.0, -1.0))
    assert y.dtype == torch.float32


def test_bag_gradient_goes_to_its_rows(operators, table):
    signs = sign_bits(table[0], D) > 0
    indices, g = torch.tensor([[0, 1, 2], [2, 2, 5]]), torch.randn(2, D)
    anchor = torch.zeros(1).expand(N, D).requires_grad_()
    operators.binary_embedding_bag(indices, signs, padding_idx=1, anchor=anchor).backward(g)
    grad = anchor.grad.coalesce()
    assert grad.indices()[0].tolist() == [0, 2, 5]
    assert torch.allclose(grad.values(), torch.stack([g[0], g[0] + 2 * g[1], g[1]]), atol=1e-6)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [-1, 8])
def test_rows_of_codes(operators, bits, group):
    g = torch.Generator().manual_seed(bits)
    codes = torch.randint(0, 2**bits, (N, D), generator=g).int()
    words = operators.pack_words(codes, bits, 1)
    size = D if group == -1 else group
    group_of = torch.arange(D) // size
    scales = torch.rand(N, int(group_of[-1]) + 1, generator=g).half()
    for zeros in (None, torch.rand(scales.shape, generator=g).half()):
        for indices in INDICES:
            y = operators.weight_only_embedding(
                indices, words, scales, zeros, bits=bits, embedding_dim=D, group_size=group, padding_idx=-2
            )
            s = scales.double()[:, group_of]
            w = s * (codes - 2 ** (bits - 1)) if zeros is None else s * codes - zeros.double()[:, group_of]
            wanted = w[indices.long()]  # the padding row too, as of torch's embedding
            assert y.dtype == torch.float16
            assert torch.allclose(y.double(), wanted, rtol=2**-10, atol=2**-10 * 4)
    anchor = torch.zeros(1).expand(N, D).requires_grad_()
    grad = torch.randn(3, D)
    y = operators.weight_only_embedding(
        torch.tensor([4, 1, 4]),
        words,
        scales,
        bits=bits,
        embedding_dim=D,
        group_size=group,
        anchor=anchor,
        dtype=torch.float32,
    )
    y.backward(grad)
    assert torch.allclose(anchor.grad.to_dense()[[1, 4]], torch.stack([grad[1], grad[0] + grad[2]]), atol=1e-6)


STEP = {"embedding_dim": D, "step": 1, "lr": 0.1, "beta2": 0.75}


@pytest.mark.parametrize("form", ["packed", "bool"])
@pytest.mark.parametrize("votes_form", ["float", "packed"])
def test_step_moves_the_rows_that_are_named(operators, table, form, votes_form):
    packed, _ = table
    weight = packed.clone() if form == "packed" else sign_bits(packed, D) > 0
    before = weight.clone()
    moment = (torch.rand(N, D) - 0.5) * 0.1
    votes, rows = torch.randn(3, D), torch.tensor([7, 0, 4])
    votes[1, 2] = 0
    s = moment.clone()
    given = votes if votes_form == "float" else operators.pack_signs(votes)
    version = weight._version
    operators.diode_mix_embedding_(weight, rows, given, s, **STEP)
    assert weight._version > version
    wanted = moment.double()
    wanted[rows] = wanted[rows].lerp(torch.where(votes >= 0, 0.1, -0.1).double(), 0.25)
    assert torch.allclose(s.double(), wanted, atol=1e-7)
    signs = sign_bits(packed, D)
    signs[rows] = torch.where(s[rows] > 0, -1.0, 1.0)
    found = sign_bits(weight, D) if form == "packed" else weight * 2.0 - 1
    assert torch.equal(found, signs)
    if form == "packed":  # pad bits never flip
        assert torch.equal(weight[:, -1] >> (D % 8), before[:, -1] >> (D % 8))


def test_a_moment_of_16_bits_moves_by_less_than_its_spacing(operators):
    weight, rows = torch.zeros(1, 1 << 10, dtype=torch.uint8), torch.tensor([0])
    s = torch.full((1, 1 << 13), 1.0, dtype=torch.bfloat16)
    votes = torch.ones(1, 1 << 13)
    options = {"embedding_dim": 1 << 13, "lr": 2.0, "beta2": 1 - 2.0**-12}
    for step in range(1, 65):
        operators.diode_mix_embedding_(weight, rows, votes, s, step=step, **options)
    assert 1.008 < float(s.float().mean()) < 1.023  # 1 + 64 / 4096, to bfloat16 a quarter of the spacing a step at most


CODE_STEP = {"lr": 0.05, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1}


def coded_table(operators, bits, group, dtype=torch.float32):
    """Words, scales, zeros, which group an element is in, and a float64 reading of them."""
    g = torch.Generator().manual_seed(bits)
    codes = torch.randint(0, 2**bits, (N, D), generator=g).int()
    group_of = torch.arange(D) // (D if group == -1 else group)
    scales = (torch.rand(N, int(group_of[-1]) + 1, generator=g) * 0.1 + 0.05).to(dtype)
    zeros = torch.rand(scales.shape, generator=g).to(dtype)
    words = operators.pack_words(codes, bits, 1)

    def opened():
        q = operators.unpack_words(words, bits, D, 1).double()
        return q * scales.double()[:, group_of] - zeros.double()[:, group_of]

    return words, scales, zeros, group_of, opened


@pytest.mark.parametrize("moves_zeros", [False, True])
@pytest.mark.parametrize("bits, group", [(1, 8), (2, -1), (4, 8), (8, 8)])
def test_step_of_codes_moves_the_rows_that_are_named(operators, bits, group, moves_zeros):
    words, scales, zeros, group_of, opened = coded_table(operators, bits, group)
    before, old_words, old_zeros, rows = opened(), words.clone(), zeros.clone(), torch.tensor([7, 0, 4])
    grad, m = torch.randn(3, D), [torch.rand(N, D), torch.rand(N, D)]
    old = [t.clone() for t in m]
    version = words._version
    options = {"bits": bits, "group_size": group, "moves_zeros": moves_zeros, "step": 5, **CODE_STEP}
    operators.diode_mix_weight_only_rows_(words, scales, zeros, rows, grad, *m, **options)
    assert words._version > version
    others = torch.tensor([i for i in range(N) if i not in rows.tolist()])
    for now, was in ((words, old_words), (zeros, old_zeros), (m[0], old[0]), (m[1], old[1])):
        assert torch.equal(now[others], was[others])
    first = 0.9 * old[0][rows].double() + 0.1 * grad.double()
    s = 0.99 * old[1][rows].double() + 0.01 * grad.double() ** 2
    assert torch.allclose(m[0][rows].double(), first, atol=1e-6) and torch.allclose(m[1][rows].double(), s, atol=1e-6)
    rate = 0.05 * (1 - 0.99**5) ** 0.5 / (1 - 0.9**5)
    u = first / (s.sqrt() + 1e-6)
    if moves_zeros:
        count = torch.bincount(group_of)
        mean = torch.zeros(3, len(count), dtype=torch.float64).index_add_(1, group_of, u) / count
        assert torch.allclose(zeros[rows].double(), old_zeros[rows].double() + rate * mean, atol=1e-5)
    else:
        assert torch.equal(zeros, old_zeros)
    wanted = (before[rows] - rate * u) * (1 - 0.05 * 0.1)
    step, low = scales.double()[rows][:, group_of], -zeros.double()[rows][:, group_of]
    wanted = wanted.maximum(low).minimum(low + step * (2**bits - 1))
    assert ((opened()[rows] - wanted).abs() / step).max() <= 1 + 1e-4  # one of the two codes beside it


def test_step_of_codes_is_the_same_for_rows_in_sixteen_bits(operators):
    words, scales, zeros, _, _ = coded_table(operators, 4, 8, torch.bfloat16)
    moments = torch.zeros(2, N, D, dtype=torch.bfloat16)
    options = {"bits": 4, "group_size": 8, "moves_zeros": True, "step": 1, **CODE_STEP}
    grad = torch.randn(N, D)
    operators.diode_mix_weight_only_rows_(words, scales, zeros, torch.arange(N), grad, *moments, **options)
    assert (moments[0].float() - 0.1 * grad).abs().max() < 0.01 and bool(moments[1].any())


def test_refusals_of_a_step_of_codes(operators):
    words, scales, zeros, _, _ = coded_table(operators, 4, 8)
    rows, grad, first, s = torch.tensor([7, 0]), torch.randn(2, D), torch.zeros(N, D), torch.zeros(N, D)
    good = {"words": words, "scales": scales, "zeros": zeros, "rows": rows, "grad": grad, "l": first, "s": s}
    for name, value, sentence in [
        ("rows", torch.tensor([7, 7]), "a row is named twice"),
        ("rows", torch.tensor([7, N]), f"an index is {N}"),
        ("rows", rows.int(), "rows: expected int64, got Int"),
        ("grad", grad[:1], r"grad: expected \[2, dim\], got \[1, 21\]"),
        ("l", first[:, 1:], r"exp_avg_l: expected \[11, 21\], got \[11, 20\]"),
        ("s", s.half(), "exp_avg_s: expected float32 or bfloat16, got Half"),
        ("scales", scales[:3], r"scales: expected \[11, groups\] and zeros like them, got \[3, 3\]"),
        ("zeros", zeros.half(), "zeros that move: expected Float, as the scales are, got Half"),
    ]:
        with pytest.raises((ValueError, TypeError), match=sentence):
            options = {"bits": 4, "group_size": 8, "moves_zeros": True, "step": 1, **CODE_STEP}
            operators.diode_mix_weight_only_rows_(*(good | {name: value}).values(), **options)
    assert not first.any() and not s.any()


def refusals(o, weight, scale):
    index = torch.tensor([0, 1])
    words, scales = torch.zeros(N, 3, dtype=torch.int32), torch.ones(N, 1)
    signs, votes, s = sign_bits(weight, D) > 0, torch.zeros(2, D), torch.zeros(N, D)
    binary, bag, coded, step = (
        o.binary_embedding,
        o.binary_embedding_bag,
        o.weight_only_embedding,
        o.diode_mix_embedding_,
    )
    dim, four = {"embedding_dim": D}, {"embedding_dim": D, "bits": 4}
    anchor = torch.zeros(D, N)
    return [
        (binary, (index + N, weight, scale), dim, ValueError, f"an index is {N + 1}, the table has {N} rows"),
        (binary, (index - 1, weight, scale), dim, ValueError, "an index is -1"),
        (binary, (index.float(), weight, scale), dim, TypeError, "indices: expected int32 or int64, got Float"),
        (binary, (index, weight, scale), {"embedding_dim": 25}, ValueError, "embedding_dim = 25 wants"),
        (binary, (index, signs, scale), dim, TypeError, "the weight: expected uint8 of packed signs, got"),
        (binary, (index, weight.int(), scale), dim, TypeError, "the weight: expected uint8 or bool, got Int"),
        (binary, (index, weight, scale[1:]), dim, ValueError, "scale: expected one number for each row of the weight"),
        (binary, (index, weight, scale), dim | {"padding_idx": N}, ValueError, f"padding_idx is {N}"),
        (binary, (index, weight, scale), dim | {"padding_idx": -N - 1}, ValueError, f"padding_idx is {-N - 1}"),
        (
            binary,
            (index, weight, scale),
            dim | {"dtype": torch.int8},
            TypeError,
            "dtype: expected float32, bfloat16 or float16, got Char",
        ),
        (binary, (index, weight, scale), dim | {"anchor": anchor}, ValueError, r"anchor: expected .*, got \[21, 11\]"),
        (bag, (index, signs), {}, ValueError, r"indices: expected \[bags, rows\], got"),
        (bag, (index.view(1, 2) + N, signs), {}, ValueError, "an index is"),
        (coded, (index + N, words, scales), four, ValueError, "an index is"),
        (coded, (index, words[:, :2], scales), four, ValueError, "of 4 bits wants"),
        (coded, (index, words, scales), four | {"bits": 9}, ValueError, "bits: expected 1 ... 8, got 9"),
        (
            coded,
            (index, words, scales),
            four | {"group_size": 8},
            ValueError,
            r"scales: expected \[11, 3\], got \[11, 1\]",
        ),
        (coded, (index, words, scales, scales[1:]), four, ValueError, "zeros: expected "),
        (
            coded,
            (index, words, scales),
            four | {"group_size": 0},
            ValueError,
            "group_size: expected -1 or a positive number, got 0",
        ),
        (step, (weight, index + N, votes, s), STEP, ValueError, "an index is"),
        (step, (weight, index * 0, votes, s), STEP, ValueError, "a row is named twice"),
        (step, (weight, index, votes[:1], s), STEP, ValueError, "votes: expected "),
        (step, (weight, index, votes, s[:, 1:]), STEP, ValueError, "exp_avg_s: expected "),
        (step, (weight, index, votes, s.half()), STEP, TypeError, "exp_avg_s: expected float32 or bfloat16, got Half"),
        (step, (weight, index.int(), votes, s), STEP, TypeError, "rows: expected int64, got Int"),
    ]


def test_refusals(operators, table):
    before = table[0].clone()
    for op, arguments, keywords, error, text in refusals(operators, *table):
        try:
            op(*arguments, **keywords)
        except error as found:
            assert re.search(text, str(found)), (text, str(found))
        else:
            pytest.fail(f"not refused: {text}")
    assert torch.equal(table[0], before)


def test_a_traced_graph_is_refused(operators, table):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match="compiled graph"):
        weight, scale = mode.from_tensor(table[0]), mode.from_tensor(table[1])
        anchor = torch.zeros(N, D, requires_grad=True)
        operators.binary_embedding(torch.tensor([1]), weight, scale, embedding_dim=D, anchor=anchor)
