"""Models of our layers as ONNX files of standard operators; docs/deploy.md#onnx."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._output_files import check_folder_of, replacing
from bie._places import walk
from bie.checkpoint import pack
from bie.nn import (
    BinaryEmbedding,
    BinaryEmbeddingBag,
    BinaryMatMul,
    MBWQLinear,
    QuantLayer,
    WeightOnlyEmbedding,
    WeightOnlyLinear,
)
from bie.nn.conv1d import Conv1dLayer
from bie.nn.matmul import MatMulLayer
from bie.nn.state.conv_layer import ConvLayer
from bie.nn.weight_only_embedding import TiedHead

_QDQ = torch.ops.quantized_decomposed
_NARROW = "narrow_codes"  # the buffers of codes that fit into 4 bits


def _coded(x: Tensor, bits: int, step: float, scale: float) -> Tensor:
    """Codes of x by a step, as floats times a scale: QuantizeLinear and DequantizeLinear; signs at 1 bit."""
    if bits == 1:
        codes = torch.where(x >= 0, 1.0, -1.0).to(torch.int8)
    else:
        if bits == 4:  # QuantizeLinear saturates at 8 bits
            x = x.clamp(-8 * step, 7 * step)
        codes = _QDQ.quantize_per_tensor(x, step, 0, -128, 127, torch.int8)
    return _opened(codes, scale)


def _opened(codes: Tensor, scale: float) -> Tensor:
    return _QDQ.dequantize_per_tensor(codes, scale, 0, -128, 127, torch.int8)


def _number(scale: Tensor | None, name: str) -> float:
    value = 1.0 if scale is None else float(scale.detach())
    if value == 0:
        raise ValueError(f"export_onnx: {name} has no step size yet: the model was not trained or calibrated")
    return value


def _steps(layer: QuantLayer, name: str) -> tuple[float, float]:
    """The step of the quantiser and the factor of its codes."""
    scale = _number(layer.scale_a, name)
    return max(scale, getattr(layer, "_smallest_step", 0.0)), scale


class _Product(nn.Module):
    """A linear or convolution of ours in operators that ONNX has."""

    def __init__(self, layer: QuantLayer, name: str) -> None:
        super().__init__()
        self.bits, self.lines = layer._bits, isinstance(layer, Conv1dLayer)
        self.step, self.scale_a = _steps(layer, name)
        self.scale_w = _number(layer.scale_w, name)
        rows = layer._from_file(layer.qweight).detach()
        inputs = layer._weight_shape[1:].numel()
        if self.bits == 8:
            codes = rows
        else:
            unpack = ops.unpack_int4 if self.bits == 4 else ops.unpack_signs
            codes = unpack(rows.reshape(rows.shape[0], -1), inputs)
        self.key = "codes" if self.bits == 8 else _NARROW
        self.register_buffer(self.key, codes.reshape(layer._weight_shape).to(torch.int8).contiguous())
        self.window = None
        if isinstance(layer, ConvLayer):
            self.window = {key: layer._geometry[key] for key in ("stride", "dilation")} | {"groups": layer.groups}
            high, wide = layer._geometry["padding"]
            self.padding, self.padding_value = (wide, wide, high, high), getattr(layer, "padding_value", 0)
        for key in ("bias_a", "channel_scale", "bias"):
            vector = getattr(layer, key)
            if vector is not None and self.window is not None:
                vector = vector.view(-1, 1, 1)
            self.register_buffer(key, None if vector is None else vector.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(2) if self.lines else x
        x = _coded(x if self.bias_a is None else x + self.bias_a, self.bits, self.step, self.scale_a)
        weight = _opened(getattr(self, self.key), self.scale_w)
        if self.window is None:
            y = nn.functional.linear(x, weight)
        else:
            if any(self.padding):
                x = nn.functional.pad(x, self.padding, value=self.padding_value * self.scale_a)
            y = nn.functional.conv2d(x, weight, **self.window)
        y = y if self.channel_scale is None else y * self.channel_scale
        if self.bias is not None:
            # A bias of one axis behind a product of three becomes a Gemm in onnxruntime 1.32, which mistypes the codes.
            y = y + (self.bias if self.window is not None else self.bias.view((1,) * (y.dim() - 1) + (-1,)))
        return y.squeeze(2) if self.lines else y


class _MatMul(nn.Module):
    def __init__(self, layer: MatMulLayer, name: str) -> None:
        super().__init__()
        self.bits = 1 if isinstance(layer, BinaryMatMul) else layer._bits
        self.clips = [_number(layer.x_clip, name), _number(layer.y_clip, name)]
        self.least = getattr(layer, "_smallest_step", 0.0)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = (_coded(v, self.bits, max(s, self.least), s) for v, s in zip((x, y), self.clips, strict=True))
        return x @ y.mT


class _WeightsAlone(nn.Module):
    """A weight-only linear: its codes as bytes, opened by the scales of their groups."""

    def __init__(self, layer: WeightOnlyLinear, name: str) -> None:
        super().__init__()
        layer.eval()
        k, n, bits = layer.in_channels, layer.out_channels, layer.w_bit
        if not layer._prepared:
            layer.prepare_params()
        scales = layer.scales.detach().float()
        zeros = layer.zeros.detach()
        if layer.asym:
            zeros = (ops.unpack_words(zeros, bits, n, 1) + 1) * scales
        codes, groups = (
            ops.unpack_words(layer.qweight.detach(), bits, k, 0).to(torch.uint8),
            layer.g_idx.detach().long(),
        )
        # Groups of one size after another, padded to whole ones: a table of scales for each row would be floats of the
        # weight's size in the file.
        self.rows, self.size = k, -(-k // scales.size(0))
        self.regular = torch.equal(groups, torch.arange(k, device=groups.device) // self.size)
        if self.regular:
            codes = nn.functional.pad(codes, (0, 0, 0, scales.size(0) * self.size - k)).view(-1, self.size, n)
        self.key = "codes" if bits > 4 else _NARROW
        self.register_buffer(self.key, codes)
        self.register_buffer("groups", groups)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros.float())
        bias = None if layer.disable_bias else layer.bias.detach().float()
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        codes = getattr(self, self.key).float()
        if self.regular:
            opened = codes * self.scales.unsqueeze(1) - self.zeros.unsqueeze(1)
            weight = opened.flatten(0, 1)[: self.rows]
        else:
            weight = codes * self.scales[self.groups] - self.zeros[self.groups]
        y = x.float() @ weight
        return (y if self.bias is None else y + self.bias).to(x.dtype)


class _Rows(nn.Module):
    """An embedding of codes or of signs."""

    def __init__(self, layer: WeightOnlyEmbedding | BinaryEmbedding, name: str) -> None:
        super().__init__()
        columns = torch.arange(layer.embedding_dim)
        if isinstance(layer, BinaryEmbedding):
            layer.prepare_params()
            codes, group = ops.unpack_signs(layer.qweight.detach(), layer.embedding_dim), torch.zeros_like(columns)
            scales, zeros = layer.scale_w.detach().clone(), torch.zeros_like(layer.scale_w)
            codes = codes.to(torch.int8)
            if layer.padding_idx is not None:
                scales[layer.padding_idx] = 0
        else:
            codes = ops.unpack_words(layer.qweight.detach(), layer.bits, layer.embedding_dim, 1).to(torch.uint8)
            group, scales, zeros = columns // layer.group_size, layer.scales.clone(), layer.zeros.clone()
        for key, value in (("codes", codes), ("groups", group), ("scales", scales), ("zeros", zeros)):
            self.register_buffer(key, value)

    def forward(self, input: Tensor) -> Tensor:
        scales, zeros = self.scales[input][..., self.groups], self.zeros[input][..., self.groups]
        return self.codes[input].to(scales.dtype) * scales - zeros


_TWINS: dict[type, Callable[[Any, str], nn.Module]] = {
    QuantLayer: _Product,
    MatMulLayer: _MatMul,
    WeightOnlyLinear: _WeightsAlone,
    WeightOnlyEmbedding: _Rows,
    BinaryEmbedding: _Rows,
}
_REFUSED = (MBWQLinear, BinaryEmbeddingBag, TiedHead)


def plain_twin(model: nn.Module) -> nn.Module:
    """A copy of a model in evaluation, its layers of ours replaced by operators that every exporter of torch knows.

    Products are of floats that stand for codes, so their sums are rounded where ours are exact.

    Raises:
        ValueError: a layer without a step size, or of a kind that has no such form.
    """
    from torch.ao.quantization.fx import _decomposed as _decomposed  # registers torch.ops.quantized_decomposed, slowly

    model = copy.deepcopy(model).eval()
    pack(model)
    made: dict[int, nn.Module] = {}
    places = []
    for name, parent, leaf, module in walk(model):
        if isinstance(module, _REFUSED):
            place = name or "the model"
            raise ValueError(f"export_onnx: {place} is a {type(module).__name__}, which has no form in ONNX here")
        make = next((make for base, make in _TWINS.items() if isinstance(module, base)), None)
        if make is not None:
            if id(module) not in made:
                made[id(module)] = make(module, name or "the model")
            places.append((parent, leaf, module))
    for parent, leaf, module in places:
        if parent is not None:
            setattr(parent, leaf, made[id(module)])
    return made.get(id(model), model).eval()


def _halve(program: Any) -> None:
    """Turns the bytes of codes that fit into 4 bits into tensors of ONNX's types of 4 bits."""
    import ml_dtypes
    import onnx_ir

    for name, value in program.model.graph.initializers.items():
        if not name.endswith(_NARROW):
            continue
        array = value.const_value.numpy()
        narrow = ml_dtypes.int4 if array.dtype == "int8" else ml_dtypes.uint4
        value.const_value = onnx_ir.Tensor(array.astype(narrow), name=name)
        value.dtype = value.const_value.dtype
        for node, _ in value.uses():
            if node.op_type == "DequantizeLinear":  # its zero point, which is 0, would have to be of the same type
                node.resize_inputs(2)


