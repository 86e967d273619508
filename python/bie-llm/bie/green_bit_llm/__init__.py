"""The inference and serving of green-bit-llm 0.2.6 over `bie.llm`: scripts change their imports and go on, on the CPU.

>>> from bie.green_bit_llm.common import generate, load
>>> model, tokenizer, config = load("Qwen-1.5-0.5B-layer-mix-bpw-2.2")  # doctest: +SKIP
>>> generate(model, tokenizer, "Water boils at", max_tokens=16)  # doctest: +SKIP

`python -m bie.green_bit_llm.inference.sim_gen`, `chat_cli`, `serve.api.v1.fastapi_server`, `sft.finetune` and
`sft.peft_lora` take the options of 0.2.6. A sentence on stderr tells what has no meaning here.
"""
