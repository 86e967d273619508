"""A language model whose linears train in codes, and its twins with float weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bie.lm.widths import Width, first_scales, gguf_type, places
from bie.nn.merging import opened
from bie.nn.mpq_linear import MPQLinear
from bie.nn.weight_only_embedding import TiedHead, WeightOnlyEmbedding

#: What a weight is while it trains: codes and what is kept beside them, a float weight that each pass rounds (latent),
#: or a float weight.
METHODS = ("codes", "codes+rest8", "codes+rest16", "latent", "float")
_RESTS = {"codes": False, "codes+rest8": torch.int8, "codes+rest16": torch.bfloat16}


class _Rounded(torch.autograd.Function):
    """W = s (q - z), q the code nearest to w / s + z; LSQ's gradients, that of s divided by sqrt(group * top)."""

    @staticmethod
    def forward(ctx, weight: Tensor, scales: Tensor, zero: float, levels: int, group: int) -> Tensor:
        wide = scales.repeat_interleave(group, 1)[:, : weight.size(1)]
        place = weight / wide + zero
        codes = place.round().clamp_(0, levels - 1)
        inside = (place >= -0.5) & (place <= levels - 0.5)
        ctx.save_for_backward(torch.where(inside, codes - place, codes - zero), inside)
        ctx.group, ctx.top = group, levels - 1
        return wide * (codes - zero)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        slope, inside = ctx.saved_tensors
        n, k = grad.shape
        groups = -(-k // ctx.group)
        of_scales = torch.zeros(n, groups * ctx.group, dtype=grad.dtype, device=grad.device)
        of_scales[:, :k] = grad * slope
        of_scales = of_scales.view(n, groups, ctx.group).sum(2) / (ctx.group * ctx.top) ** 0.5
        return grad * inside, of_scales, None, None, None


class LatentLinear(nn.Linear):
    """A linear with a float weight of which every pass multiplies the nearest codes, with scales that learn.

    The twin that training in codes is measured against: Esser et al. 2020, "Learned Step Size Quantization".
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, width: Width, group: int, scales: Tensor | None = None
    ) -> None:
        super().__init__(weight.size(1), weight.size(0), bias=bias is not None, device="meta")
        self.weight = nn.Parameter(weight.detach().float().clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().float().clone())
        scales = first_scales(self.weight, width, group) if scales is None else scales.float()
        self.scales = nn.Parameter(scales.contiguous())
        self.width, self.group = width, group

    def rounded(self) -> Tensor:
        """The weight [n, k] that the next pass multiplies with."""
        width = self.width
        return _Rounded.apply(self.weight, self.scales, float(width.zero), width.levels, self.group)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.rounded(), self.bias)


@torch.no_grad()
def coded_linear(
    weight: Tensor, bias: Tensor | None, width: Width, group: int, method: str, scales: Tensor | None = None
) -> MPQLinear:
    """A layer of codes that trains, from a float weight [n, k]; scales [n, groups], the best ones by default, are
    float16.
    """
    n, k = weight.shape
    rest = _RESTS[method]
    layer = MPQLinear(
        k,
        n,
        w_bit=width.bits,
        dtype=torch.float16,
        group_size=group,
        disable_bias=bias is None,
        train_bias=bias is not None,
        master=rest,
        levels=width.levels,
        device=weight.device,
    )
    scales = (first_scales(weight, width, group) if scales is None else scales).half()
    place = places(weight, scales, width, group)
    codes = place.round().clamp_(0, width.levels - 1)
    of_rows = scales.t().contiguous()
    layer.set_codes(codes.t().to(torch.int32).contiguous(), of_rows, (of_rows.float() * width.zero).half())
    if rest is torch.int8:
        layer.rest.copy_(((place - codes) * 256).round_().clamp_(-128, 127).t())
    elif rest is torch.bfloat16:
        layer.rest.copy_(weight.float().t() - opened(layer).t())
    if bias is not None:
        layer.bias.copy_(bias)
    return layer


@torch.no_grad()
def keep_codes_alone(model: nn.Module) -> None:
    """Leaves of each weight in the blocks its codes: latent ones are rounded, with scales in float16, rests go."""
    for _, parent, leaf, layer in list(block_linears(model)):
        if isinstance(layer, MPQLinear) and layer.master:
            layer.master = False
            del layer.rest
            layer._tell_weight()
        if isinstance(layer, LatentLinear):
            device = layer.weight.device
            floats, bias = layer.weight.cpu(), None if layer.bias is None else layer.bias.cpu()
            codes = coded_linear(floats, bias, layer.width, layer.group, "codes", layer.scales.cpu())
            setattr(parent, leaf, codes.to(device))
    _tell(model)


class ScaledEmbedding(nn.Embedding):
    """A table whose rows are multiplied by a factor, as Gemma's are."""

    factor = 1.0

    def forward(self, ids: Tensor) -> Tensor:
        rows = super().forward(ids)
        return rows if self.factor == 1.0 else rows * self.factor


@torch.no_grad()
def open_table(model: nn.Module) -> None:
    """Makes a table and an output layer of codes float32, in place; they are frozen until something trains them.

    trl's ``SFTTrainer`` multiplies by ``lm_head.weight``, which an output layer of codes does not have.
    ``make_trainable`` calls this too.

    Args:
        model: of transformers, with ``model.embed_tokens`` and ``lm_head``.

    Example::

        model = bie.hf.load("model.gguf")
        bie.lm.open_table(model)
        trl.SFTTrainer(model, train_dataset=texts, peft_config=peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
    """
    table, tied = model.model.embed_tokens, isinstance(model.lm_head, TiedHead)
    if isinstance(table, WeightOnlyEmbedding):
        factor, table.factor = table.factor, 1.0
        floats = ScaledEmbedding.from_pretrained(table(torch.arange(table.num_embeddings)).float())
        floats.factor = factor or 1.0
        model.model.embed_tokens = floats
        if tied:
            model.lm_head = nn.Linear(floats.embedding_dim, floats.num_embeddings, bias=False, device="meta")
            model.lm_head.weight = floats.weight
    if isinstance(model.lm_head, MPQLinear):
        model.lm_head = _float_linear(model.lm_head).requires_grad_(False)


def _float_linear(layer: nn.Module) -> nn.Linear:
    weight = opened(layer) if isinstance(layer, MPQLinear) else layer.weight
    bias = getattr(layer, "bias", None)
    floats = nn.Linear(weight.size(1), weight.size(0), bias=bias is not None, device="meta")
    floats.weight = nn.Parameter(weight.detach().float().contiguous())
    if bias is not None:
        floats.bias = nn.Parameter(bias.detach().float().clone())
    return floats


def block_linears(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Module]]:
    """(name, parent, leaf, layer) of the linears in a model's blocks."""
    for name, module in model.model.layers.named_modules():
        for leaf, child in module.named_children():
            if isinstance(child, nn.Linear | MPQLinear):
                yield f"{name}.{leaf}", module, leaf, child


