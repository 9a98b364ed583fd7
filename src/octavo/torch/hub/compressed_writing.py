"""Layers as folders of compressed-tensors hold them, which vLLM reads.

QuantizedLinear: packed, scale   ->   q_proj.weight int8 [n, k]  q_proj.weight_scale [n, 1]
in groups                        ->   q_proj.weight_packed  q_proj.weight_scale [n, groups]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from octavo.checkpoints.gptq_awq import to_compressed
from octavo.errors import ModelError
from octavo.torch.dynamic_type import type_behind
from octavo.torch.hub.compressed_scheme import NAME, WrittenScheme, written
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear


def compressed(
    model: nn.Module, state: Mapping[str, Tensor], dtype: torch.dtype
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return `state` as a folder of compressed-tensors holds it, and what its config.json says.

    Biases are of `dtype`. Raises ModelError for a layer that has no such form.
    """
    layers: dict[str, Any] = {
        n: m for n, m in model.named_modules() if isinstance(m, QuantizedModule)
    }
    for name, module in layers.items():
        _refuse_other(name, module)
    affine = any(module._buffers["zero_point"] is not None for module in layers.values())
    made, schemes = dict(state), defaultdict[WrittenScheme, list[str]](list)
    for name, module in layers.items():
        for key in module._buffers:
            made.pop(f"{name}.{key}", None)
        held = module._format
        found = _packed(module) if held.group else _integers(module, affine)
        if module.bias is not None:
            found["bias"] = module.bias.to(dtype)
        made |= {f"{name}.{key}": tensor for key, tensor in found.items()}
        symmetric = not (held.affine if held.group else affine)
        schemes[WrittenScheme(held.bits, held.group, symmetric)].append(name)
    floats = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return made, written(schemes, floats)


def _refuse_other(name: str, module: Any) -> None:
    kind: Any = type_behind(type(module))
    if kind is QuantizedLinear:
        held, group = module._format, module.group
        if not held.minimum and (held.group or not group):
            return
        what = f" in the format {held.value}" + (f" with inputs in groups of {group}" * (group > 0))
    else:
        what = ""
    raise ModelError(
        f"{name} is a {kind.__name__}{what}, which {NAME} cannot hold; load the float checkpoint "
        "with OctavoConfig(format='compressed-tensors'), which leaves such layers float, or save "
        "with format='octavo'"
    )


def _integers(module: QuantizedLinear, affine: bool) -> dict[str, Tensor]:
    found = {"weight": module.integers(), "weight_scale": module.scale[:, None].clone()}
    if affine:
        zero = torch.zeros(module.out_features) if module.zero_point is None else module.zero_point
        found["weight_zero_point"] = zero[:, None].to(torch.int8)
    return found


def _packed(module: QuantizedLinear) -> dict[str, Tensor]:
    """Scales are float16 where that has all their digits, else float32."""
    words, scale, zero = to_compressed(module.groups())
    with np.errstate(over="ignore"):
        halves = scale.astype(np.float16)
    exact = np.array_equal(halves.astype(np.float32), scale)
    found = {
        "weight_packed": torch.from_numpy(words),
        "weight_scale": torch.from_numpy(halves if exact else scale),
        "weight_shape": torch.tensor([module.out_features, module.in_features]),
    }
    if zero is not None:
        found["weight_zero_point"] = torch.from_numpy(zero)
    return found
