"""Folders of compressed-tensors: integers as they are stored become packed layers, and back.

q_proj.weight int8 [n, k]  q_proj.weight_scale [n, 1]   <->   QuantizedLinear: packed, scale
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.kernels import pack
from octavo.errors import ModelError, NothingQuantizedError, listed
from octavo.recipe import LayerOutcome, Report, Scheme, Verification, WeightScheme
from octavo.torch.blocks.dynamic_type import type_behind
from octavo.torch.carry_over import carry_hooks, keep_own
from octavo.torch.files.tensors import places_of
from octavo.torch.hub.compressed_scheme import (
    NAME,
    CompressedConfig,
    CompressedScheme,
    written,
)
from octavo.torch.hub.mapped_files import MappedFiles
from octavo.torch.inventory import ModuleLayer, inventory
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.memory import array, float32_copy, tensor_of
from octavo.torch.reports import model_bytes

_SHOWN = 5


class _Stored(nn.Module):
    """What a linear layer is in such a folder, until all of it is there."""

    def __init__(self, linear: nn.Linear, scheme: CompressedScheme) -> None:
        super().__init__()
        n, k = linear.out_features, linear.in_features
        rows = n if scheme.per_channel else 1
        self.register_buffer("weight", torch.empty(n, k, dtype=torch.int8))
        self.register_buffer("weight_scale", torch.empty((rows, 1) if scheme.per_channel else 1))
        if not scheme.symmetric:
            shape = (rows, 1) if scheme.per_channel else (1,)
            self.register_buffer("weight_zero_point", torch.empty(shape, dtype=torch.int8))
        self.bias = linear.bias
        self._is_hf_initialized = True

    def packed(self) -> QuantizedLinear:
        """The layer of these integers."""
        weight: Any = self.weight
        n, k = weight.shape
        zero = self._buffers.get("weight_zero_point")
        with torch.device("meta"):
            made = QuantizedLinear(k, n, self.bias is not None, zero is not None)
        made._fill(
            packed=tensor_of(pack(array(weight))),
            scale=_each(self.weight_scale, n, torch.float32),
            zero_point=None if zero is None else _each(zero, n, torch.int32),
            bias=float32_copy(self.bias),
        )
        return made


def _each(values: Any, n: int, dtype: torch.dtype) -> Tensor:
    """[n] of one value a channel, or of one for all."""
    made: Tensor = values.detach().to(dtype).reshape(-1).expand(n).contiguous()
    return made.clone()


class CompressedLayers:
    """The layers of such a folder, put into a skeleton of its model."""

    def __init__(self, model: nn.Module, config: CompressedConfig, files: Sequence[str]) -> None:
        self._where = Path(files[0]).parent if files else Path()
        self._files = MappedFiles(files)
        self._before = model_bytes(model)
        self._parts = inventory(model)
        self._old: dict[str, nn.Module] = {}
        places = places_of(model)
        for name, module in list(model.named_modules()):
            scheme = config.scheme(name, type(module).__name__)
            if scheme is None:
                continue
            if type(module) is not nn.Linear:
                raise ModelError(
                    f"{self._where}: {name} is a {type(module).__name__}, which config_groups has "
                    "among its targets; Octavo reads Linear: quantize the float checkpoint with "
                    "OctavoConfig()"
                )
            self._old[name] = module
            _put(places, module, _Stored(module, scheme))
        if not self._old:
            raise NothingQuantizedError(
                f"{self._where}: no layer of {type(model).__name__} is a target of the "
                f"config_groups of {NAME}; load it without quantization_config"
            )

    def finish(self, model: nn.Module) -> Report:
        """Packs what was read, layer by layer. Raises ModelError for what no file had."""
        lacking = [
            f"{name}.{key}"
            for name in self._old
            for key, tensor in model.get_submodule(name).state_dict(keep_vars=True).items()
            if not getattr(tensor, "_is_hf_initialized", False)
        ]
        if lacking:
            raise ModelError(
                f"{self._where}: its files lack {listed(lacking, _SHOWN)}, which the {NAME} of "
                "its config.json speaks of; copy the folder again, whole"
            )
        places = places_of(model)
        with torch.inference_mode(False):
            for name, old in self._old.items():
                stored: Any = model.get_submodule(name)
                self._files.used(stored.weight.nbytes)
                new = stored.packed()
                keep_own(old, new)
                carry_hooks(old, new)
                _put(places, stored, new)
        self._files.release()
        return self._report(model)

    def _report(self, model: nn.Module) -> Report:
        return Report(
            source=type(model).__name__,
            output="",
            recipe={"name": NAME},
            target="torch",
            cpu="",
            quant_format="",
            layers=tuple(self._outcome(model, part) for part in self._parts),
            model_bytes_before=self._before,
            model_bytes_after=model_bytes(model),
            opset=0,
            min_onnxruntime="",
            verification=Verification("skipped", detail="no inputs to compare with"),
            seconds=0.0,
            notes=(f"weights are those of a folder of {NAME}",),
        )

    def _outcome(self, model: nn.Module, part: ModuleLayer) -> LayerOutcome:
        size = part.layer.bytes
        if part.module not in self._old:
            return LayerOutcome(part.layer, False, "float", f"{NAME} holds it so", size, size)
        new = model.get_submodule(part.module)
        after = sum(b.nbytes for key, b in new.named_buffers() if key != "bias")
        scheme = Scheme(WeightScheme(symmetric=new._buffers["zero_point"] is None)).describe()
        return LayerOutcome(part.layer, True, scheme, "", size, after)


def _put(places: Mapping[int, Any], old: nn.Module, new: nn.Module) -> None:
    for parent, child in places[id(old)]:
        parent._modules[child] = new


def compressed(
    model: nn.Module, state: Mapping[str, Tensor], dtype: torch.dtype
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """`state` as such a folder holds it, and what config.json says; biases are of `dtype`.

    Raises ModelError for a layer that has no such form.
    """
    layers = {n: m for n, m in model.named_modules() if isinstance(m, QuantizedModule)}
    for name, module in layers.items():
        _refuse_other(name, module)
    affine = any(module._buffers["zero_point"] is not None for module in layers.values())
    made = dict(state)
    for name, module in layers.items():
        for key in module._buffers:
            made.pop(f"{name}.{key}", None)
        found = _tensors(module, dtype, affine)
        made |= {f"{name}.{key}": tensor for key, tensor in found.items()}
    floats = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return made, written(floats, symmetric=not affine)


def _refuse_other(name: str, module: QuantizedModule) -> None:
    kind: Any = type_behind(type(module))
    group, held = getattr(module, "group", 0), getattr(module, "format", "int8")
    if kind is not QuantizedLinear or group or held != "int8":
        groups = f" of {held}" if held != "int8" else ""
        groups += f" with activation groups of {group}" if group else ""
        raise ModelError(
            f"{name} is a {kind.__name__}{groups}, which {NAME} cannot hold; load the float "
            "checkpoint with OctavoConfig(format='compressed-tensors'), which leaves such layers "
            "float, or save with format='octavo'"
        )


def _tensors(module: QuantizedLinear, dtype: torch.dtype, affine: bool) -> dict[str, Tensor]:
    found = {"weight": module.integers(), "weight_scale": module.scale[:, None].clone()}
    if affine:
        zero = torch.zeros(module.out_features) if module.zero_point is None else module.zero_point
        found["weight_zero_point"] = zero[:, None].to(torch.int8)
    if module.bias is not None:
        found["bias"] = module.bias.to(dtype)
    return found
