from bie.green_bit_llm.common.enum import TextGenMode
from bie.green_bit_llm.common.model import Model, Prompt, Tokenizer, generate, load

__all__ = ["Model", "Prompt", "TextGenMode", "Tokenizer", "generate", "load"]
