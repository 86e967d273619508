"""Words that options take."""

from enum import Enum


class TextGenMode(Enum):
    """Whether an answer is printed when it is whole, or token by token."""

    SEQUENCE = 1
    TOKEN = 2
