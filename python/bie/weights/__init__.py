"""Parameters that hold integers, the rules by which an optimizer steps them, GPTQ's layout."""
