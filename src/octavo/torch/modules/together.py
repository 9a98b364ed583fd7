"""Several quantized linear layers over one input, which is quantized once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from octavo.core.linear import run_together
from octavo.torch import ops
from octavo.torch.modules._autocast import autocasted
from octavo.torch.modules._base import QuantizedModule
from octavo.torch.modules.linear import QuantizedLinear


def together(layers: Sequence[QuantizedModule], x: Tensor) -> list[Tensor]:
    """`[layer(x) for layer in layers]`, the same bits, for x [..., in_features].

    `layers` take inputs of one size and one `group`. Layers that are not int8 ones, and an `x` that
    kernels may not read directly, get one call each.
    """
    first = layers[0]
    alike = all(
        type(layer) is QuantizedLinear
        and (layer.in_features, layer.group) == (first.in_features, first.group)
        and not (layer._forward_hooks or layer._forward_pre_hooks)
        for layer in layers
    )
    x = autocasted(x)
    code = ops.CODES.get(x.dtype)
    if not alike or code is None or not ops.direct(x) or x.shape[-1] != first.in_features:
        return [layer(x) for layer in layers]
    x = x.contiguous()
    outs = [x.new_empty((*x.shape[:-1], layer.out_features)) for layer in layers]
    run_together(
        [layer._ready("none").core for layer in layers],
        x.data_ptr(),
        x.shape[:-1].numel(),
        first.in_features,
        [out.data_ptr() for out in outs],
        [layer.out_features for layer in layers],
        code,
        torch.get_num_threads(),
    )
    return outs
