"""What PyTorch users do to modules: compile, export, copy, pickle, convert, share, hook, functional calls; refusals."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import formulas
import pytest
import torch
from kinds import INTEGER, KINDS, formula
from torch import nn

from bie.nn import BinaryLinear, Q4Linear, Q8Linear
from bie.optim import DiodeMix, integer_parameters

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
every_integer = pytest.mark.parametrize("kind", INTEGER, ids=repr)


def batches(kind):
    """Batches of three sizes; none is 1, which torch treats as a constant."""
    for size in (2, 3, 7):
        yield torch.randn(size, *kind.shape[1:], generator=torch.Generator().manual_seed(size))


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@every_kind
@pytest.mark.parametrize("packed", [False, True])
def test_compiled_evaluation_is_one_dynamic_graph(kind, packed):
    layer = kind.trained().eval()
    if packed:
        layer.generate_quantized_weight(qweight_only=True)
    wanted = [layer(x) for x in batches(kind)]
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for x, y in zip(batches(kind), wanted, strict=True):
            assert torch.equal(compiled(x), y)


def test_inductor():
    """The default backend, once: a whole model, batch sizes after each other, gradients off."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 40), nn.PReLU(), BinaryLinear(40, 24), nn.BatchNorm1d(24), Q8Linear(24, 5))
    model(torch.randn(64, 12))
    model.eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for size in (3, 8):
            x = torch.randn(size, 12)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


@every_kind
def test_a_compiled_layer_sees_new_weights(kind):
    layer, x = kind.trained().eval(), kind.batch(1)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        compiled(x)
        layer.load_state_dict(kind.trained(seed=4).state_dict())
        assert torch.equal(compiled(x), formula(layer, x))
        if kind.integer:
            layer.weight.clamp_(min=-7).neg_()  # a code of 4 bits again
            assert torch.equal(compiled(x), formula(layer, x))


@every_integer
def test_compiled_training_runs_outside_the_graph(kind):
    layer, x = kind.trained(), kind.batch(1)
    layer(x).square().sum().backward()
    wanted = layer.weight.grad.clone()
    layer.weight.grad = None
    compiled = torch.compile(lambda v: layer(v * 1.0).square().sum(), backend="aot_eager")
    compiled(x).backward()
    assert torch.equal(layer.weight.grad, wanted)
    layer.weight.grad = None
    whole = torch.compile(lambda v: layer(v * 1.0).square().sum(), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="no integer gradient is lost"):
        whole(x)
    assert layer.weight.grad is None


@every_kind
@pytest.mark.parametrize("packed", [False, True])
def test_export(kind, packed):
    layer = kind.trained().eval()
    if packed:
        layer.generate_quantized_weight(qweight_only=True)
    sizes = {0: torch.export.Dim("batch", min=2, max=64)}
    program = torch.export.export(layer, (torch.randn(3, *kind.shape[1:]),), dynamic_shapes=(sizes,))
    with torch.no_grad():
        for x in batches(kind):
            assert torch.equal(program.module()(x), layer(x))


@every_kind
def test_copies(kind):
    layer, x = kind.trained(), kind.batch(1)
    layer.eval()
    wanted = layer(x)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin._ready is None  # what evaluation derives is not copied
        assert type(twin.weight) is type(layer.weight)
        assert torch.equal(twin(x), wanted)
        with torch.no_grad():
            twin.weight.zero_()
        assert torch.equal(layer(x), wanted)
        twin.train()
        if kind.integer:
            assert getattr(twin.weight, "scale_w", twin.scale_w) is twin.scale_w
            twin(x).sum().backward()
            assert twin.weight.grad is not None and layer.weight.grad is None


