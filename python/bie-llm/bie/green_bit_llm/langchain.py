"""The place of LangChain's classes in green-bit-llm 0.2.6. An import says what takes their place."""

raise ImportError(
    "bie.green_bit_llm has no classes of LangChain: let _call of a langchain_core.language_models.LLM return "
    "bie.llm.load(folder).generate(prompt, stop=stop).text, and embed_documents of a "
    "langchain_core.embeddings.Embeddings bie.llm.load(folder).embed(texts).tolist()"
)
