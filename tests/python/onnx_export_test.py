"""export_onnx: outputs of onnxruntime against those of the model; which operators a file holds; refusals."""

import pytest
import torch
from kinds import KINDS
from torch import nn

import bie
from bie.onnx_export import plain_twin

OURS = [kind for kind in KINDS if kind.make.__module__ == "kinds"]


@pytest.mark.parametrize("kind", OURS, ids=repr)
def test_a_plain_twin_computes_what_the_layer_does(kind):
    """Codes are the same; sums of floats are rounded."""
    layer = kind.trained().eval()
    x = kind.batch(1)
    with torch.no_grad():
        torch.testing.assert_close(plain_twin(layer)(x), layer(x), rtol=1e-4, atol=1e-4)
    assert layer.weight is not None, "the model is left alone"


@pytest.mark.parametrize("bits", ["w1", "w3", "w4", "w8"])
def test_weights_alone(bits):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 40, padding_idx=2), nn.Linear(40, 6))
    bie.convert(model, bits).model.eval()
    x = torch.tensor([[1, 2, 8], [0, 2, 3]])
    torch.testing.assert_close(plain_twin(model)(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [bie.nn.Q8MatMul, bie.nn.Q4MatMul, bie.nn.BinaryMatMul])
def test_products(make):
    torch.manual_seed(0)
    layer, x, y = make(), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    layer(x, y)
    torch.testing.assert_close(plain_twin(layer.eval())(x, y), layer(x, y), rtol=1e-4, atol=1e-4)


def test_embeddings_of_signs():
    layer, x = bie.nn.BinaryEmbedding(9, 5, padding_idx=0), torch.tensor([0, 3, 8])
    assert not plain_twin(layer)(x)[0].any(), "the padding row"
    assert torch.equal(plain_twin(layer)(x), layer.eval()(x))


def model_of_all():
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), bie.nn.Q8Conv2d(8, 8, 3, padding=1), bie.nn.Q4Conv2d(8, 8, 3, bias=True)),
        *(nn.BatchNorm2d(8), bie.nn.BinaryConv2d(8, 6, 3, padding=1), nn.Flatten(2), bie.nn.Q8Conv1d(6, 4, 3)),
        *(nn.Flatten(), bie.nn.Q4Linear(92, 32), bie.nn.BinaryLinear(32, 32), nn.Linear(32, 5)),
    )
    bie.convert(net, "w4", filter=lambda name, module: name == "11")
    net(torch.randn(8, 1, 9, 9))
    return net.eval()


def test_onnxruntime(tmp_path):
    """A whole model with a dynamic batch. A sum that is rounded otherwise may move a code behind it by one step."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    net, x = model_of_all(), torch.randn(3, 1, 9, 9)
    sizes = {"dynamic_shapes": ({0: torch.export.Dim("batch", min=2, max=64)},)}
    bie.export_onnx(net, x, tmp_path / "net.onnx", **sizes)
    session = runtime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    for size in (3, 5):
        x = torch.randn(size, 1, 9, 9)
        found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
        with torch.no_grad():
            wanted = net(x)
        assert float((found - wanted).norm() / wanted.norm()) < 0.05


def test_a_file_holds_onnxs_own_operators(tmp_path):
    import onnx

    bie.export_onnx(model_of_all(), torch.randn(2, 1, 9, 9), tmp_path / "net.onnx")
    file = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(file)
    assert {node.domain for node in file.graph.node} <= {"", "ai.onnx"} and not file.functions
    kinds = [node.op_type for node in file.graph.node]
    assert kinds.count("QuantizeLinear") == 4 and kinds.count("DequantizeLinear") == 12
    types = [tensor.data_type for tensor in file.graph.initializer]
    assert types.count(onnx.TensorProto.INT8) >= 6


def test_weights_alone_are_bytes_in_the_file(tmp_path):
    import onnx

    layer = bie.convert(nn.Linear(256, 128), "w4").model.eval()
    bie.export_onnx(layer, torch.randn(2, 256), tmp_path / "net.onnx")
    tensors = onnx.load(tmp_path / "net.onnx").graph.initializer
    codes = [tensor for tensor in tensors if tensor.data_type == onnx.TensorProto.UINT8]
    assert [list(tensor.dims) for tensor in codes] == [[8, 32, 128]]
    assert (tmp_path / "net.onnx").stat().st_size < 2 * 256 * 128


def test_refusals():
    with pytest.raises(ValueError, match="in training"):
        bie.export_onnx(bie.nn.Q8Linear(4, 2), torch.randn(1, 4))
    with pytest.raises(ValueError, match="0 has no step size yet"):
        bie.export_onnx(nn.Sequential(bie.nn.Q8Linear(4, 2)).eval(), torch.randn(1, 4))
    with pytest.raises(ValueError, match="the model is a BinaryEmbeddingBag, which has no form"):
        bie.export_onnx(bie.nn.BinaryEmbeddingBag(4, 2).eval(), torch.zeros(1, 2, dtype=torch.long))


def test_codes_of_four_bits_take_half_a_byte(tmp_path):
    """The same outputs as of the file of bytes, in half of it; 1-bit and 4-bit products, weights alone."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    torch.manual_seed(0)
    net = nn.Sequential(bie.nn.Q4Linear(256, 256), nn.ReLU(), bie.nn.BinaryLinear(256, 256), nn.Linear(256, 256))
    bie.convert(net, "w4", filter=lambda name, module: name == "3")
    net(torch.randn(8, 256))
    net.eval()
    x, outputs, bytes_ = torch.randn(2, 256), [], []
    for int4 in (False, True):
        path = tmp_path / f"{int4}.onnx"
        bie.export_onnx(net, x, path, int4=int4)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        outputs.append(torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]))
        bytes_.append(sum(file.stat().st_size for file in tmp_path.glob(f"{int4}.onnx*")))
    file = onnx.load(tmp_path / "True.onnx")
    onnx.checker.check_model(file)
    kinds = [tensor.data_type for tensor in file.graph.initializer if "narrow_codes" in tensor.name]
    assert sorted(kinds) == sorted([onnx.TensorProto.INT4, onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
    assert bytes_[1] < 0.6 * bytes_[0]
    with torch.no_grad():
        wanted = net(x)
    for found in outputs:
        assert float((found - wanted).norm() / wanted.norm()) < 0.05


@pytest.mark.parametrize("make", [bie.nn.Q8Linear, bie.nn.Q4Linear, bie.nn.BinaryLinear])
def test_onnxruntime_reads_products_of_three_axes_of_later_opsets(tmp_path, make):
    """At its default optimisation, which makes a Gemm of a product with a bias."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    torch.manual_seed(0)
    net, x = nn.Sequential(make(64, 48, bias=True), nn.ReLU(), make(48, 32, bias=True)), torch.randn(2, 5, 64)
    net(torch.randn(8, 64))
    with torch.no_grad():
        wanted = net.eval()(x)
    bie.export_onnx(net, x, tmp_path / "n.onnx", int4=True)
    session = runtime.InferenceSession(str(tmp_path / "n.onnx"), providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