@torch.no_grad()
def export_onnx(
    model: nn.Module,
    args: tuple[Any, ...] | Tensor,
    file: str | os.PathLike | None = None,
    *,
    int4: bool = False,
    **options: Any,
) -> Any:
    """``torch.onnx.export(dynamo=True)`` of a model in evaluation, in ONNX's own operators.

    Activations and weights of 8 and 4 bits are QuantizeLinear and DequantizeLinear pairs, signs are -1 and 1 with a
    DequantizeLinear, weights alone are bytes and the scales of their groups.

    Args:
        args: example arguments of the model, a tensor or a tuple.
        file: where the file goes, weights included (``external_data=True`` keeps them in ``FILE.data``, as models above
            2 GB need it); without it the program alone is returned.
        int4: weights of up to 4 bits are tensors of INT4 and UINT4, half a byte a weight, which came with ONNX's opset
            21; else they take a byte.
        options: of ``torch.onnx.export``, such as ``dynamic_shapes``.

    Returns: the ``torch.onnx.ONNXProgram``.

    Raises:
        ImportError: onnx and onnxscript are not installed. ValueError: as ``plain_twin``.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.Q8Linear(8, 4))
        >>> _ = model(torch.randn(16, 8))
        >>> program = bie.export_onnx(model.eval(), torch.randn(1, 8))
        >>> sorted({node.op_type for node in program.model.graph if "Linear" in node.op_type})
        ['DequantizeLinear', 'QuantizeLinear']
    """
    if model.training:
        raise ValueError("export_onnx: the model is in training, call eval() first")
    if file is not None:
        check_folder_of(Path(file).resolve())
    arguments = (args,) if isinstance(args, Tensor) else tuple(args)
    options = {"dynamo": True, "verbose": False, "external_data": False} | options
    options = ({"opset_version": 21} if int4 else {}) | options
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # torch's own, of its copies
        program = torch.onnx.export(plain_twin(model), arguments, **options)
    if int4:
        _halve(program)
    if file is not None:
        _save(program, Path(file).resolve(), options)
    return program


def _save(program: torch.onnx.ONNXProgram, target: Path, options: dict[str, Any]) -> None:
    """Writes a program beside its place first: a write that fails leaves the old files."""
    kept = ("include_initializers", "keep_initializers_as_inputs")
    choice = {"include_initializers": options.get("export_params", True)}
    choice |= {name: options[name] for name in kept[1:] if name in options}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".bie-onnx-") as folder:
        program.save(Path(folder) / target.name, external_data=options["external_data"], **choice)
        # The weights come first: a model never names a file that is not there.
        for made in sorted(Path(folder).iterdir(), key=lambda made: made.name == target.name):
            with made.open("rb") as source, replacing(target.with_name(made.name)) as file:
                shutil.copyfileobj(source, file)
