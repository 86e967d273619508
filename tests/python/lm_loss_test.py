"""The losses of language models against torch's own, and the largest logits they make."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import bie
from bie.errors import ShapeError
from bie.lm.loss import distilled_loss, next_token_loss, summed_cross_entropy

VOCABULARY, WIDTH = 37, 12


def problem(labels=None, dtype=torch.float32, bias=False):
    """hidden [3, 5, WIDTH], a head, labels [3, 5] of which 11 count."""
    drawn = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 5, WIDTH, generator=drawn).to(dtype).requires_grad_()
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias).to(dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=drawn))
    if labels is None:
        labels = torch.randint(0, VOCABULARY, (3, 5), generator=drawn)
        labels.view(-1)[[0, 4, 5, 14]] = -100
    return hidden, head, labels


class Watched(nn.Module):
    """A head that records the shapes of its logits."""

    def __init__(self, head):
        super().__init__()
        self.head, self.shapes = head, []

    def forward(self, x):
        logits = self.head(x)
        self.shapes.append(tuple(logits.shape))
        return logits


def gradients(loss, hidden, head):
    return torch.autograd.grad(loss, [hidden, *head.parameters()])


def in_float64(hidden, head, labels):
    hidden = hidden.detach().double().requires_grad_()
    head = nn.Linear(WIDTH, VOCABULARY, bias=head.bias is not None).double().requires_grad_()
    head.load_state_dict(problem(bias=head.bias is not None)[1].state_dict())
    return hidden, head, labels


def close(found, expected, tolerance=1e-5):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_the_loss_is_that_of_torch_in_pieces(rows, bias):
    hidden, head, labels = problem(bias=bias)
    watched = Watched(head)
    loss, count = next_token_loss(hidden, watched, labels, most_logits=rows * VOCABULARY + 3)
    assert count == 11 and loss.dtype == torch.float32 and loss.dim() == 0
    twin, own, _ = in_float64(hidden, head, labels)
    expected = functional.cross_entropy(own(twin).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    close([loss], [expected])
    close(gradients(loss, hidden, head), gradients(expected, twin, own))
    made = [shape[0] for shape in watched.shapes if shape != (1, VOCABULARY)] or [1]
    assert max(made) == min(rows, 11), "the logits of all tokens are never there"
    assert all(shape[1:] == (VOCABULARY,) for shape in watched.shapes)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_fixed_shapes_change_nothing_but_what_goes_through_the_head(rows):
    hidden, head, labels = problem()
    watched, targets = Watched(head), []

    def entropy(logits, some):
        targets.append(len(some))
        return summed_cross_entropy(logits, some)

    options = {"most_logits": rows * VOCABULARY, "cross_entropy": entropy, "fixed_shapes": True}
    loss, count = next_token_loss(hidden, watched, labels, **options)
    assert isinstance(count, torch.Tensor) and count.item() == 11 and sum(targets) == 15
    wanted, _ = next_token_loss(hidden, head, labels)
    close([loss], [wanted])
    close(gradients(loss, hidden, head), gradients(wanted, hidden, head))


def test_only_rows_that_count_go_through_the_head():
    hidden, head, labels = problem()
    with torch.no_grad():
        hidden.view(-1, WIDTH)[labels.view(-1) == -100] = torch.nan
    loss, _ = next_token_loss(hidden, head, labels)
    assert loss.isfinite()
    found = gradients(loss, hidden, head)
    assert all(grad.isfinite().all() for grad in found)
    assert not found[0].view(-1, WIDTH)[labels.view(-1) == -100].any()


@pytest.mark.parametrize("distilled", [False, True])
def test_no_label_counts(distilled):
    hidden, head, labels = problem(torch.full((3, 5), -100))
    best = (torch.randn(3, 5, 4), torch.zeros(3, 5, 4, dtype=torch.long))
    loss, count = (
        distilled_loss(hidden, head, labels, *best, weight=0.5) if distilled else next_token_loss(hidden, head, labels)
    )
    assert loss.item() == 0 and count == 0
    assert not any(grad.any() for grad in gradients(loss, hidden, head))


def test_one_piece_is_there_at_once():
    """Even a budget below one row is kept to one row, and backward makes each piece once more."""
    hidden, head, labels = problem()
    watched = Watched(head)
    loss, _ = next_token_loss(hidden, watched, labels, most_logits=1)
    loss.backward()
    probes = 1  # a function does not say how many logits it gives
    assert watched.shapes == [(1, VOCABULARY)] * (2 * 11 + probes)


def test_nothing_is_recorded_without_gradients():
    hidden, head, labels = problem()
    with torch.no_grad():
        loss, _ = next_token_loss(hidden, head, labels, most_logits=VOCABULARY)
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(next_token_loss(hidden, head, labels)[0].item())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_of_16_bits_is_of_float32(dtype):
    hidden, head, labels = problem(dtype=dtype)
    loss, _ = next_token_loss(hidden, head, labels)
    expected = functional.cross_entropy(head(hidden).flatten(0, 1).float(), labels.flatten(), reduction="sum")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("distilled", [False, True])
def test_autocast(distilled):
    hidden, head, labels = problem()
    best = head(hidden).detach().topk(4)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = (
            distilled_loss(hidden, head, labels, *best, weight=0.5, most_logits=2 * VOCABULARY)
            if distilled
            else next_token_loss(hidden, head, labels, most_logits=2 * VOCABULARY)
        )
    plain, _ = distilled_loss(hidden, head, labels, *best, weight=0.5 if distilled else 0.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, plain, rtol=0.02, atol=0)
    for found, expected in zip(gradients(loss, hidden, head), gradients(plain, hidden, head), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)


def test_heads_that_share_a_coded_table():
    drawn = torch.Generator().manual_seed(1)
    table = bie.nn.WeightOnlyEmbedding(VOCABULARY, WIDTH, bits=4, group_size=4)
    table.set_weight_data(torch.randn(VOCABULARY, WIDTH, generator=drawn))
    head, (hidden, _, labels) = table.head(), problem()
    found = []
    for most_logits in (VOCABULARY, 3 * VOCABULARY, 1 << 20):
        hidden.grad = table.qweight.grad = None
        loss, _ = next_token_loss(hidden, head, labels, most_logits=most_logits)
        loss.backward()
        found.append([loss.detach(), hidden.grad, table.qweight.grad])
    hidden.grad = table.qweight.grad = None
    expected = functional.cross_entropy(head(hidden).flatten(0, 1), labels.flatten(), reduction="sum")
    expected.backward()
    for one in found:
        close(one, [expected.detach(), hidden.grad, table.qweight.grad])


def plain_distilled(logits, labels, values, ids, weight, temperature):
    """The formula, a token at a time."""
    total = logits.new_zeros(())
    for z, label, v, t in zip(logits, labels, values, ids, strict=True):
        if label == -100:
            continue
        p = (v / temperature).exp() / (v / temperature).exp().sum()
        q = (z[t] / temperature).exp() / (z / temperature).exp().sum()
        divergence = (p * (p.log() - q.log()))[p > 0].sum()
        own = -(z[label].exp() / z.exp().sum()).log()
        total = total + (1 - weight) * own + weight * temperature**2 * divergence
    return total


@settings(max_examples=25, deadline=None)
@given(
    weight=st.sampled_from([0.0, 0.3, 1.0]),
    temperature=st.sampled_from([0.5, 1.0, 3.0]),
    best=st.integers(1, VOCABULARY),
    rows=st.sampled_from([1, 7, 1000]),
    seed=st.integers(0, 1000),
)
def test_the_distilled_loss_is_its_formula(weight, temperature, best, rows, seed):
    hidden, head, labels = problem()
    drawn = torch.Generator().manual_seed(seed)
    values, ids = torch.randn(3, 5, VOCABULARY, generator=drawn).topk(best)
    watched = Watched(head)
    options = {"weight": weight, "temperature": temperature}
    loss, count = distilled_loss(hidden, watched, labels, values, ids, **options, most_logits=rows * VOCABULARY)
    twin, own, _ = in_float64(hidden, head, labels)
    flat = values.flatten(0, 1).double(), ids.flatten(0, 1)
    expected = plain_distilled(own(twin).flatten(0, 1), labels.flatten(), *flat, **options)
    assert count == 11 and loss.dtype == torch.float32
    close([loss], [expected], 2e-5)
    close(gradients(loss, hidden, head), gradients(expected, twin, own), 2e-5)
    assert max(shape[0] for shape in watched.shapes) <= max(1, min(rows, 11))


def test_a_teacher_with_fewer_tokens_than_places():
    hidden, head, labels = problem()
    values, ids = torch.randn(3, 5, 4).topk(4)
    values.requires_grad_()
    with torch.no_grad():
        values[..., 2:] = -torch.inf
    options = {"weight": 0.7, "temperature": 2.0}
    loss, _ = distilled_loss(hidden, head, labels, values, ids, **options)
    twin, own, _ = in_float64(hidden, head, labels)
    flat = values.detach().flatten(0, 1).double(), ids.flatten(0, 1)
    expected = plain_distilled(own(twin).flatten(0, 1), labels.flatten(), *flat, **options)
    close([loss], [expected])
    loss.backward()
    assert hidden.grad.isfinite().all() and values.grad is None


def test_gradients_of_float64():
    hidden, head, labels = problem(dtype=torch.float64)
    best = head(hidden).detach().topk(3)

    def loss(hidden, weight):
        def function(x):
            return functional.linear(x, weight)

        return distilled_loss(hidden, function, labels, *best, weight=0.4, temperature=2.0, most_logits=200)[0]

    assert torch.autograd.gradcheck(loss, (hidden, head.weight))


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"labels": torch.zeros(3, 4, dtype=torch.long)}, ShapeError, r"labels: expected \[3, 5\], got \[3, 4\]"),
        ({"most_logits": 0}, ValueError, "most_logits: expected 1 or more, got 0"),
        ({"weight": 1.5}, ValueError, r"expected a number in \[0, 1\] and a positive one, got 1.5 and 1.0"),
        ({"temperature": 0.0}, ValueError, r"expected a number in \[0, 1\] and a positive one, got 0.5 and 0.0"),
        (
            {"teacher_ids": torch.zeros(3, 5, 3, dtype=torch.long)},
            ShapeError,
            r"expected \[3, 5, 'K'\], got \[3, 5, 4\]",
        ),
        ({"teacher_values": torch.zeros(2, 5, 4)}, ShapeError, r"expected \[3, 5, 'K'\], got \[2, 5, 4\] and"),
    ],
)
def test_arguments_that_are_refused(changes, error, sentence):
    hidden, head, labels = problem()
    best = {"teacher_values": torch.zeros(3, 5, 4), "teacher_ids": torch.zeros(3, 5, 4, dtype=torch.long)}
    given = {"hidden": hidden, "head": head, "labels": labels, **best, "weight": 0.5} | changes
    with pytest.raises(error, match=f"distilled_loss: .*{sentence}"):
        distilled_loss(**given)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda():
    hidden, head, labels = problem()
    best = head(hidden).detach().topk(4)
    found = []
    for device in ("cpu", "cuda"):
        x, own = hidden.detach().to(device).requires_grad_(), nn.Linear(WIDTH, VOCABULARY, bias=False).to(device)
        own.load_state_dict(head.state_dict())
        moved = [tensor.to(device) for tensor in (labels, *best)]
        loss, _ = distilled_loss(x, own, *moved, weight=0.5, most_logits=VOCABULARY * 2)
        found.append([value.cpu() for value in (loss, *gradients(loss, x, own))])
    close(*found)
