"""Which layer of a model an error is about."""

from __future__ import annotations

import sys

from torch import nn

from octavo.torch.layers.base import QuantizedModule


def of_layer(text: str) -> str:
    """`text` behind the name of the quantized layer that is being called, if one is.

    Layers do not know their names: the model that calls them, further up the stack, does.
    """
    layer, model = None, None
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            layer = owner if layer is None and isinstance(owner, QuantizedModule) else layer
            model = owner
        frame = frame.f_back  # type: ignore[assignment]
    if layer is None or model is None:
        return text
    name = next((name for name, module in model.named_modules() if module is layer), "")
    return f"{name or type(layer).__name__}: {text}"
