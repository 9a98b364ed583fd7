"""Adapters of PEFT on layers that Octavo quantized: float adapters beside an int8 base.

PEFT chooses an adapter's class by the type of the layer, and knows none of Octavo's. Importing this
tells it. And what an adapter holds whole, as the head of a classifier, is float.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from peft.tuners.lora import layer as lora
from peft.tuners.lora import model
from peft.utils.other import ModulesToSaveWrapper
from torch import nn
from transformers.pytorch_utils import Conv1D

from octavo.errors import ModelError
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.bilinear import QuantizedBilinear
from octavo.torch.layers.conv import QuantizedConv1d, QuantizedConv2d
from octavo.torch.layers.embedding import QuantizedEmbedding
from octavo.torch.layers.half_linear import QuantizedHalfLinear
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from octavo.torch.layers.transformers_conv1d import (
    QuantizedHalfTransformersConv1D,
    QuantizedTransformersConv1D,
)
from octavo.torch.model_tensors import places_of

_FLOATS = {
    QuantizedTransformersConv1D: Conv1D,
    QuantizedHalfTransformersConv1D: Conv1D,
    QuantizedLinear: nn.Linear,
    QuantizedHalfLinear: nn.Linear,
    QuantizedEmbedding: nn.Embedding,
    QuantizedPackedEmbedding: nn.Embedding,
    QuantizedConv1d: nn.Conv1d,
    QuantizedConv2d: nn.Conv2d,
    QuantizedBilinear: nn.Bilinear,
}


class QuantizedLoraLinear(lora.Linear):
    """LoRA beside a QuantizedLinear; merged, it is quantized with the layer's weight."""

    def _get_in_out_features(self, module: nn.Module) -> tuple[Any, Any]:
        return module.in_features, module.out_features


def adapter_for(target: nn.Module, adapter_name: str, *args: Any, **kwargs: Any) -> Any:
    """Return the adapter around `target`: Octavo's for its linear layers, PEFT's for all others."""
    base = getattr(target, "base_layer", target)
    if not isinstance(base, QuantizedLinear) or kwargs.get("parameter_name") is not None:
        return _others(target, adapter_name, *args, **kwargs)
    if isinstance(base, QuantizedTransformersConv1D):
        kwargs["is_target_conv_1d_layer"] = True
        kwargs["config"].fan_in_fan_out = True
    return QuantizedLoraLinear(target, adapter_name, *args, **kwargs)


def device_map(whole: nn.Module) -> Any:
    """PEFT's, which asks a parameter of the model; where it has none, the CPU."""
    if hasattr(whole, "hf_device_map") or any(True for _ in whole.parameters()):
        return _device_map(whole)
    return {"": "cpu"}


def update_float(self: Any, adapter_name: str, *args: Any, **kwargs: Any) -> None:
    """PEFT's copy of a module that the adapter holds whole, with float layers: it is trained and
    loaded. Raises ModelError for a layer that has no way back."""
    _update(self, adapter_name, *args, **kwargs)
    made = self.modules_to_save
    places = places_of(made)
    for name, old in list(made.named_modules()):
        if isinstance(old, QuantizedModule):
            new = _float(name, old).requires_grad_(adapter_name == self.active_adapter)
            for parent, child in places[id(old)]:
                parent._modules[child] = new


def _float(name: str, old: Any) -> nn.Module:
    """Build the float layer of the weights in `old`, a quantized layer called `name`."""
    kind: Any = next((known for ours, known in _FLOATS.items() if isinstance(old, ours)), None)
    if kind is None:
        raise ModelError(
            f"modules_to_save: {name} is a {type(old).__name__}, of which Octavo makes no float "
            "layer again: leave it float with OctavoConfig(skip=[..])"
        )
    bias = getattr(old, "bias", None)
    made: nn.Module
    if issubclass(kind, Conv1D):
        made = Conv1D(old.out_features, old.in_features)
    else:
        known = signature(kind).parameters
        own = {key: getattr(old, key) for key in old.CONFIG if key in known and key != "dtype"}
        made = kind(**own, **({"bias": bias is not None} if "bias" in known else {}))
    dtype = old.weight.dtype
    made.weight = nn.Parameter(old.weight().to(dtype))
    if bias is not None:
        made.bias = nn.Parameter(bias.to(dtype, copy=True))
    return made.train(old.training)


_choices: Any = model
_others = _choices.dispatch_default
_choices.dispatch_default = adapter_for
_device_map = _choices.get_device_map
_choices.get_device_map = device_map
_wrapper: Any = ModulesToSaveWrapper
_update = _wrapper.update
_wrapper.update = update_float
