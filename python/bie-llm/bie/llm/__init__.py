"""Language models from GGUF files and folders, on the CPU, without torch: text in, text or logits out.

>>> import bie.llm
>>> model = bie.llm.load("model.gguf")  # doctest: +SKIP
>>> model.generate("Water boils at", tokens=16).text  # doctest: +SKIP
' 100 degrees Celsius'

The same file, prompt and options give the same text on every CPU, with any number of threads.
"""

from bie.llm._answer import Answer
from bie.llm._library import ArgumentError, FileError, LanguageModelError, OutOfMemory, SettingError
from bie.llm._model import Model, Sequence, load
from bie.llm._serve import Server, serve


def __getattr__(name: str):
    if name != "LmEvalModel":  # which needs the package lm-eval
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bie.llm._lm_eval import LmEvalModel

    return LmEvalModel


__all__ = [
    "Answer",
    "ArgumentError",
    "FileError",
    "LanguageModelError",
    "Model",
    "OutOfMemory",
    "Sequence",
    "Server",
    "SettingError",
    "load",
    "serve",
]
