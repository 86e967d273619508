"""Files of language models as models of transformers: every family against a float twin, both ways, refusals."""

import re
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import llama as smollm  # noqa: E402

import bie.hf  # noqa: E402
from bie.nn import MPQLinear, WeightOnlyEmbedding  # noqa: E402

SIZES = {
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 32, "eos_token_id": 7, "bos_token_id": 5},
}
KINDS = {
    "llama": {"model_type": "llama"},
    "tied llama": {"model_type": "llama", "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    "llama with wide heads": {"model_type": "llama", "head_dim": 32},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "gemma3": {"model_type": "gemma3_text", "num_hidden_layers": 3, "head_dim": 32, "query_pre_attn_scalar": 32},
}
KINDS["gemma3"] |= {
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding")],
    "sliding_window": 4,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3["original_max_position_embeddings"] = 32
SCALED = {
    "llama, linear": KINDS["llama"] | {"rope": LINEAR},
    "qwen2, yarn": KINDS["qwen2"] | {"rope": YARN},
    "llama, yarn of its own": KINDS["llama"] | {"rope": YARN | {"attention_factor": 1.5, "beta_fast": 8.0}},
    "tied llama, llama 3": KINDS["tied llama"] | {"rope": LLAMA3},
    "gemma3, linear": KINDS["gemma3"] | {"rope": LINEAR},
}
KINDS |= SCALED
IDS = torch.tensor([[3, 17, 5, 88, 41, 2, 9]])


def float_model(kind):
    """Random weights, norms and biases included; angles that tell positions apart."""
    torch.manual_seed(0)
    options = SIZES | KINDS[kind]
    rope = {"rope_type": "default", "rope_theta": 50.0} | options.pop("rope", {})
    if options["model_type"] == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": 20.0}
        rope = {"full_attention": rope, "sliding_attention": local}
    options["rope_parameters"] = rope
    config = transformers.AutoConfig.for_model(options.pop("model_type"), **options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
                parameter.sub_(float("gemma" in kind))  # whose norms multiply by 1 + the weight
            elif name.endswith("bias"):
                parameter.normal_(0, 0.5)
            else:
                parameter.normal_(0, 0.2)
    return model


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


def opened(model):
    """The float model of the values that the coded layers of another one hold."""
    twin = float_model_like(model)
    state = twin.state_dict()
    for name, module in model.named_modules():
        if isinstance(module, MPQLinear | WeightOnlyEmbedding):
            state[f"{name}.weight"] = bie.formats.rows.rows_of(name, module).open()
    if twin.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    others = {k: v for k, v in model.state_dict().items() if k in state and v.is_floating_point() and "norm" in k}
    others |= {k: v for k, v in model.state_dict().items() if k.endswith("proj.bias") and k in state}
    twin.load_state_dict(state | others)
    return twin


def float_model_like(model):
    return transformers.AutoModelForCausalLM.from_config(model.config).eval()


def difference(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", KINDS)
def test_floats_come_back_as_they_were(kind, tmp_path):
    """Of 16 bits, in the names and the order of GGUF in between."""
    model, path = float_model(kind), tmp_path / "a.gguf"
    bie.hf.save_gguf(model, path)
    again = bie.hf.load(path)
    assert difference(logits(again), logits(model)) < 3e-3
    assert again.config.eos_token_id == 7 and again.config.bos_token_id == 5
    assert again.config.tie_word_embeddings == model.config.tie_word_embeddings
    bie.hf.save_gguf(again, tmp_path / "b.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", SCALED)
def test_scaled_positions_change_the_answers(kind, tmp_path):
    model, path = float_model(kind), tmp_path / "a.gguf"
    bie.hf.save_gguf(model, path)
    plain = float_model(kind.partition(",")[0])
    assert difference(logits(plain), logits(model)) > 0.01
    again = bie.hf.load(path)
    assert difference(logits(again), logits(model)) < 3e-3
    again.save_pretrained(tmp_path / "s")
    assert torch.equal(logits(type(again).from_pretrained(tmp_path / "s")), logits(again))
    file = bie.formats.load_gguf(path)
    assert ("rope_freqs.weight" in file) == ("llama 3" in kind)
    if "llama 3" in kind:
        factors = file["rope_freqs.weight"].open()
        assert float(factors.min()) == 1 and float(factors.max()) == 8 and bool(((factors > 1) & (factors < 8)).any())


def test_gemma_is_read_by_transformers_too(tmp_path):
    """transformers has a reader of its own, which assumes a period of six layers and heads of 256."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 6, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 256}
    config = transformers.AutoConfig.for_model("gemma3_text", **SIZES | sizes, sliding_window=4)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.uniform_(-0.5, 0.5) if "norm" in name else parameter.normal_(0, 0.2)
    bie.hf.save_gguf(model, tmp_path / "a.gguf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="a.gguf", dtype=torch.float32)
    again = bie.hf.load(tmp_path / "a.gguf")
    assert difference(logits(again), logits(model)) < 3e-3
    assert difference(logits(theirs), logits(again)) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type", ["Q8_0", "Q4_1"])
def test_codes_compute_what_their_numbers_do(kind, type, tmp_path):
    path = tmp_path / "a.gguf"
    bie.hf.save_gguf(float_model(kind), path)
    file = bie.formats.load_gguf(path)
    coded = {n: (t.open().float(), type) if len(t.shape) == 2 else t for n, t in file.tensors.items()}
    bie.formats.save_gguf(path, coded, file.metadata, file.types)
    model = bie.hf.load(path)
    assert sum(isinstance(module, MPQLinear) for module in model.modules()) >= 14
    assert difference(logits(model), logits(opened(model))) < 1e-5
    bie.hf.save_gguf(model, tmp_path / "b.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == path.read_bytes()
    steps = model.generate(IDS, max_new_tokens=4, do_sample=False)
    assert steps.shape == (1, 11) or int(steps[0, -1]) == 7


@pytest.mark.parametrize("kind", ["tied llama", "qwen3"])
@pytest.mark.parametrize("type", [None, "Q8_0", "Q4_0", "Q4_1"])
def test_a_loaded_model_is_saved_as_every_model_of_transformers(kind, type, tmp_path):
    path = tmp_path / "a.gguf"
    bie.hf.save_gguf(float_model(kind), path)
    file = bie.formats.load_gguf(path)
    if type is not None:
        coded = {n: (t.open().float(), type) if len(t.shape) == 2 else t for n, t in file.tensors.items()}
        bie.formats.save_gguf(path, coded, file.metadata, file.types)
    model = bie.hf.load(path, activation="int8" if type == "Q4_0" else "exact")
    model.save_pretrained(tmp_path / "s")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "s")
    assert torch.equal(logits(again), logits(model))
    assert {k: v.dtype for k, v in again.state_dict().items()} == {k: v.dtype for k, v in model.state_dict().items()}
    bie.hf.save_gguf(model, tmp_path / "b.gguf")
    bie.hf.save_gguf(again, tmp_path / "c.gguf")
    one, other = (bie.formats.load_gguf(tmp_path / f"{name}.gguf") for name in "bc")
    assert all(torch.equal(tensor.blocks, other[name].blocks) for name, tensor in one.tensors.items())


def test_a_saved_model_says_what_its_layers_are_by_then(tmp_path):
    bie.hf.save_gguf(float_model("tied llama"), tmp_path / "a.gguf")
    file = bie.formats.load_gguf(tmp_path / "a.gguf")
    coded = {n: (t.open().float(), "Q8_0") if len(t.shape) == 2 else t for n, t in file.tensors.items()}
    bie.formats.save_gguf(tmp_path / "a.gguf", coded, file.metadata, file.types)
    model = bie.hf.load(tmp_path / "a.gguf").bfloat16()
    for module in model.modules():
        if isinstance(module, MPQLinear | WeightOnlyEmbedding):
            module.activation = "int8"
    model.save_pretrained(tmp_path / "s")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "s")
    assert again.model.embed_tokens.activation == "int8" and again.model.embed_tokens.scales.dtype == torch.bfloat16
    state = again.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_rows_of_q_and_k_stand_in_pairs(tmp_path):
    """As llama.cpp's converter writes them: a model that is read without turning them back is another one."""
    model, path = float_model("llama"), tmp_path / "a.gguf"
    bie.hf.save_gguf(model, path)
    stored = bie.formats.load_gguf(path)["blk.1.attn_k.weight"].open()
    wanted = model.model.layers[1].self_attn.k_proj.weight.detach()
    by_head = wanted.view(2, 2, 8, 64).transpose(1, 2).reshape(32, 64)  # heads, halves of a head, rows of a half
    assert torch.equal(stored, by_head.half()) and not torch.equal(stored, wanted.half())


@pytest.mark.parametrize("kind", ["llama", "tied llama"])
def test_a_converted_model_is_written_and_read(kind, tmp_path):
    model = float_model(kind)
    bie.convert(model, "w4", dtype=torch.float16)
    bie.hf.save_gguf(model, tmp_path / "a.gguf")
    again = bie.hf.load(tmp_path / "a.gguf")
    assert difference(logits(again), logits(model)) < 3e-3  # the table and the output layer are floats of 16 bits
    eight = bie.hf.load(tmp_path / "a.gguf", activation="int8")
    assert all(m.activation == "int8" for m in eight.modules() if isinstance(m, MPQLinear))
    assert 0 < difference(logits(eight), logits(again)) < 0.1


def blocks_of_the_page():
    """The blocks of docs/load-models.md that want transformers, which the test of the pages does not run."""
    page = (Path(__file__).parents[2] / "docs/load-models.md").read_text(encoding="utf-8")
    return [body for body in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if "import" in body]


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder, model = tmp_path / "model-gptq", float_model("llama")
    model.config.save_pretrained(folder)
    options = {"group_size": 32, "use_gba_quant": False, "dtype": torch.float16}
    bie.convert(model, "w4", filter=lambda name, module: "proj" in name, **options)
    bie.formats.save_gptq(folder, model)
    loaded, meta = blocks_of_the_page()
    world = {}
    exec(meta, world)
    assert "torch.Size([1, 3, 96])" in capsys.readouterr().out
    assert difference(logits(world["model"]), logits(model)) < 1e-3
    path = smollm.model_path()
    name = re.search(r'load\("(.*?)"', loaded).group(1)
    (tmp_path / name).symlink_to(path)
    exec(loaded, {})
    assert "Water boils at" in capsys.readouterr().out
    assert (tmp_path / "again.gguf").stat().st_size > 0.9 * Path(path).stat().st_size


def test_a_folder_of_gptq(tmp_path):
    model = float_model("llama")
    model.config.save_pretrained(tmp_path)
    options = {"group_size": 32, "use_gba_quant": False, "dtype": torch.float16}
    bie.convert(model, "w4", filter=lambda name, module: "proj" in name, **options)
    bie.formats.save_gptq(tmp_path, model)
    again = bie.hf.load(tmp_path)
    assert difference(logits(again), logits(model)) < 1e-3
    again.save_pretrained(tmp_path / "s")
    assert torch.equal(logits(type(again).from_pretrained(tmp_path / "s")), logits(again))


YARNS = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}


def changed(tmp_path, metadata=None, tensors=None):
    path = tmp_path / "a.gguf"
    bie.hf.save_gguf(float_model("llama"), path)
    file = bie.formats.load_gguf(path)
    kept = {n: t.open().clone() for n, t in file.tensors.items()} | (tensors or {})
    kept = {n: t for n, t in kept.items() if t is not None}
    meta = {k: v for k, v in (file.metadata | (metadata or {})).items() if v is not None}
    bie.formats.save_gguf(path, kept, meta)
    return path


@pytest.mark.parametrize(
    ("metadata", "tensors", "sentence"),
    [
        ({"general.architecture": "mamba"}, {}, "architecture is 'mamba', expected one of llama"),
        ({"llama.rope.scaling.type": "longrope"}, {}, "scaled by 'longrope', expected 'none', 'linear' or 'yarn'"),
        (YARNS | {"llama.rope.scaling.yarn_ext_factor": 0.5}, {}, "yarn_ext_factor of 0.5, expected 1.0"),
        ({"llama.rope.dimension_count": 8}, {}, "turn 8 of 16 elements, expected all"),
        ({}, {"rope_freqs.weight": torch.ones(5)}, r"'rope_freqs.weight' is \[5\], expected \[8\]"),
        (YARNS, {"rope_freqs.weight": torch.ones(8)}, "scaled by 'yarn' and by rope_freqs.weight, expected one"),
        ({"llama.block_count": None}, {}, "no entry llama.block_count"),
        ({"llama.block_count": 3}, {}, "no tensor 'blk.2.attn_q.weight'"),
        ({"llama.block_count": 1}, {}, "9 tensors that llama has no place for, such as 'blk.1"),
        ({}, {"blk.0.ffn_up.weight": torch.ones(4, 64)}, r"'blk.0.ffn_up.weight' is \[4, 64\], expected \[96, 64\]"),
        ({}, {"blk.0.attn_norm.weight": None}, "in no file, such as 'model.layers.0.input_layernorm.weight'"),
        ({}, {"token_embd.weight": None}, "no tensor 'token_embd.weight'"),
    ],
)
def test_files_that_are_no_such_model(tmp_path, metadata, tensors, sentence):
    with pytest.raises(ValueError, match=sentence):
        bie.hf.load(changed(tmp_path, metadata, tensors))


def test_models_that_gguf_cannot_hold(tmp_path):
    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    )
    with pytest.raises(ValueError, match="the model is a bert, expected one of"):
        bie.hf.save_gguf(bert, tmp_path / "a.gguf")
    model = float_model("llama")
    bie.convert(model, "w3", dtype=torch.float16)
    with pytest.raises(ValueError, match=r"save_gguf: .*GGUF has no type for 3 bits"):
        bie.hf.save_gguf(model, tmp_path / "a.gguf")
    model = float_model("llama")
    bie.convert(model, "w4")
    cure = r"bie\.convert\(model, target, dtype=torch\.float16\) makes layers that can be written"
    with pytest.raises(ValueError, match=f"token_embd.*they would be rounded; {cure}"):
        bie.hf.save_gguf(model, tmp_path / "a.gguf")
    with pytest.raises(ValueError, match=cure):
        bie.formats.save_gguf(tmp_path / "a.gguf", {"w": (model.lm_head, "Q4_1")})
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, attention_bias=True))
    with pytest.raises(ValueError, match=r"save_gguf: blk\.0\.attn_q has a bias"):
        bie.hf.save_gguf(model, tmp_path / "a.gguf")
    assert not (tmp_path / "a.gguf").exists()


