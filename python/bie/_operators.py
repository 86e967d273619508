"""The operators, loaded, and the constants that are handed to them."""

import torch

from bie import _library

_library.load()

ops = torch.ops.bie

with torch.inference_mode(False), torch.device("cpu"):  # whatever is on where this is first imported
    #: Requires grad and is empty: an operator that is given it writes the gradient of its integer weight
    #: (ARCHITECTURE.md).
    ANCHOR = torch.empty(0, dtype=torch.float32, requires_grad=True)
    #: Says that an int8 weight is plain codes, and asks for no gradient.
    FROZEN = ANCHOR.detach()
    #: The scale of layers that have none.
    ONE = torch.ones((), dtype=torch.float32)