@every_integer
def test_a_copied_weight_keeps_its_wide_gradient(kind):
    layer = kind.trained()
    layer.weight.grad_dtype = torch.float32
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        twin(kind.batch()).sum().backward()
        assert twin.weight.grad.dtype == torch.float32


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_conversions_keep_scales_and_integers(kind, dtype):
    layer = kind.trained()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    layer.to(dtype)
    for name, tensor in layer.state_dict().items():
        scale = name in ("scale_a", "scale_w", "eps", "channel_scale") or not before[name].is_floating_point()
        assert tensor.dtype == (before[name].dtype if scale else dtype), name
        if scale:
            assert torch.equal(tensor, before[name]), name
    x = kind.batch(1).to(dtype)
    assert layer.dtype == dtype
    assert torch.equal(layer(x), formula(layer, x))
    layer(x).sum().backward()
    assert torch.equal(layer.eval()(x), formula(layer, x))


def test_to_empty_and_back_from_meta():
    layer = Q4Linear(9, 4)
    layer(torch.randn(3, 9))
    layer.eval()
    layer.generate_quantized_weight(qweight_only=True)
    twin = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    twin.load_state_dict(layer.state_dict())
    x = torch.randn(2, 9)
    assert torch.equal(twin(x), layer(x))
    assert twin.device == torch.device("cpu")


def test_device_and_dtype_follow_the_tensors():
    layer = BinaryLinear(8, 8, device="meta", dtype=torch.bfloat16)
    assert layer.device == torch.device("meta") and layer.weight.is_meta and layer.scale_a.is_meta
    assert layer.dtype == torch.bfloat16
    assert layer.float().dtype == torch.float32


@every_kind
def test_functional_call(kind):
    layer, x = kind.trained(), kind.batch(1)
    other = kind.trained(seed=6)
    state = {name: tensor.detach().clone() for name, tensor in other.state_dict().items()}
    for training in (True, False):
        layer.train(training)
        before = layer(x)
        assert torch.equal(torch.func.functional_call(layer, state, (x,)), formula(other, x))
        assert torch.equal(layer(x), before)


@every_integer
def test_functional_call_gives_the_given_weight_its_gradient(kind):
    layer, x = kind.trained(), kind.batch(1)
    weight = layer.weight.detach().clone()
    torch.func.functional_call(layer, {"weight": weight}, (x,)).square().sum().backward()
    assert weight.grad is not None and layer.weight.grad is None


@every_kind
def test_hooks(kind):
    layer, x = kind.trained(), kind.batch(1)
    seen = []
    layer.register_forward_pre_hook(lambda module, args: seen.append("pre"))
    layer.register_forward_hook(lambda module, args, y: seen.append("post"))
    layer.register_full_backward_hook(lambda module, grad_in, grad_out: seen.append("backward"))
    layer(x.requires_grad_()).sum().backward()
    assert seen == ["pre", "post", "backward"]


def test_a_module_used_twice_and_weights_shared():
    torch.manual_seed(0)
    x, x2 = torch.randn(4, 21), torch.randn(3, 21)
    layer, twin = BinaryLinear(21, 6), BinaryLinear(21, 6)
    twin.weight = layer.weight
    layer(x)
    twin(x2)
    assert twin.weight is layer.weight and twin.weight.dtype == torch.int8
    assert float(twin.scale_w) == float(layer.scale_w)
    layer.weight.grad_dtype = torch.float32
    (layer(x).square().sum() + layer(x2).square().sum() + twin(x2).square().sum()).backward()
    wanted = 0
    for module, value in ((layer, x), (layer, x2), (twin, x2)):
        args = (value, layer.weight, module.scale_a.detach(), module.scale_w, module.bias_a.detach())
        y = formulas.binary_forward(*args)
        wanted = wanted + formulas.binary_backward(*args, 2 * y)[1]
    formulas.close(layer.weight.grad, wanted)
    assert len(list(integer_parameters(nn.ModuleList([layer, twin])))) == 1


def test_sequential_trains_and_evaluates():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 33), nn.BatchNorm1d(33), BinaryLinear(33, 17), nn.PReLU(), Q4Linear(17, 4))
    x = torch.randn(64, 10)
    target = torch.randint(0, 4, (64,))
    model(x)
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.7 * losses[0]
    model[1].eval()
    training = model(x)
    assert torch.equal(model.eval()(x), training)