def test_mistral_is_of_the_llama_family(tmp_path):
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, sliding_window=None)).eval()
    bie.hf.save_gguf(model, tmp_path / "a.gguf")
    again = bie.hf.load(tmp_path / "a.gguf")
    assert again.config.model_type == "llama" and difference(logits(again), logits(model)) < 3e-3


def test_a_real_model_says_what_its_twin_does():
    """SmolLM2-135M: the most likely next words of llama's forward pass written down by hand."""
    path = smollm.model_path()
    file, model = bie.formats.load_gguf(path), bie.hf.load(path)
    ids = torch.tensor(smollm.Tokenizer(file.metadata).encode(smollm.TEXT)[:40])
    table = file["token_embd.weight"].embedding()
    twin = smollm.Llama(
        file.metadata,
        lambda name: file[f"{name}.weight"].linear(),
        (table, table.head()),
        lambda name: file[f"{name}.weight"].open(),
    ).eval()
    with torch.no_grad():
        found, wanted = model(ids[None]).logits[0], twin(ids)
    assert difference(found, wanted) < 1e-4
    assert bool((found.argmax(1) == wanted.argmax(1)).all())
    tokenizer = bie.hf.load_tokenizer(path)
    assert tokenizer.decode(tokenizer("Water boils at")["input_ids"]) == "Water boils at"
