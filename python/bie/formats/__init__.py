"""The model files that people have, into weight-only layers: docs/spec/files.md."""

from bie.formats.gguf import GgufFile, GgufTensor, load_gguf
from bie.formats.rows import CodedRows

__all__ = ["CodedRows", "GgufFile", "GgufTensor", "load_gguf"]
