"""Small random language models: transformers' float model, and the same weights as a GGUF file."""

from __future__ import annotations

import gguf
import numpy as np
import torch
import transformers

VOCABULARY, LAYERS, CONTEXT = 96, 2, 512
SIZES = {
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT},
}
LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0}
YARN = {
    **{"rope_type": "yarn", "factor": 4.0, "rope_theta": 5000.0, "original_max_position_embeddings": 32},
    **{"beta_fast": 8.0, "beta_slow": 1.0},
}
LLAMA3 = {
    **{"rope_type": "llama3", "factor": 8.0, "rope_theta": 500.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 32,
}
LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
GEMMA3 = {
    **{"model_type": "gemma3_text", "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 300},
    **{"num_hidden_layers": 7, "rms_norm_eps": 1e-6},
    "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 50.0}, "sliding_attention": LOCAL},
}
GEMMA2 = {
    **{"model_type": "gemma2", "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 5},
    **{"num_hidden_layers": 3, "rms_norm_eps": 1e-6, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 4.0},
}
# Rows of whole blocks of ternary codes.
BITNET = {"model_type": "bitnet", "hidden_size": 256, "intermediate_size": 512}
KINDS = {
    "llama": {"model_type": "llama"},
    "tied llama": {"model_type": "llama", "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    "llama with wide heads": {"model_type": "llama", "head_dim": 32},
    "llama with biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "linear llama": {"model_type": "llama", "rope_parameters": LINEAR},
    "yarn llama": {"model_type": "llama", "rope_parameters": YARN},
    "llama3 llama": {"model_type": "llama", "rope_parameters": LLAMA3},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "windowed mistral": {"model_type": "mistral", "sliding_window": 5},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "gemma2": GEMMA2,
    "gemma2 without caps": GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    "gemma3": GEMMA3 | {"sliding_window": 5, "num_hidden_layers": 8},
    "linear gemma3": GEMMA3 | {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": LOCAL}},
}
#: Kinds of GGUF files whose architecture is the first word; the last one is a layer of a released model's sizes.
BITNETS = {
    "bitnet": BITNET | {"hidden_act": "silu"},
    "bitnet-b1.58": BITNET,
    "bitnet-b1.58 of 2B4T": {
        **{"model_type": "bitnet", "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 1},
        **{"num_attention_heads": 20, "num_key_value_heads": 5},
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
}
NAMES = {
    **{"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"},
    **{"self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"},
    **{"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"},
    **{"self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm"},
    **{"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"},
}
GEMMA_NAMES = {
    **{"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm"},
    "post_feedforward_layernorm": "post_ffw_norm",
}


TERNARY_SCALE = 0.0625  # of 16-bit floats too


def float_model(kind: str, vocabulary: int = VOCABULARY, **changes) -> transformers.PreTrainedModel:
    """Random weights, norms and biases included; angles that tell positions apart."""
    torch.manual_seed(0)
    options = SIZES | {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}} | (KINDS | BITNETS)[kind]
    options |= {"vocab_size": vocabulary, **changes}
    config = transformers.AutoConfig.for_model(options.pop("model_type"), attn_implementation="eager", **options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.5)
            elif kind in BITNETS and name.endswith("_proj.weight"):
                parameter.copy_(torch.randint(-1, 2, parameter.shape) * TERNARY_SCALE)
            else:
                parameter.normal_(0, 0.2)
    return model


def neighbours(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys as llama's files have them: rotated pairs side by side."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def is_gemma(config) -> bool:
    return config.model_type in ("gemma2", "gemma3_text")


def tensors_of(model) -> dict[str, np.ndarray]:
    config, state = model.config, model.state_dict()
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    found = {"token_embd.weight": state["model.embed_tokens.weight"], "output_norm.weight": state["model.norm.weight"]}
    if not config.tie_word_embeddings:
        found["output.weight"] = state["lm_head.weight"]
    for name, value in state.items():
        if not name.startswith("model.layers."):
            continue
        layer, part = name.removeprefix("model.layers.").split(".", 1)
        stem, end = part.rsplit(".", 1)
        names = NAMES | (GEMMA_NAMES if is_gemma(config) else {})
        found[f"blk.{layer}.{names[stem]}.{end}"] = value
    if is_gemma(config):  # whose norms multiply by 1 + w
        found = {name: value + 1 if "norm" in name else value for name, value in found.items()}
    arrays = {name: value.float().numpy() for name, value in found.items()}
    if config.model_type in ("llama", "mistral"):
        for name, value in arrays.items():
            if (stem := name.split(".")[-2]) in heads:
                arrays[name] = neighbours(value, heads[stem])
    return arrays


def llama3_divisors(config) -> np.ndarray:
    """The numbers that llama 3.1's files carry: each pair's frequency is divided by one of them."""
    rope, size = config.rope_parameters, config.hidden_size // config.num_attention_heads
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    for frequency in rope["rope_theta"] ** (-np.arange(0, size, 2) / size):
        turns = original * frequency / (2 * np.pi)
        share = np.clip((turns - low) / (high - low), 0, 1)
        divisors.append(1 / ((1 - share) / factor + share))
    return np.array(divisors, np.float32)


def write_header(writer: gguf.GGUFWriter, config) -> None:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "gemma2":  # what is not there is that of the released models
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping or 0.0)
        writer.add_final_logit_softcapping(config.final_logit_softcapping or 0.0)
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def write_tokenizer(writer: gguf.GGUFWriter, tokens: list[str], merges: list[str], rule: str, **ids) -> None:
    kinds = [3 if t.startswith("<|") and t.endswith("|>") else 1 for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    for key, value in ids.items():
        getattr(writer, f"add_{key}")(value)


def letters() -> list[str]:
    """95 tokens of one printable character each, and the one that ends an answer."""
    return ["<|end|>", *(chr(0x120 if i == 32 else i) for i in range(32, 127))]


# Each turn ends with the token that ends answers; what is said stands behind the first letter of who says it.
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def write_model(path, kind: str, dtype: str = "F32", end: int | None = None, template: str = CHAT_TEMPLATE) -> None:
    """Matrices in this type, norms and biases as float32; `end` is the token that ends an answer. Ternary types are for
    linears alone."""
    model = float_model(kind)
    names = {"mistral": "llama", "gemma3_text": "gemma3", "bitnet": kind.split()[0]}
    writer = gguf.GGUFWriter(str(path), names.get(model.config.model_type, model.config.model_type))
    write_header(writer, model.config)
    write_tokenizer(writer, letters(), [], "gpt-2", **({} if end is None else {"eos_token_id": end}))
    if template:
        writer.add_chat_template(template)
    tensors = tensors_of(model)
    if "llama3" in kind:
        tensors["rope_freqs.weight"] = llama3_divisors(model.config)
    for name, value in tensors.items():
        is_coded = value.ndim == 2 and (name.startswith("blk.") or not dtype.startswith("TQ"))
        wanted = gguf.GGMLQuantizationType[dtype if is_coded else "F32"]
        data = gguf.quants.quantize(np.ascontiguousarray(value, np.float32), wanted)
        writer.add_tensor(name, data, raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_changed(path, change_tensors=None, architecture="llama", overrides=None, tokenizer=None):
    """A small llama whose tensors and metadata are changed before they are written."""
    model = float_model("llama")
    tensors = tensors_of(model)
    if change_tensors:
        change_tensors(tensors)
    writer = gguf.GGUFWriter(str(path), architecture)
    write_header(writer, model.config)
    for key, (kind, value) in (overrides or {}).items():
        full = key.format(arch=architecture)
        writer.kv_data[0].pop(full, None)
        if kind is not None:
            writer.add_key_value(full, value, kind)
    if tokenizer:
        tokenizer(writer)
    else:
        write_tokenizer(writer, letters(), [], "gpt-2", eos_token_id=0)
    for name, value in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def opened(model, dtype: str):
    """The float model of the values that a file of this type holds; its state is changed."""
    wanted = gguf.GGMLQuantizationType[dtype]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                codes = gguf.quants.quantize(parameter.numpy(), wanted)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(codes, wanted)))
    return model


def halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of `neighbours`."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def twin_of_file(path):
    """transformers' float32 llama of a file whose head is its embedding."""
    reader = gguf.GGUFReader(path)
    facts = {key.removeprefix("llama."): field.contents() for key, field in reader.fields.items()}
    heads = {"attn_q": facts["attention.head_count"], "attn_k": facts["attention.head_count_kv"]}
    config = transformers.LlamaConfig(
        hidden_size=facts["embedding_length"],
        intermediate_size=facts["feed_forward_length"],
        num_hidden_layers=facts["block_count"],
        num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"],
        vocab_size=len(facts["tokenizer.ggml.tokens"]),
        rms_norm_eps=facts["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": facts["rope.freq_base"]},
        max_position_embeddings=facts["context_length"],
        tie_word_embeddings=True,
    )
    weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    state = {
        "model.embed_tokens.weight": weights["token_embd.weight"],
        "model.norm.weight": weights["output_norm.weight"],
    }
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for layer in range(config.num_hidden_layers):
        for ours, theirs in NAMES.items():
            value = weights.get(f"blk.{layer}.{theirs}.weight")
            if value is not None:
                value = halves(value, heads[theirs]) if theirs in heads else value
                state[f"model.layers.{layer}.{ours}.weight"] = value
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    return model


def twin_of_gemma(path):
    """transformers' float32 Gemma 3 of a file."""
    reader = gguf.GGUFReader(path)
    facts = {key.removeprefix("gemma3."): field.contents() for key, field in reader.fields.items()}
    config = transformers.Gemma3TextConfig(
        hidden_size=facts["embedding_length"],
        intermediate_size=facts["feed_forward_length"],
        num_hidden_layers=facts["block_count"],
        num_attention_heads=facts["attention.head_count"],
        num_key_value_heads=facts["attention.head_count_kv"],
        head_dim=facts["attention.key_length"],
        query_pre_attn_scalar=facts["attention.key_length"],
        vocab_size=len(facts["tokenizer.ggml.tokens"]),
        rms_norm_eps=facts["attention.layer_norm_rms_epsilon"],
        sliding_window=facts["attention.sliding_window"],
        max_position_embeddings=facts["context_length"],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": facts["rope.freq_base"]},
            "sliding_attention": LOCAL,
        },
        attn_implementation="eager",
    )
    names = {theirs: ours for ours, theirs in (NAMES | GEMMA_NAMES).items()}
    state = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        stem = tensor.name.removesuffix(".weight")
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            name = f"model.layers.{layer}.{names[part]}.weight"
        else:
            name = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[stem]
        state[name] = torch.from_numpy(value - 1 if "norm" in name else value)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = transformers.Gemma3ForCausalLM(config).eval()
    model.load_state_dict(state)
    return model


def write_model_with_tokenizer(path, tokens: list[str], add_tokenizer) -> None:
    """One narrow layer with this vocabulary, whose tokenizer a function adds: for what is asked of tokens alone."""
    config = transformers.LlamaConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        vocab_size=len(tokens),
        max_position_embeddings=64,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    writer = gguf.GGUFWriter(str(path), "llama")
    write_header(writer, config)
    writer.add_token_list(tokens)
    add_tokenizer(writer)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 8), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(8, np.float32))
    for name in NAMES.values():
        if "_norm" not in name:
            writer.add_tensor(f"blk.0.{name}.weight", np.zeros((8, 8), np.float32))
        elif name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.0.{name}.weight", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
