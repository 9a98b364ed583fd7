"""Adapters of PEFT on layers that Octavo quantized: float adapters beside an int8 base.

PEFT chooses an adapter's class by the type of the layer, and knows none of Octavo's. Importing this
tells it.
"""

from __future__ import annotations

from typing import Any

from peft.tuners.lora import layer as lora
from peft.tuners.lora import model
from torch import nn

from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.transformers_conv1d import QuantizedTransformersConv1D


class QuantizedLoraLinear(lora.Linear):
    """LoRA beside a QuantizedLinear; merged, it is quantized with the layer's weight."""

    def _get_in_out_features(self, module: nn.Module) -> tuple[Any, Any]:
        return module.in_features, module.out_features


def adapter_for(target: nn.Module, adapter_name: str, *args: Any, **kwargs: Any) -> Any:
    """What PEFT puts around the module `target`; as before for all that is not Octavo's."""
    base = getattr(target, "base_layer", target)
    if not isinstance(base, QuantizedLinear) or kwargs.get("parameter_name") is not None:
        return _others(target, adapter_name, *args, **kwargs)
    if isinstance(base, QuantizedTransformersConv1D):
        kwargs["is_target_conv_1d_layer"] = True
        kwargs["config"].fan_in_fan_out = True
    return QuantizedLoraLinear(target, adapter_name, *args, **kwargs)


_choices: Any = model
_others = _choices.dispatch_default
_choices.dispatch_default = adapter_for
