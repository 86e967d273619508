"""The rules of a weight of packed codes: the scales it is rounded by, tables of mixed rows, entries of files."""

import pytest
import torch

NAN = float("nan")


def weight(n, k, seed=0):
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 0.3 + 0.05


def groups_of(k, size):
    size = k if size == -1 else size
    return [slice(start, min(start + size, k)) for start in range(0, k, size)]


@pytest.mark.parametrize("size", [-1, 8, 7, 100])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_ranges(operators, bits, size):
    w = weight(5, 30)
    scales, zeros = operators.weight_only_ranges(w, bits, size)
    groups = groups_of(30, size)
    assert scales.shape == zeros.shape == (len(groups), 5) and scales.dtype == zeros.dtype == torch.float32
    for g, part in enumerate(groups):
        values = w[:, part].double()
        if bits > 1:
            least, most = values.amin(1), values.amax(1)
            wanted_scales, wanted_zeros = (most - least) / (2**bits - 1), -least
        else:
            mean = values.mean(1)
            distance = (values - mean[:, None]).abs().mean(1)
            wanted_scales, wanted_zeros = 2 * distance, distance - mean
        torch.testing.assert_close(scales[g].double(), wanted_scales, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(zeros[g].double(), wanted_zeros, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_whole_zeros(operators, bits):
    w = weight(9, 32)
    w[3, :16] = 0.25  # a group of one value: its scale is 0
    w[4] += 5  # the zero that it wants is out of range
    scales, zeros = operators.weight_only_ranges(w, bits, 16)
    same, packed = operators.weight_only_ranges(w, bits, 16, asym=True)
    assert torch.equal(same, scales) and packed.dtype == torch.int32 and packed.shape == (2, -(-9 * bits // 32))
    wanted = torch.where(scales == 0, 1.0, zeros / scales).round().clamp(1, 2**bits)
    assert torch.equal(operators.unpack_words(packed, bits, 9, 1) + 1, wanted.int())


def test_ranges_in_sixteen_bits(operators):
    w = weight(5, 32)
    scales, zeros = operators.weight_only_ranges(w, 4, 16)
    for dtype in (torch.float16, torch.bfloat16):
        found = operators.weight_only_ranges(w, 4, 16, dtype=dtype)
        assert torch.equal(found[0], scales.to(dtype)) and torch.equal(found[1], zeros.to(dtype))
    with pytest.raises(ValueError, match="a range of the weight is too large for float16"):
        operators.weight_only_ranges(w * 1e8, 4, 16, dtype=torch.float16)


def test_what_has_no_ranges(operators):
    ranges = operators.weight_only_ranges
    for bad in (torch.ones(3), torch.ones(3, 0), torch.ones(3, 4, dtype=torch.int32)):
        with pytest.raises(ValueError, match=r"weight_only_ranges: the weight: expected a matrix of floats, got \[3"):
            ranges(bad, 4, -1)
    with pytest.raises(ValueError, match="the weight holds NaN or infinity"):
        ranges(torch.full((2, 2), NAN), 4, -1)
    for group_size in (0, -2):
        with pytest.raises(ValueError, match=f"group_size: expected -1 or a positive number, got {group_size}"):
            ranges(torch.ones(2, 2), 4, group_size)
    for bits in (0, 9):
        with pytest.raises(ValueError, match=f"bits: expected 1 ... 8, got {bits}"):
            ranges(torch.ones(2, 2), bits, -1)


def table(*pairs):
    return torch.tensor(pairs, dtype=torch.int16).flatten()


def test_mixed_rows(operators):
    # 8 words of 8 bits are 32 rows, 5 of 5 bits are 32, 1 of 3 bits is 10 and a rest, 4 of 2 bits are 64.
    bit_rows, group = operators.mixed_rows(table((8, 0), (5, 8), (3, 13), (2, 14)), 18, "q")
    assert bit_rows == [8, 32, 5, 32, 3, 10, 2, 64]
    assert group.dtype == torch.int32
    assert torch.equal(group, torch.arange(4).repeat_interleave(torch.tensor([32, 32, 10, 64])).int())
    bit_rows, group = operators.mixed_rows(table((4, 0), (4, 2), (4, 2)), 4, "q")  # the second group has no rows
    assert bit_rows == [4, 16, 4, 16] and group.tolist() == [0] * 16 + [2] * 16
    for bad, words, sentence in [
        (table((7, 0)), 4, "^q: expected widths of 8, 6, 5, 4, 3 and 2 bits, falling, got 7"),
        (table((0, 0)), 4, "^q: expected widths of 8, 6, 5, 4, 3 and 2 bits, falling, got 0"),
        (table((2, 0), (4, 2)), 4, "^q: expected widths of 8, 6, 5, 4, 3 and 2 bits, falling, got 4"),
        (table((4, 0), (4, 3), (4, 2)), 4, "^q: group 1 begins at row 3 of the words, at 2 the next"),
        (table((4, 0)), -1, "^q: group 0"),
        (table((2, 0)), 2048, "^q: a group: expected at most 32767 rows, got 32768"),
        (table((4, 0))[:1], 4, r"^q: expected pairs of int16, got \[1\] of int16"),
        (table((4, 0)).int(), 4, r"^q: expected pairs of int16, got \[2\] of int32"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            operators.mixed_rows(bad, words, "q")


def test_entries(operators):
    groups, order = operators.check_groups_entry, operators.check_permutation_entry
    groups(torch.tensor([1, 0, 1], dtype=torch.int32), 3, 2, "g")
    groups(torch.empty(3, dtype=torch.int32, device="meta"), 3, 2, "g")
    for bad in ([0, 2, 1], [0, -1, 1]):
        with pytest.raises(ValueError, match=r"^g holds groups outside \[0, 1\]$"):
            groups(torch.tensor(bad, dtype=torch.int32), 3, 2, "g")
    with pytest.raises(ValueError, match=r"^g: expected \[3\] of int32, got \[3\] of int64$"):
        groups(torch.tensor([0, 1, 1]), 3, 2, "g")
    order(torch.tensor([2, 0, 1], dtype=torch.int16), 3, "o")
    order(torch.zeros(3, dtype=torch.int16), 3, "o")
    order(torch.arange(40000).int().to(torch.int16), 40000, "o")  # read as unsigned
    for bad in ([0, 1, 1], [1, 2, 3]):
        with pytest.raises(ValueError, match=r"^o is not a permutation of the rows$"):
            order(torch.tensor(bad, dtype=torch.int16), 3, "o")
