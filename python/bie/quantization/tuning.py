"""Scales, zeros, norms and biases of a folder of codes, trained against the logits of the float model."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from bie._output_files import check_folder_of
from bie.formats import CodedLayer, WeightsFolder, load_weights_folder
from bie.nn.tied_tables import table_names

_KINDS = {"gba", "gptq", "gptq2", "embedding"}
_SHARE_HELD_OUT, _MOST_HELD_OUT = 0.1, 128  # of the windows; each is read eleven times
_LEAST_CHANGE = -0.9  # of a scale, which keeps its sign


@dataclass(frozen=True)
class TuningReport:
    """What ``tune`` did. Divergences are nats a token from the teacher, on windows that it did not train on.

    Attributes:
        before, after: of the folder that was read and of the one that was written.
        step: after which the written numbers stood; 0: training made nothing better, and they are those that were read.
        windows: trained on, and held out.
    """

    before: float
    after: float
    step: int
    windows: tuple[int, int]

    def __str__(self) -> str:
        return (
            f"{self.before:.4f} nats before, {self.after:.4f} after step {self.step}, on {self.windows[1]} windows "
            f"beside the {self.windows[0]} that were trained on"
        )


def codes_of(words: Tensor, bits: int, count: int) -> Tensor:
    """Codes [count, columns] of words [ceil(count * bits / 32), columns], dense down a column from the low bits on.

    32 codes fill ``bits`` words: one of each 32 is opened at a time, so that little but the result is in memory.

    Source: docs/spec/layouts.md#gptq.
    """
    blocks, columns = -(-count // 32), words.size(1)
    words = nn.functional.pad(words, (0, 0, 0, blocks * bits - len(words))).view(blocks, bits, columns)
    codes = torch.empty(blocks, 32, columns, dtype=torch.uint8, device=words.device)
    for i in range(32):
        word, shift = divmod(i * bits, 32)
        there = min(bits, 32 - shift)  # bits of the code in its first word
        code = (words[:, word] >> shift) & ((1 << there) - 1)
        if there < bits:
            code |= (words[:, word + 1] & ((1 << (bits - there)) - 1)) << there
        codes[:, i] = code
    return codes.view(-1, columns)[:count]


class OpenedCodes(torch.autograd.Function):
    """W [n, k] = s * q - z of codes [n, groups, group]; its gradients keep the codes alone, and no floats."""

    @staticmethod
    def forward(ctx: Any, codes: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        ctx.save_for_backward(codes)
        return torch.addcmul(-zeros[..., None], codes.to(scales.dtype), scales[..., None]).flatten(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        (codes,) = ctx.saved_tensors
        grad = grads[0].reshape(codes.shape)
        return None, (grad * codes).sum(-1), -grad.sum(-1)


class _Rounded(torch.autograd.Function):
    """Numbers as a file of another dtype holds them; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _Codes(nn.Module):
    """W [n, k] = s * q - z with ``s = s0 * (1 + a)`` and ``z = z0 + s0 * c``; a and c begin at 0 and are trained.

    Whole zeros stay, and ``z = s * zero``.
    """

    def __init__(self, layer: CodedLayer) -> None:
        super().__init__()
        tensors, size = layer.tensors, layer.group_size
        self.columns, self.is_table = layer.in_features, layer.kind == "embedding"
        groups = -(-self.columns // size)
        words = tensors["qweight"].t() if self.is_table else tensors["qweight"]
        codes = codes_of(words, layer.bits, self.columns).t()
        codes = nn.functional.pad(codes, (0, groups * size - self.columns))  # the last group may be shorter
        self.register_buffer("codes", codes.reshape(len(codes), groups, size).contiguous())
        self.register_buffer("scales", self._by_rows(tensors["scales"]))
        self.types = {"scales": tensors["scales"].dtype}
        self.scale_change = nn.Parameter(torch.zeros_like(self.scales))
        if "qzeros" in tensors:
            stored = codes_of(tensors["qzeros"].t(), layer.bits, layer.out_features)
            self.register_buffer("zeros", stored.float() + (layer.kind != "gptq2"))
            self.register_parameter("zero_change", None)
        else:
            self.register_buffer("zeros", self._by_rows(tensors["zeros"]))
            self.types["zeros"] = tensors["zeros"].dtype
            self.zero_change = nn.Parameter(torch.zeros_like(self.scales))

    def _by_rows(self, tensor: Tensor) -> Tensor:
        return (tensor if self.is_table else tensor.t()).float().contiguous()

    def numbers(self) -> tuple[Tensor, Tensor]:
        """Scales and zeros [n, groups] in float32, rounded as the file holds them."""
        scales = cast(Tensor, _Rounded.apply(self.scales * (1 + self.scale_change), self.types["scales"]))
        if self.zero_change is None:
            return scales, scales * self.zeros
        zeros = self.zeros + self.scales * self.zero_change
        return scales, cast(Tensor, _Rounded.apply(zeros, self.types["zeros"]))

    def weight(self) -> Tensor:
        return cast(Tensor, OpenedCodes.apply(self.codes, *self.numbers()))[:, : self.columns]

    def rows(self, index: Tensor) -> Tensor:
        scales, zeros = self.numbers()
        rows = self.codes[index].float() * scales[index][..., None] - zeros[index][..., None]
        return rows.flatten(-2)[..., : self.columns]

    def stored(self) -> dict[str, Tensor]:
        """The tensors that training changes, as the file has them."""
        found = dict(zip(("scales", "zeros"), self.numbers(), strict=True))
        return {name: (found[name] if self.is_table else found[name].t()).to(type) for name, type in self.types.items()}


class _Linear(nn.Module):
    def __init__(self, codes: _Codes, bias: Tensor | None) -> None:
        super().__init__()
        self.codes = codes
        self.bias = None if bias is None else nn.Parameter(bias.float().clone())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.codes.weight(), self.bias)


