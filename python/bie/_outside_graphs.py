"""Functions that a graph of torch.compile leaves to Python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])


def outside_graphs(reason: str) -> Callable[[_Function], _Function]:
    """``torch.compiler.disable``, which imports torch._dynamo, once somebody else has imported it.

    That takes as long as importing torch.
    """

    def wrap(function: _Function) -> _Function:
        disabled: list[_Function] = []

        def made() -> bool:
            if "torch._dynamo" in sys.modules and not disabled:
                disabled.append(torch.compiler.disable(function, reason=reason))
            return bool(disabled)

        # torch.compiler.assume_constant_result sets this attribute: a trace then calls `made` and sees its result.
        made._dynamo_marked_constant = True

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return disabled[0](*args, **options) if made() else function(*args, **options)

        return call

    return wrap
