"""Training: `python -m bie.green_bit_llm.sft.finetune` and `peft_lora`, with `bitorch_engine` and transformers."""