class _Table(nn.Module):
    def __init__(self, codes: _Codes, factor: float) -> None:
        super().__init__()
        self.codes = codes
        self.factor = factor  # Gemma's

    def forward(self, index: Tensor) -> Tensor:
        return self.codes.rows(index) * self.factor


class _Student:
    """The model of a folder with layers whose scales and zeros are trained, and with its vectors: norms and biases."""

    def __init__(self, path: Path, folder: WeightsFolder) -> None:
        from bie.hf import load

        self.model: Any = load(path)
        self.codes = {name: _Codes(layer) for name, layer in folder.layers.items()}
        heads = table_names(self.model)
        for name, layer in folder.layers.items():
            if layer.kind == "embedding":
                self._put(name, _Table(self.codes[name], self.model.get_submodule(name).factor))
            else:
                self._put(name, _Linear(self.codes[name], layer.tensors.get("bias")))
        for name, table in heads.items():
            self._put(name, _Linear(self.codes[table], None))
        of_layers = {
            f"{name}.bias": layer.tensors["bias"] for name, layer in folder.layers.items() if "bias" in layer.tensors
        }
        stored = folder.tensors | of_layers
        vectors = {name: p for name, p in self.model.named_parameters() if p.dim() == 1 and name in stored}
        self.vectors = {name: parameter.requires_grad_() for name, parameter in vectors.items()}
        self.types = {name: stored[name].dtype for name in vectors}

    def _put(self, name: str, layer: nn.Module) -> None:
        parent, _, leaf = name.rpartition(".")
        setattr(self.model.get_submodule(parent), leaf, layer)

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def copy(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters()]

    @torch.no_grad()
    def restore(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.parameters(), values, strict=True):
            parameter.copy_(value)

    @torch.no_grad()
    def keep_signs(self) -> None:
        for part in self.codes.values():
            part.scale_change.clamp_(min=_LEAST_CHANGE)

    @contextlib.contextmanager
    def rounded(self) -> Iterator[None]:
        """Its vectors as the file holds them, as its scales and zeros always are."""
        values = self.copy()
        with torch.no_grad():
            for name, vector in self.vectors.items():
                vector.copy_(vector.to(self.types[name]))
        yield
        self.restore(values)

    @torch.no_grad()
    def stored(self) -> dict[str, Tensor]:
        """The tensors that training changes, by their names in the file and in its types."""
        found = {f"{name}.{key}": tensor for name, part in self.codes.items() for key, tensor in part.stored().items()}
        return found | {name: vector.to(self.types[name]) for name, vector in self.vectors.items()}


