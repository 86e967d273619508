"""Commands: `python -m bie.green_bit_llm.inference.sim_gen` and `chat_cli`."""
