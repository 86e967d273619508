"""The modules of a model by their places, and which of them another layer may take the place of."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

# These read the weights of their children themselves, past the children's forward.
_READ_PAST_FORWARD = (nn.MultiheadAttention,)


def join(parent: str, name: str) -> str:
    """The full name of a child."""
    return f"{parent}.{name}" if parent else name


def children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """All named children, one that has two names under both."""
    return ((name, child) for name, child in module._modules.items() if child is not None)


def walk(
    module: nn.Module, name: str = "", parent: nn.Module | None = None, leaf: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, nn.Module | None, str, nn.Module]]:
    """(name, parent, name in the parent, module), the root first; a shared module once for each of its places."""
    seen = set() if seen is None else seen
    yield name, parent, leaf, module
    if id(module) in seen:
        return
    seen.add(id(module))
    for below, child in children(module):
        yield from walk(child, join(name, below), module, below, seen)


def shared_parameters(model: nn.Module) -> dict[int, list[str]]:
    """Names of each parameter that different modules hold."""
    names: dict[int, list[str]] = {}
    for path, module in model.named_modules():
        for leaf, parameter in module._parameters.items():
            if parameter is not None:
                names.setdefault(id(parameter), []).append(join(path, leaf))
    return {key: found for key, found in names.items() if len(found) > 1}


def shape_of(weight: Tensor) -> tuple[int, ...]:
    """Empty for a weight of a lazy layer, which has none before its first call."""
    return () if is_lazy(weight) else tuple(weight.shape)


def has_hooks(module: nn.Module) -> bool:
    """Whether something runs before or after its forward or backward pass."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


_GEMMAS = tuple(f"{name}TextScaledWordEmbedding" for name in ("Gemma", "Gemma2", "Gemma3"))


def factor_of(embedding: nn.Module) -> float | None:
    """The number that an embedding multiplies its rows by: 1 for torch's, the scale of Gemma's, None for others."""
    if type(embedding) is nn.Embedding:
        return 1.0
    theirs = isinstance(embedding, nn.Embedding) and type(embedding).__module__.startswith("transformers.")
    return getattr(embedding, "scalar_embed_scale", None) if theirs and type(embedding).__name__ in _GEMMAS else None


def plain_class(module: nn.Module) -> type:
    """The class of torch whose forward a module computes, but for a factor that ``factor_of`` tells."""
    return type(module) if factor_of(module) is None else nn.Embedding


def reason_to_skip(
    module: nn.Module, parent: nn.Module | None, targets: Collection[type], shared: dict[int, list[str]]
) -> str:
    """Why a layer cannot be swapped for another, or ""."""
    if any(is_lazy(parameter) for parameter in module.parameters(recurse=False)):
        return "it is lazy: its sizes come with the first call, call the model once before"
    if plain_class(module) not in targets:
        return f"a {type(module).__name__} may compute something else than its base class"
    if isinstance(parent, _READ_PAST_FORWARD):
        return f"its parent {type(parent).__name__} reads the weight itself"
    if has_hooks(module):
        return "it has hooks"
    for parameter in module.parameters():
        if parameter is not None and id(parameter) in shared:
            return f"its parameter is shared: {', '.join(shared[id(parameter)])}"
    return ""


def leave_fast_paths(model: nn.Module) -> None:
    """Keeps torch's encoders off their fused kernel, which reads float weights past forward, where layers are ours.

    torch decides by these attributes: a layer at each call, a stack when it is made.
    """
    for layer in model.modules():
        if isinstance(layer, nn.TransformerEncoderLayer) and not _is_plain(layer):
            layer.activation_relu_or_gelu = 0
    for stack in model.modules():
        if isinstance(stack, nn.TransformerEncoder) and not all(map(_is_plain, stack.layers)):
            stack.use_nested_tensor = False


def _is_plain(layer: nn.Module) -> bool:
    attention, inner = getattr(layer, "self_attn", None), [getattr(layer, f"linear{i}", None) for i in (1, 2)]
    return isinstance(attention, nn.MultiheadAttention) and all(isinstance(linear, nn.Linear) for linear in inner)