@torch.inference_mode(False)
def tune(
    model: str | os.PathLike,
    text: str | Sequence[int] | Tensor,
    steps: int = 200,
    *,
    teacher: str | os.PathLike,
    out: str | os.PathLike,
    window: int = 256,
    batch: int = 4,
    rate: float = 1e-3,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> TuningReport:
    """Trains scales, zeros, norms and biases of a folder by ``bie quantize`` to give the float model's logits.

    The loss is ``mean over tokens of KL(teacher || model)``; codes, and whole zeros of GPTQ's folders, stay. Adam with
    a rate that rises for a tenth of the steps and falls to 0 as a cosine; a change of a scale is a share of it, one of
    a zero counts in scales. The last tenth of the windows, 128 at most, is held out: the numbers with the least
    divergence on these, looked at ten times, are written, and those that were read where none has less. The folder
    appears in one step, and nothing is left where training ends early.

    Args:
        model: a folder of bie's or GPTQ's codes of one width a layer, as ``bie quantize`` and ``bie.formats`` write
            them, with the config.json of its model.
        text: to train on, which the folder's tokenizer reads, or its tokens; at least two windows.
        steps: of ``batch`` windows each.
        teacher: the float model, a GGUF file or a folder of the same vocabulary; its weights may be codes too.
        out: the folder to write, which must be empty or not there. It gets all files of ``model``.
        window: tokens that are read from their beginning; where the tokenizer begins a text with BOS, each window does.
        rate: the largest step of Adam.
        seed: of the order of the windows. On a CPU the same numbers make the same bytes.
        device: where both models are; None: a GPU where there is one. They take about 12 bytes for each weight.
        progress: called after each step with its number, from 1 on, and the loss of its windows before it.

    Raises:
        ValueError: one sentence: a text that is too short, a model of another vocabulary, layers of mixed widths or
            with an order of inputs, ``out`` that is not empty, a loss that is NaN. FileNotFoundError: no folder to
            write ``out`` into.

    Source: docs/spec/quantization.md#tuning.

    Example::

        report = bie.quantization.tune("small", open("text.txt").read(), teacher="model.gguf", out="better")
        str(report)  # "0.4007 nats before, 0.2124 after step 250, ..."
    """
    source, target = Path(model), Path(out).resolve()
    _check_arguments(source, target, {"steps": steps, "window": window, "batch": batch}, rate)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    windows = _windows(source, text, window)
    folder = load_weights_folder(source)
    _check_layers(folder)
    student, guide = _Student(source, folder), _float_model(teacher)
    _check_models(source, student.model, teacher, guide, windows)
    student.model.to(place)
    report = _Training(student, guide.to(place), windows.to(place), batch, rate, seed).run(steps, progress)
    _write(source, target, student.stored())
    return report


def _check_arguments(source: Path, target: Path, counts: dict[str, int], rate: float) -> None:
    if not source.is_dir():
        raise ValueError(f"tune: {source}: expected a folder of codes, got {'a file' if source.exists() else 'none'}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        got = "one with files in it" if target.is_dir() else "a file"
        raise ValueError(f"tune: {target}: expected a folder that is empty or not there, got {got}")
    check_folder_of(target)
    for name, value in counts.items():
        least = 2 if name == "window" else 1
        if value < least:
            raise ValueError(f"tune: {name}: expected at least {least}, got {value}")
    if not 0 < rate < 1:
        raise ValueError(f"tune: rate: expected a number between 0 and 1, got {rate}")


def _check_layers(folder: WeightsFolder) -> None:
    if not folder.layers:
        raise ValueError(f"tune: {folder.path}: expected layers of codes, got none")
    for layer in folder.layers.values():
        wrong = "" if layer.kind in _KINDS else f"a layer of kind {layer.kind}"
        if "qstatistic" in layer.tensors or "qscales" in layer.tensors:
            wrong = "scales that are codes themselves"
        index, groups = layer.tensors.get("g_idx"), torch.arange(layer.in_features) // layer.group_size
        if not wrong and index is not None and not torch.equal(index.long(), groups):
            wrong = "an order of inputs"
        if wrong:
            raise ValueError(f"tune: {folder.path}: {layer.name}: expected codes of one width in groups, got {wrong}")


def _check_models(source: Path, student: Any, teacher: str | os.PathLike, guide: Any, windows: Tensor) -> None:
    tokens = student.config.get_text_config().vocab_size
    for path, model in {source: student, Path(teacher): guide}.items():
        config = model.config.get_text_config()
        if config.vocab_size != tokens:
            raise ValueError(f"tune: {path}: expected the {tokens} tokens of {source}, got {config.vocab_size}")
        most = getattr(config, "max_position_embeddings", None)
        if most is not None and windows.size(1) > most:
            raise ValueError(
                f"tune: window: expected at most the {most} tokens that {path} reads, got {windows.size(1)}"
            )
    least, largest = int(windows.min()), int(windows.max())
    if least < 0 or largest >= tokens:
        got = least if least < 0 else largest
        raise ValueError(f"tune: text: expected tokens from 0 to {tokens - 1}, got {got}")


def _windows(model: Path, text: str | Sequence[int] | Tensor, window: int) -> Tensor:
    """Whole windows of the text's tokens [windows, window]."""
    begin: list[int] = []
    if isinstance(text, str):
        begin, text = _tokens(model, text)
    try:
        tokens = torch.as_tensor(text).flatten()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"tune: text: expected a string or its tokens, got a {type(text).__name__}") from None
    size = window - len(begin)
    whole = len(tokens) // size
    if whole < 2:
        raise ValueError(f"tune: text: expected at least two windows of {size} tokens, got {len(tokens)} tokens")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"tune: text: expected whole numbers of tokens, got {tokens.dtype}")
    rows = tokens[: whole * size].long().view(whole, size)
    return torch.cat([torch.tensor(begin, dtype=torch.long, device=rows.device).expand(whole, -1), rows], 1)


