"""Folders of 4 bits as GPTQ, AWQ and compressed-tensors write them, of a tiny Llama."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints.words import AWQ_ORDER, words
from tests.torch.hub.families import LLAMA, checkpoint

Tensors = dict[str, torch.Tensor]


def _rounded(w: Any, group: int, *, symmetric: bool) -> tuple[Any, Any, Any]:
    """q uint8 [n, k], zero uint8 and scale float16 [n, groups], plainly."""
    n, k = w.shape
    parts = w.reshape(n, -1, group or k)
    low, high = parts.min(axis=2), parts.max(axis=2)
    if symmetric:
        scale = (np.maximum(high, -low) / 7).astype(np.float16)
        zero = np.full(scale.shape, 8, np.uint8)
    else:
        scale = ((high - low) / 15).astype(np.float16)
        zero = np.rint(-low / scale).clip(1, 15).astype(np.uint8)
    steps = np.rint(parts / scale[..., None].astype(np.float32)) + zero[..., None]
    return steps.clip(0, 15).astype(np.uint8).reshape(n, k), zero, scale


def _exact(q: Any, zero: Any, scale: Any, group: int) -> Any:
    n, k = q.shape
    parts = q.reshape(n, -1, group or k).astype(np.float32) - zero[..., None]
    return (parts * scale.astype(np.float32)[..., None]).reshape(n, k)


def _gptq(q: Any, zero: Any, scale: Any, group: int, offset: int = 1) -> Tensors:
    return {
        "qweight": torch.from_numpy(words(q).T.copy()),
        "qzeros": torch.from_numpy(words((zero - offset).T.copy())),
        "scales": torch.from_numpy(scale.T.copy()),
        "g_idx": (torch.arange(q.shape[1]) // (group or q.shape[1])).int(),
    }


def _gptq_v2(q: Any, zero: Any, scale: Any, group: int) -> Tensors:
    return _gptq(q, zero, scale, group, 0)


def _awq(q: Any, zero: Any, scale: Any, group: int) -> Tensors:
    return {
        "qweight": torch.from_numpy(words(q.T.copy(), AWQ_ORDER)),
        "qzeros": torch.from_numpy(words(zero.T.copy(), AWQ_ORDER)),
        "scales": torch.from_numpy(scale.T.copy()),
    }


def _packed(q: Any, zero: Any, scale: Any, group: int) -> Tensors:
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    def signed(values: Any) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int8) - np.int8(8))

    found = {
        "weight_packed": pack_to_int32(signed(q), 4),
        "weight_scale": torch.from_numpy(scale),
        "weight_shape": torch.tensor(q.shape),
    }
    if not (zero == 8).all():
        found["weight_zero_point"] = pack_to_int32(signed(zero), 4, packed_dim=0)
    return found


def _compressed_config(group: int, *, symmetric: bool, inputs: bool = False) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "dynamic": False}
    weights |= {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
    entry = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    if inputs:
        entry["input_activations"] = {
            "num_bits": 8, "type": "int", "strategy": "token", "dynamic": True
        }  # fmt: skip
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": entry},
        "ignore": ["lm_head"],
    }


def _gptq_config(**given: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 32} | given


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "int"}
AUTO_ROUND |= {"extra_config": {"lm_head": {"bits": 16}}, "iters": 200, "sym": False}
CACHE = {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
SYMMETRIC = _gptq_config(sym=True, group_size=-1, desc_act=True)
CASES: dict[str, tuple[Callable[..., Tensors], dict[str, Any], int, bool]] = {
    "gptq": (_gptq, _gptq_config(sym=False), 32, False),
    "gptq-symmetric": (_gptq, SYMMETRIC, 0, True),
    "gptq-v2": (_gptq_v2, _gptq_config(checkpoint_format="gptq_v2"), 32, False),
    "awq": (_awq, AWQ, 32, False),
    "auto-round": (_gptq, AUTO_ROUND | {"packing_format": "auto_round:auto_gptq"}, 32, False),
    "auto-round-awq": (_awq, AUTO_ROUND | {"packing_format": "auto_round:auto_awq"}, 32, False),
    "compressed-cache": (_packed, _compressed_config(32, symmetric=True) | CACHE, 32, True),
    "compressed": (_packed, _compressed_config(32, symmetric=True), 32, True),
    "compressed-affine": (_packed, _compressed_config(32, symmetric=False), 32, False),
    "compressed-w4a8": (_packed, _compressed_config(0, symmetric=True, inputs=True), 0, True),
}


def written(folder: Path, case: str) -> tuple[Path, dict[str, Any]]:
    """A folder as another quantizer writes it, and what its integers stand for by layer."""
    pack, config, group, symmetric = CASES[case]
    path = checkpoint(LLAMA, folder)
    tensors, exact = {}, {}
    for name, tensor in load_file(path / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if not layer.endswith("_proj"):
            tensors[name] = tensor.clone()
            continue
        parts = _rounded(tensor.numpy(), group, symmetric=symmetric)
        tensors |= {f"{layer}.{key}": v for key, v in pack(*parts, group).items()}
        exact[layer] = _exact(*parts, group)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    data = json.loads((path / "config.json").read_text())
    data["quantization_config"] = config
    (path / "config.json").write_text(json.dumps(data))
    return path, exact


def as_of_old(folder: Path, name: str) -> None:
    """What config.json says goes to a file of its own, as older tools write it."""
    data = json.loads((folder / "config.json").read_text())
    said = data.pop("quantization_config")
    del said["quant_method"]
    (folder / "config.json").write_text(json.dumps(data))
    (folder / name).write_text(json.dumps(said))
