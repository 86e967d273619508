"""`evaluate` with the options of green-bit-llm 0.2.6, on texts and models of this machine."""
