"""What both commands do: documents of files as rows, and an epoch of transformers' trainer."""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bie.green_bit_llm.common.model import say
from bie.llm import ArgumentError
from torch import Tensor, nn
from torch.utils.data import Dataset

from bie.lm.texts import tokenize
from bie.lm.token_files import TokenSet

_IGNORED = -100


class Documents(Dataset):
    """The first tokens of each document.

    ==========  =============================================================
    input_ids   [n] int64, n <= seqlen
    labels      [n] int64: the same tokens, -100 where one counts in no loss
    ==========  =============================================================

    Raises:
        ArgumentError: no document has a token that counts among its first.
    """

    def __init__(self, texts: TokenSet, seqlen: int) -> None:
        self._texts, self._seqlen = texts, seqlen
        starts, ends = texts.starts[:-1], texts.starts[1:]
        pieces = zip(starts, np.minimum(ends, starts + seqlen), strict=True)
        self._pieces = [(int(a), int(b)) for a, b in pieces if texts.counts[a + 1 : b].any()]
        self.cut = int((ends - starts > seqlen).sum())
        if not self._pieces:
            raise ArgumentError(f"--seqlen: expected tokens that count among the first {seqlen}, got none")

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        start, end = self._pieces[index]
        tokens = self._texts.tokens[start:end].astype(np.int64)
        labels = np.where(self._texts.counts[start:end] != 0, tokens, _IGNORED)
        return {"input_ids": torch.from_numpy(tokens), "labels": torch.from_numpy(labels)}


def together(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """A batch [rows, longest] of documents, filled with token 0, which counts in no loss."""
    fillings = {"input_ids": 0, "labels": _IGNORED}
    batch = {
        name: nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True, padding_value=filling)
        for name, filling in fillings.items()
    }
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return batch


def documents(arguments: argparse.Namespace, model: nn.Module, tokenizer: Any, folder: Path) -> Documents:
    """The documents of --dataset, whose tokens are kept in the folder."""
    size = model.config.vocab_size
    texts = tokenize(arguments.dataset, tokenizer, folder / "tokens", validation=0, vocab_size=size)
    found = Documents(texts.training, arguments.seqlen)
    if found.cut:
        say(f"{found.cut:,} of {len(texts.training.starts) - 1:,} documents have more than --seqlen tokens and are cut")
    return found


def check_device() -> None:
    """Refuses several GPUs, over which the trainer would copy the model.

    Raises:
        ArgumentError: more than one.
    """
    if (count := torch.cuda.device_count()) > 1:
        raise ArgumentError(f"expected one GPU, got {count}: CUDA_VISIBLE_DEVICES=0 before the command chooses one")


@contextlib.contextmanager
def without_future_warnings() -> Iterator[None]:
    """Leaves out what transformers says of names that it will change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        yield


def train(
    arguments: argparse.Namespace,
    model: nn.Module,
    rows: Documents,
    optimizer: torch.optim.Optimizer,
    folder: Path,
    **options: Any,
) -> None:
    """Takes an epoch over the rows, with a line for each step; checkpoints are in the folder."""
    from transformers import Trainer, TrainingArguments

    settings = TrainingArguments(
        str(folder),
        gradient_checkpointing=True,
        per_device_train_batch_size=arguments.batch_size,
        logging_steps=1,
        num_train_epochs=1,
        save_steps=arguments.save_step,
        max_grad_norm=0.0,
        seed=arguments.seed,
        report_to=[],
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        **options,
    )
    optimizers = (optimizer, None)
    Trainer(model, settings, train_dataset=rows, data_collator=together, optimizers=optimizers).train()
