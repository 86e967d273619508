"""BITorch Engine kept its compiled modules here; ours are one library, see ``torch.ops.bie``."""

EXTENSION_PREFIX = "bitorch_engine.extensions."
