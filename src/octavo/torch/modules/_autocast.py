"""What torch.autocast makes of a layer's input: the dtype that it promises of the outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

is_autocasting = torch._C._is_any_autocast_enabled  # a third of what asking for "cpu" takes


def autocasted(x: Any) -> Any:
    """`x` in the dtype of torch.autocast("cpu"), where that is on and would cast it.

    Quantized layers return the dtype that they get. As autocast itself, this leaves float64, and
    what is no float tensor on the CPU.
    """
    if not is_autocasting() or not torch.is_autocast_enabled("cpu") or not isinstance(x, Tensor):
        return x
    if not x.is_floating_point() or x.dtype is torch.float64 or not x.is_cpu:
        return x
    return x.to(torch.get_autocast_dtype("cpu"))


def autocasted_step(x: Any, h: Any, c: Any, casts: bool) -> tuple[Any, Any, Any]:
    """A recurrent layer's input (packed too) and states, as autocast has the float layer take them.

    `casts`: whether it casts all of that. Where it does not, outputs have the states' dtype.
    """
    if casts:
        if isinstance(x, PackedSequence):
            x = x._replace(data=autocasted(x.data))
        return autocasted(x), autocasted(h), autocasted(c)
    if isinstance(h, Tensor) and torch.is_autocast_enabled("cpu") and h.is_floating_point():
        x = x.to(h.dtype)
    return x, h, c
