"""Models of Hugging Face's transformers with layers of ours: from_pretrained and save_pretrained.

Importing this module registers the quantization method "bie" with transformers; docs/convert.md#transformers.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from bie.checkpoint import pack
from bie.conversion import ConversionReport, Filter, convert
from bie.hf_checkpoints import BieConfig, BieQuantizer, tell
from bie.hf_files import load, load_tokenizer, save_gguf
from bie.nn.tied_tables import tied_tables

__all__ = ["BieConfig", "BieQuantizer", "load", "load_tokenizer", "quantize_model", "save_gguf", "tell"]

#: Output layers, and a patch embedding, whose weight its model reads the dtype of.
_STAY = ("lm_head", "score", "classifier", "projection")


def quantize_model(
    model: nn.Module, target: Any = "q8", *, filter: Filter | None = None, batch: Any = None, **options: Any
) -> ConversionReport:
    """Converts a model of transformers in place, packs it, and tells its config, so that ``save_pretrained`` works.

    Args:
        target, filter, batch, options: of ``bie.convert``. Without a filter "lm_head", "score" and "classifier" stay,
            and the "projection" of a vision model's patches; an output layer that shares the weight of the embedding
            becomes the ``head()`` of its table of codes.

    ``AutoModel.from_pretrained`` of what is saved gives the same bits, once ``bie.hf`` is imported.
    """
    heads = {id(head) for tie in tied_tables(model) for head in tie.heads.values()}
    chosen = filter or (lambda name, module: name.rpartition(".")[2] not in _STAY or id(module) in heads)
    report = convert(model.eval(), target, filter=chosen, batch=batch, **options)
    pack(model)
    tell(model)
    return report