@every_kind
@pytest.mark.parametrize("training", [True, False])
def test_transforms_of_torch_func_are_refused(kind, training):
    layer, x = kind.trained().train(training), kind.batch()
    calls = (
        lambda: torch.func.grad(lambda v: layer(v).sum())(x),
        lambda: torch.func.vmap(layer)(x.unsqueeze(0)),
        lambda: torch.func.jvp(layer, (x,), (x,)),
        lambda: torch.func.jacrev(layer)(x),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match=r"transforms of torch\.func"):
            call()


@every_kind
def test_forward_mode_derivatives_are_refused(kind):
    layer, x = kind.trained(), kind.batch()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError, match="no forward-mode derivative"):
            layer(dual)


@every_kind
def test_data_parallel_is_refused(kind):
    with pytest.raises(RuntimeError, match="DataParallel is refused"):
        kind.make()._replicate_for_data_parallel()


def in_a_process(script, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_fsdp_is_refused_with_a_sentence():
    """FullyShardedDataParallel refuses them itself, for their scales; the model is as it was."""
    out = in_a_process(
        """
        import os, torch, warnings
        warnings.simplefilter("ignore")
        from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        from bie.nn import BinaryLinear
        torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        for shard in (lambda m: FullyShardedDataParallel(m, device_id=torch.device("cpu")),
                      lambda m: fully_shard(m, mesh=mesh)):
            for trained in (False, True):
                layer = BinaryLinear(16, 8)
                if trained:
                    layer(torch.randn(2, 16))
                try:
                    shard(layer)
                except ValueError as error:
                    print("refused" if "scalar parameters" in str(error) else error)
                layer(torch.randn(2, 16))
        from bie.nn import MPQLinear, Q8MatMul, WeightOnlyEmbedding
        for make in (lambda: MPQLinear(16, 8, w_bit=4, group_size=8), lambda: WeightOnlyEmbedding(16, 8), Q8MatMul):
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), make())
            try:
                fully_shard(model, mesh=mesh)
            except ValueError as error:
                print(error)
            assert type(model) is torch.nn.Sequential and not hasattr(model[0].weight, "device_mesh")
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), make())
            whole = {p for p in model.parameters() if p.dim() == 0 or not p.is_floating_point()}
            fully_shard(model, mesh=mesh, ignored_params=whole)
            assert hasattr(model[0].weight, "device_mesh")
        torch.distributed.destroy_process_group()
        """
    )
    lines = out.splitlines()
    assert lines[:2] == ["refused"] * 2
    wanted = ["BinaryLinear."] * 2 + ["MPQLinear.qweight, [2, 8] of int32: give"]
    wanted += ["WeightOnlyEmbedding.qweight, [16, 1] of int32: give", "Q8MatMul."]
    for line, parameter in zip(lines[2:], wanted, strict=True):
        assert line.startswith(f"fully_shard: expected parameters of floats with axes, got {parameter}")
        assert "ignored_params={p for p in" in line and "IntegerReducer(model)" in line


def test_several_processes_are_refused():
    """Where nobody reduces their integer gradients."""
    script = """
        import sys, torch
        from bie.nn import BinaryLinear
        from bie.optim import DiodeMix
        store = torch.distributed.FileStore(sys.argv[1], 2)
        torch.distributed.init_process_group("gloo", store=store, rank=RANK, world_size=2)
        layer = BinaryLinear(16, 8)
        layer(torch.randn(2, 16)).sum().backward()
        try:
            DiodeMix(layer.parameters()).step()
        except RuntimeError as error:
            print("refused" if "drift apart" in str(error) else error)
        torch.distributed.barrier()
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        programs = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(script).replace("RANK", str(rank)), f"{folder}/store"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in (0, 1)
        ]
        assert [program.communicate(timeout=120)[0].strip() for program in programs] == ["refused", "refused"]
