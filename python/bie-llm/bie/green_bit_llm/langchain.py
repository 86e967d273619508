"""The place of LangChain's classes in green-bit-llm 0.2.6. An import of one says what takes its place."""

from typing import NoReturn

_CLASSES = ("ChatGreenBit", "GreenBitEmbeddings", "GreenBitPipeline")


def __getattr__(name: str) -> NoReturn:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(
        f"bie.green_bit_llm has no {name}: let _call of a langchain_core.language_models.LLM return "
        "bie.llm.load(folder).generate(prompt, stop=stop).text, and embed_documents of a "
        "langchain_core.embeddings.Embeddings bie.llm.load(folder).embed(texts).tolist()"
    )
