"""The operators, loaded, and what asks them for an integer weight's gradient."""

import torch

from bitorch_engine import _library

_library.load()

ops = torch.ops.bie

#: Requires grad and is empty: an operator that is given it writes the gradient of its integer weight (ARCHITECTURE.md).
ANCHOR = torch.empty(0, requires_grad=True)
