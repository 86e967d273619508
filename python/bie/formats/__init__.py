"""The model files that people have, into weight-only layers: docs/spec/files.md."""

from bie.formats.folder import CodedLayer, WeightsFolder, load_weights_folder
from bie.formats.gguf import GgufFile, GgufTensor, load_gguf
from bie.formats.gguf_writer import save_gguf
from bie.formats.rows import CodedRows
from bie.formats.weights_writer import save_gptq, save_weights

__all__ = [
    "CodedLayer",
    "CodedRows",
    "GgufFile",
    "GgufTensor",
    "WeightsFolder",
    "load_gguf",
    "load_weights_folder",
    "save_gguf",
    "save_gptq",
    "save_weights",
]
