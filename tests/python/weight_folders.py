"""Folders of weights for tests, written by the safetensors package and packed here by AutoGPTQ's rules."""

import json

import numpy as np
import torch
from safetensors.torch import save_file


def generator(seed):
    return torch.Generator().manual_seed(seed)


def packed(codes, bits):
    """Codes [k, n] in words [ceil(k * bits / 32), n], the way of AutoGPTQ's ``QuantLinear.pack``: bit after bit."""
    k, n = codes.shape
    stream = ((codes.numpy().astype(np.uint8)[:, None, :] >> np.arange(bits)[None, :, None]) & 1).reshape(k * bits, n)
    stream = np.pad(stream, ((0, -len(stream) % 32), (0, 0))).reshape(-1, 32, n).astype(np.uint64)
    words = (stream << np.arange(32, dtype=np.uint64)[None, :, None]).sum(1).astype(np.uint32)
    return torch.from_numpy(words.view(np.int32).copy())


def gptq(k, n, bits, group, seed=0, *, version=1, act_order=False, index=True, bias=False, least_zero=1):
    """({key: tensor}, W [k, n] in float32)"""
    g = generator(seed)
    size = k if group == -1 else group
    groups = -(-k // size)
    codes = torch.randint(0, 2**bits, (k, n), generator=g)
    zeros = torch.randint(least_zero, 2**bits, (groups, n), generator=g)
    scales = (torch.rand(groups, n, generator=g) + 0.5).half()
    g_idx = torch.arange(k) // size
    if act_order:
        g_idx = g_idx[torch.randperm(k, generator=g)]
    stored = zeros - 1 if version == 1 else zeros
    tensors = {"qweight": packed(codes, bits), "qzeros": packed(stored.t(), bits).t().contiguous(), "scales": scales}
    if index:
        tensors["g_idx"] = g_idx.int()
    if bias:
        tensors["bias"] = torch.randn(n, generator=g).half()
    return tensors, scales.float()[g_idx] * (codes - zeros[g_idx]).float()


def opened(layer):
    weight = layer._coded()
    options = weight.options | {"in_features": layer.in_channels, "dtype": torch.float32}
    return torch.ops.bie.weight_only_open(*weight.tensors, **options)


def write(folder, layers, config=None, quantize_config=None, strategy=None, rest=None):
    tensors = {f"{name}.{key}": tensor for name, parts in layers.items() for key, tensor in parts.items()}
    folder.mkdir(exist_ok=True)
    save_file(tensors | (rest or {}), folder / "model.safetensors")
    texts = {"config.json": config, "quantize_config.json": quantize_config, "quant_strategy.json": strategy}
    for name, value in texts.items():
        if value is not None:
            (folder / name).write_text(json.dumps(value))
    return folder


def sharded(folder, layers, **index):
    folder.mkdir()
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    weight_map = {}
    for shard, (name, parts) in zip(names, layers.items(), strict=True):
        tensors = {f"{name}.{key}": tensor for key, tensor in parts.items()}
        save_file(tensors, folder / shard)
        weight_map |= dict.fromkeys(tensors, shard)
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map | index})
    (folder / "model.safetensors.index.json").write_text(text)
    return names