def _tokens(model: Path, text: str) -> tuple[list[int], list[int]]:
    """The token that begins a text, if there is one, and those of a text without it."""
    from bie.hf import load_tokenizer

    try:
        tokenizer = load_tokenizer(model)
    except (OSError, ValueError) as error:
        raise ValueError(f"tune: {model}: expected a tokenizer for the text, got none that is read") from error
    bos = tokenizer.bos_token_id
    begin = [bos] if bos is not None and tokenizer("a")["input_ids"][:1] == [bos] else []
    return begin, tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def _float_model(path: str | os.PathLike) -> Any:
    from bie.hf import load

    return load(path).float().eval()


class _Training:
    def __init__(self, student: _Student, guide: Any, windows: Tensor, batch: int, rate: float, seed: int) -> None:
        held_out = min(max(1, int(_SHARE_HELD_OUT * len(windows))), _MOST_HELD_OUT)
        self.student, self.guide, self.batch, self.rate = student, guide, batch, rate
        self.held_out, self.windows = windows[-held_out:], windows[:-held_out]
        self.random = torch.Generator().manual_seed(seed)

    def run(self, steps: int, progress: Callable[[int, float], None] | None) -> TuningReport:
        """Leaves the student with the numbers that are to be written."""
        optimizer = torch.optim.Adam(self.student.parameters(), lr=self.rate)
        before = least = self.divergence()
        if not math.isfinite(before):
            raise ValueError(f"tune: expected a finite divergence of the two models, got {before}")
        best, kept = 0, self.student.copy()
        order: list[int] = []
        every = max(1, steps // 10)
        for step in range(1, steps + 1):
            while len(order) < self.batch:
                order += torch.randperm(len(self.windows), generator=self.random).tolist()
            chosen, order = order[: self.batch], order[self.batch :]
            optimizer.param_groups[0]["lr"] = self.rate * self._share(step, steps)
            loss = self._loss(self.windows[chosen])
            if not torch.isfinite(loss):
                raise ValueError(f"tune: step {step}: expected a finite loss, got {loss.item()}; nothing is written")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.student.keep_signs()
            if progress is not None:
                progress(step, loss.item())
            if step % every == 0 or step == steps:
                with self.student.rounded():
                    now = self.divergence()
                    if now < least:
                        least, best, kept = now, step, self.student.copy()
        self.student.restore(kept)
        return TuningReport(before, least, best, (len(self.windows), len(self.held_out)))

    def _share(self, step: int, steps: int) -> float:
        """The share of the rate: docs/spec/quantization.md#tuning."""
        rise = max(1, steps // 10)
        return min(1.0, step / rise) * 0.5 * (1 + math.cos(math.pi * (step - 1) / steps))

    def _loss(self, windows: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.guide(input_ids=windows, use_cache=False).logits
        found = self.student.model(input_ids=windows, use_cache=False).logits
        return nn.functional.kl_div(
            torch.log_softmax(found.float(), -1).flatten(0, 1),
            torch.log_softmax(wanted.float(), -1).flatten(0, 1),
            reduction="batchmean",
            log_target=True,
        )

    @torch.no_grad()
    def divergence(self) -> float:
        """The mean on the windows that are held out."""
        parts = self.held_out.split(self.batch)
        return sum(self._loss(part).item() * len(part) for part in parts) / len(self.held_out)


def _write(source: Path, target: Path, tensors: dict[str, Tensor]) -> None:
    """The folder with other bytes of these tensors; all else in it stays as it is."""
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        scratch.mkdir()
        for file in source.iterdir():
            if file.is_file():
                shutil.copyfile(file, scratch / file.name)
        for name in _weight_files(source):
            _replace(scratch / name, tensors)
        scratch.replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _weight_files(folder: Path) -> set[str]:
    """The names of the safetensors files that the folder's reader reads."""
    for index in folder.glob("*.safetensors.index.json"):
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return {file.name for file in folder.glob("*.safetensors")}


def _replace(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes the bytes of those of the tensors that a safetensors file has in their places."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        for name, facts in json.loads(file.read(size)).items():
            if name not in tensors:
                continue
            begin, end = facts["data_offsets"]
            content = tensors[name].cpu().contiguous().view(torch.uint8).numpy().tobytes()
            if len(content) != end - begin:
                raise ValueError(f"tune: {path.name}: expected {len(content)} bytes of {name}, got {end - begin}")
            file.seek(8 + size + begin)
            file.write(content)
