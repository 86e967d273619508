"""BITorch Engine kept its compiled modules here; ours are one library, see ``torch.ops.bie``."""

from bie.bitorch.safe_import import EXTENSION_PREFIX

__all__ = ["EXTENSION_PREFIX"]
