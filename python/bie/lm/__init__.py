"""Training of language models in the integers of their files; docs/train-language-models.md."""

from bie.lm.layers import make_trainable, open_table
from bie.lm.loss import distilled_loss, next_token_loss
from bie.lm.models import load_model
from bie.lm.optimizer import make_optimizer
from bie.lm.rows import Rows
from bie.lm.teacher import Teacher
from bie.lm.texts import tokenize
from bie.lm.trainer import Schedule, StoppedError, Trainer
from bie.lm.widths import WIDTHS

__all__ = [
    "WIDTHS",
    "Rows",
    "Schedule",
    "StoppedError",
    "Teacher",
    "Trainer",
    "distilled_loss",
    "load_model",
    "make_optimizer",
    "make_trainable",
    "next_token_loss",
    "open_table",
    "tokenize",
]
