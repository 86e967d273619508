"""The training of a language model: rates, steps, checkpoints that go on to the bit, and the file that comes out."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bie._output_files import replacing, write_text
from bie.captured_step import CapturedStep
from bie.lm.attention import document_attention, document_ends, has_document_attention, masks_of
from bie.lm.layers import block_linears, keep_codes_alone
from bie.lm.loss import distilled_loss, next_token_loss, summed_cross_entropy
from bie.lm.optimizer import make_optimizer
from bie.lm.rows import Rows
from bie.lm.teacher import Teacher
from bie.nn.mpq_linear import MPQLinear

_MOST_LOGITS = {"cpu": 2**24, "cuda": 2**27}


@dataclass(frozen=True)
class Schedule:
    """The numbers of a training.

    Attributes:
        tokens: how many tokens the model reads in all; steps are ``ceil(tokens / (rows * accumulate * context))``.
        rows: rows of the context in a backward pass.
        accumulate: backward passes of a step.
        lr, scale_lr, float_lr: the largest rates: of weights of codes, of their scales relative to each, of floats.
            They rise over ``warmup`` of the steps and fall as a cosine to 0.
        small_moments: moments of weights of codes in 8 bits.
        in_backward: weights of codes step in the midst of a backward pass, and no gradient is kept.
        bfloat16: products under autocast to bfloat16.
    """

    tokens: int
    rows: int = 16
    accumulate: int = 1
    lr: float = 3e-3
    scale_lr: float = 0.02
    float_lr: float = 3e-4
    warmup: float = 0.05
    seed: int = 0
    small_moments: bool = False
    in_backward: bool = False
    bfloat16: bool = False

    def __post_init__(self) -> None:
        for name in ("tokens", "rows", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        for name in ("lr", "scale_lr", "float_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: expected a number >= 0, got {value}")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup: expected a share in [0, 1], got {self.warmup}")
        if self.in_backward and self.accumulate > 1:
            raise ValueError(
                f"steps in the backward pass keep no gradient that could add up: accumulate: expected 1, got "
                f"{self.accumulate}"
            )

    def steps(self, context: int) -> int:
        """How many steps a training with rows of this context has."""
        return -(-self.tokens // (self.rows * self.accumulate * context))

    def rate(self, step: int, steps: int) -> float:
        """The share of the largest rates in step 0 ... steps - 1."""
        rise = min(1.0, (step + 1) / max(1.0, self.warmup * steps))
        return rise * 0.5 * (1 + math.cos(math.pi * step / steps))


class StoppedError(RuntimeError):
    """A training that cannot go on: its loss is no number."""


class Trainer:
    """Trains a model that ``make_trainable`` has prepared on rows of tokens.

    Weights of codes and floats are stepped by one ``DiodeMix``. Attention stays inside of documents, the loss is that
    of ``next_token_loss``.

    Args:
        model: of transformers, with ``model.model`` (blocks) and ``model.lm_head``.
        rows: of the texts.
        schedule: the numbers.
        out: folder of ``log.jsonl`` and ``checkpoint.pt``, made where it is missing; None writes nothing.
        compiled: blocks and the loss go through ``torch.compile``.
        captured: a step is one CUDA graph (``bie.CapturedStep``), which keeps gradients until the optimizer's step.
        teacher: of whose best tokens the loss has a share, by ``distilled_loss``, on the model's device; evaluations
            are of the texts alone.

    Raises:
        ValueError: ``captured`` where the model is not on CUDA, or with a schedule that accumulates or steps in the
            backward pass; a teacher of another vocabulary.

    Example::

        make_trainable(model, "codes+rest8", WIDTHS["2"])
        trainer = Trainer(model, rows, Schedule(tokens=20_000_000), out="run")
        for report in trainer.run():
            print(report)
        trainer.finish()
    """

    def __init__(
        self,
        model: nn.Module,
        rows: Rows,
        schedule: Schedule,
        out: str | os.PathLike | None = None,
        *,
        compiled: bool = False,
        captured: bool = False,
        teacher: Teacher | None = None,
    ) -> None:
        self.model, self.rows, self.schedule, self.teacher = model, rows, schedule, teacher
        self.out = None if out is None else Path(out)
        self.device = next(model.parameters()).device
        self._check(captured)
        self.step, self.steps = 0, schedule.steps(rows.context)
        self.optimizer = make_optimizer(
            model,
            schedule.lr,
            scale_lr=schedule.scale_lr,
            float_lr=schedule.float_lr,
            small_moments=schedule.small_moments,
            seed=schedule.seed,
        )
        self._largest = [(group["lr"], group["scale_lr"]) for group in self.optimizer.param_groups]
        self.optimizer.step_in_backward(schedule.in_backward)
        self._compiled, self._entropy = compiled, summed_cross_entropy
        if compiled:
            self._entropy = torch.compile(summed_cross_entropy, dynamic=False)
            for _, _, _, layer in block_linears(model):
                if isinstance(layer, MPQLinear):  # a leaf of gradients that is there already is no break of the graph
                    layer.qweight.anchor((layer.in_channels, layer.out_channels))
            for block in (*model.model.layers, *(teacher.model.model.layers if teacher is not None else ())):
                block.compile(dynamic=False)
        dtype = torch.bfloat16 if schedule.bfloat16 else torch.float32
        models = [model] if teacher is None else [model, teacher.model]
        self._attends_documents = all(has_document_attention(each, self.device, dtype) for each in models)
        self._captured = CapturedStep(self._mean_loss, self.optimizer) if captured else None
        self._next: tuple[int, list[dict[str, Tensor]]] | None = None
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)

    def _check(self, captured: bool) -> None:
        schedule = self.schedule
        if captured and (self.device.type != "cuda" or schedule.accumulate > 1 or schedule.in_backward):
            raise ValueError(
                "Trainer: captured: expected a model on CUDA, accumulate=1 and in_backward=False, got "
                f"{self.device.type}, {schedule.accumulate} and {schedule.in_backward}"
            )
        vocabulary = self.model.config.vocab_size
        if self.teacher is not None and self.teacher.model.config.vocab_size != vocabulary:
            raise ValueError(
                f"Trainer: teacher: expected a vocabulary of {vocabulary}, as the model has, got "
                f"{self.teacher.model.config.vocab_size}"
            )

    # The loss.

    def _inputs(self, batch: dict[str, Tensor]) -> list[Tensor]:
        """input_ids, position_ids and labels on the device, and the ends of documents where attention takes them."""
        found = [batch[name].to(self.device) for name in ("input_ids", "position_ids", "labels")]
        if self._attends_documents:
            found.append(document_ends(batch["position_ids"]).to(self.device))
        return found

    def _loss(
        self,
        ids: Tensor,
        positions: Tensor,
        labels: Tensor,
        ends: Tensor | None = None,
        *,
        masked: bool = False,
        fixed_shapes: bool = False,
        teacher: Teacher | None = None,
    ) -> tuple[Tensor, int | Tensor]:
        """The sum of the losses of a batch, and how many labels count."""
        most_logits = _MOST_LOGITS.get(self.device.type, 2**24)
        options = {"most_logits": most_logits, "cross_entropy": self._entropy, "fixed_shapes": fixed_shapes}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.schedule.bfloat16):
            hidden = _states(self.model, ids, positions, ends, masked)
            if teacher is None:
                return next_token_loss(hidden, self.model.lm_head, labels, **options)
            with torch.no_grad():
                shown = teacher.best_tokens(_states(teacher.model, ids, positions, ends, masked), most_logits)
            numbers = {"weight": teacher.weight, "temperature": teacher.temperature}
            return distilled_loss(hidden, self.model.lm_head, labels, *shown, **numbers, **options)

    def _mean_loss(self, count: Tensor, ids: Tensor, positions: Tensor, labels: Tensor, *ends: Tensor) -> Tensor:
        """The loss as a CUDA graph wants it: of shapes that are known, and waiting for nothing."""
        options = {"masked": not ends, "fixed_shapes": True, "teacher": self.teacher}
        return self._loss(ids, positions, labels, *ends, **options)[0] / count

    @torch.no_grad()
    def evaluate(self, rows: int | None = None) -> float:
        """The mean negative log-likelihood a token of the validation's rows, of the first ``rows`` where that is given.

        Raises:
            ValueError: texts without validation.
        """
        there = self.rows.validation_rows
        if not there:
            raise ValueError("Trainer.evaluate: the texts have no validation")
        size, count, total = self.schedule.rows, 0, 0.0
        was_training = self.model.training
        self.model.eval()
        try:
            # Blocks are compiled for training; saying so imports torch's compiler.
            with torch.compiler.set_stance("force_eager") if self._compiled else contextlib.nullcontext():
                for index in range(-(-min(there, rows or there) // size)):
                    loss, labels = self._loss(*self._inputs(self.rows.validation_batch(index, size)))
                    total, count = total + loss.item(), count + labels
        finally:
            self.model.train(was_training)
        return total / max(1, count)

    # The steps.

    def _batches(self, step: int) -> list[dict[str, Tensor]]:
        if self._next is not None and self._next[0] == step:
            return self._next[1]
        size, of_epoch = self.schedule.rows, max(1, len(self.rows) // self.schedule.rows)
        places = (divmod(step * self.schedule.accumulate + part, of_epoch) for part in range(self.schedule.accumulate))
        return [self.rows.batch(epoch, index, size) for epoch, index in places]

    def _one_step(self) -> float:
        share = self.schedule.rate(self.step, self.steps)
        for group, (lr, scale_lr) in zip(self.optimizer.param_groups, self._largest, strict=True):
            group["lr"], group["scale_lr"] = share * lr, share * scale_lr
        batches = self._batches(self.step)
        count = sum(int((batch["labels"] != -100).sum()) for batch in batches)
        if count == 0:
            return 0.0
        if self._captured is None:
            return self._written_step(batches, count) / count
        mean = self._captured(torch.tensor(float(count), device=self.device), *self._inputs(batches[0]))
        self._next = (self.step + 1, self._batches(self.step + 1))  # while the device computes
        return mean.item()

    def _written_step(self, batches: list[dict[str, Tensor]], count: int) -> float:
        """A step as it is written, of any number of batches; the sum of their losses."""
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for batch in batches:
            loss, _ = self._loss(*self._inputs(batch), teacher=self.teacher)
            (loss / count).backward()
            total += loss.detach()
        self.optimizer.step()
        return total.item()

    def run(self, *, save_every: int = 0, evaluate_every: int = 0) -> Iterator[dict[str, Any]]:
        """Takes the steps that are left, and says of each what happened: ``step``, ``loss`` (mean of the batch),
        ``tokens_per_second``, ``rate``, and ``validation`` where it was evaluated.

        Args:
            save_every, evaluate_every: steps between checkpoints and evaluations; 0: none before the end.

        Raises:
            StoppedError: the loss is NaN or infinity; the sentence names the last checkpoint.
        """
        tokens = self.schedule.rows * self.schedule.accumulate * self.rows.context
        self.model.train()  # codes have gradients in training alone
        while self.step < self.steps:
            start = time.perf_counter()
            loss = self._one_step()
            if not math.isfinite(loss):
                last = self.out / "checkpoint.pt" if self.out is not None else None
                known = f"; the last checkpoint is {last}" if last is not None and last.exists() else ""
                raise StoppedError(
                    f"the loss of step {self.step + 1} is {loss}: try a lower rate than {self.schedule.lr:g}{known}"
                )
            report = {
                "step": self.step + 1,
                "loss": loss,
                "tokens_per_second": tokens / (time.perf_counter() - start),
                "rate": self.schedule.rate(self.step, self.steps),
            }
            self.step += 1
            last = self.step == self.steps
            if self.rows.validation_rows and (last or (evaluate_every and self.step % evaluate_every == 0)):
                report["validation"] = self.evaluate()
            if self.out is not None:
                with (self.out / "log.jsonl").open("a", encoding="utf-8") as log:
                    log.write(json.dumps(report) + "\n")
                if last or (save_every and self.step % save_every == 0):
                    self.save()
            yield report

    # States and files.

    def save(self) -> Path:
        """Writes ``checkpoint.pt`` in one step: a write that fails leaves the one before."""
        if self.out is None:
            raise ValueError("Trainer.save: there is no folder to write to")
        state = {
            "step": self.step,
            "schedule": asdict(self.schedule),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        path = self.out / "checkpoint.pt"
        with replacing(path) as file:
            torch.save(state, file)
        return path

    def resume(self, path: str | os.PathLike) -> None:
        """Goes on from a checkpoint, to the bit where the texts, the model and the schedule are the same.

        Raises:
            ValueError: a checkpoint of another schedule, or no checkpoint.
        """
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
            theirs, step = state["schedule"], state["step"]
        except (KeyError, TypeError, RuntimeError, EOFError, ValueError) as error:
            raise ValueError(f"{path}: it is no checkpoint of a language model's training: {error}") from None
        except Exception as error:  # of pickle, which names its own class of errors
            raise ValueError(f"{path}: it is no checkpoint of a language model's training: {error}") from None
        if theirs != asdict(self.schedule):
            other = [name for name, value in asdict(self.schedule).items() if theirs.get(name) != value]
            raise ValueError(
                f"{path}: it was made with another {', '.join(other)}: expected "
                f"{', '.join(str(getattr(self.schedule, name)) for name in other)}, got "
                f"{', '.join(str(theirs.get(name)) for name in other)}"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = step
        self._forget_lines()

    def _forget_lines(self) -> None:
        """Takes the lines of steps that are still to come out of ``log.jsonl``: they were behind the checkpoint."""
        log = None if self.out is None else self.out / "log.jsonl"
        if log is None or not log.exists():
            return
        kept = []
        for line in log.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= self.step:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue  # of a process that was killed while it wrote
        write_text(log, "".join(kept))

    @torch.no_grad()
    def finish(self) -> nn.Module:
        """The model as its file holds it, in evaluation: matrices of floats in float16, latent weights as codes."""
        self.optimizer.step_in_backward(False)
        keep_codes_alone(self.model)
        for module in self.model.modules():
            if isinstance(module, nn.Embedding | nn.Linear):
                module.weight.copy_(module.weight.half().float())
        return self.model.eval()


def _states(model: nn.Module, ids: Tensor, positions: Tensor, ends: Tensor | None, masked: bool) -> Tensor:
    """The states before the output layer [rows, context, width]; attention stays inside of documents.

    Transformers finds documents in the positions, for which it waits for the device, unless ``ends`` or masks tell.
    """
    options: dict[str, Any] = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    if ends is None:
        mask = masks_of(model.config, positions) if masked else None
        return model.model(**options, attention_mask=mask).last_hidden_state
    with document_attention(model):
        return model.model(**options, ends=ends).last_hidden_state