def _scales_of_codes(layer: nn.Module, weight: Tensor, width: Width, group: int) -> Tensor | None:
    """The scales of a layer whose weight [n, k] is codes of this width already, so that these codes are kept."""
    if not isinstance(layer, MPQLinear) or (layer.w_bit, layer.group_size) != (width.bits, group):
        return None
    scales = layer.scales.detach().t().to(weight.device)
    place = weight / scales.float().repeat_interleave(group, 1)[:, : weight.size(1)] + width.zero
    codes = place.round()
    fits = (place - codes).abs().amax() < 2**-6 and codes.amin() >= 0 and codes.amax() < width.levels
    return scales if bool(fits) else None


def _trains_already(layer: nn.Module, method: str, width: Width) -> bool:
    """Whether a layer whose codes are kept has the rest that a method asks for, which is kept too."""
    return (
        bool(_RESTS.get(method))
        and isinstance(layer, MPQLinear)
        and (layer.levels, layer.train_bias) == (width.levels, not layer.disable_bias)
        and layer.master
        and layer.rest_dtype == _RESTS[method]
    )


def _tell(model: nn.Module) -> None:
    """Lets ``save_pretrained`` of a model of transformers write what its layers of codes are."""
    if not any(isinstance(layer, MPQLinear) for layer in model.modules()):
        return
    from bie.hf_checkpoints import tell

    tell(model)
    model.is_quantized = False  # as bie.hf.load leaves it, so that half() and float() are taken


def make_trainable(
    model: nn.Module,
    method: str,
    width: Width,
    group: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> list[str]:
    """Puts a model of transformers, of floats or of codes, into the form that it trains in; in place.

    The linears of its blocks become what ``method`` says, from the floats that they stand for; codes of the width and
    group asked for stay what they are, and so do rests of a checkpoint. Table, output layer and norms are floats that
    train.

    Args:
        device: where the model trains, and where codes are found; where it is if None.

    Returns:
        The types of GGUF that hold the linears, or none where one of them is in no type.

    Raises:
        ValueError: an unknown method, a group that is not positive, a model without blocks and an output layer, such as
            one of peft.
    """
    if method not in METHODS:
        raise ValueError(f"make_trainable: method: expected one of {', '.join(METHODS)}, got {method!r}")
    group = width.group if group is None else group
    if group < 1:
        raise ValueError(f"make_trainable: group: expected 1 or more, got {group}")
    if not (hasattr(getattr(model, "model", None), "layers") and hasattr(model, "lm_head")):
        raise ValueError(
            f"make_trainable: expected a model with blocks and an output layer, got a {type(model).__name__}; adapters "
            "of peft train beside codes that stay, and need no make_trainable"
        )
    open_table(model)
    types: set[str | None] = set()
    for _, parent, leaf, layer in list(block_linears(model)):
        floats = _float_linear(layer).to(device)
        types.add("F16" if method == "float" else gguf_type(width, floats.in_features, group))
        scales = _scales_of_codes(layer, floats.weight, width, group)
        if scales is not None and _trains_already(layer, method, width):
            continue
        if method == "latent":
            floats = LatentLinear(floats.weight, floats.bias, width, group, scales)
        elif method != "float":
            floats = coded_linear(floats.weight, floats.bias, width, group, method, scales)
        setattr(parent, leaf, floats)
    if device is not None:
        model.to(device)
    model.requires_grad_(True)
    _tell(model)
    model.train()
    return [] if None in types else sorted(str(kind) for kind in types)
