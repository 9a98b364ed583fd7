"""Inputs that are no plain tensors: torch.fx's proxies, nested tensors, and what autocast asks for.

Quantized layers are leaves for torch.fx: one node `call_module`, whatever the tracer's rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence

is_autocasting = torch._C._is_any_autocast_enabled  # a third of what asking for "cpu" takes


# docs/notes/torch.md: "Quantized layers keep to the dtype that autocast promises"
def autocasted(x: Any) -> Any:
    """Return `x` in the dtype of torch.autocast("cpu"), where that is on and would cast it.

    Quantized layers return the dtype that they get. As autocast itself, this leaves float64, and
    what is no float tensor on the CPU.
    """
    if not is_autocasting() or not torch.is_autocast_enabled("cpu") or not isinstance(x, Tensor):
        return x
    if not x.is_floating_point() or x.dtype is torch.float64 or not x.is_cpu:
        return x
    return x.to(torch.get_autocast_dtype("cpu"))


def autocasted_step(x: Any, h: Any, c: Any, casts: bool) -> tuple[Any, Any, Any]:
    """Cast a recurrent layer's input (packed too) and states as autocast does for the float layer.

    `casts`: whether autocast casts all of them. Where it does not, outputs have the states' dtype.
    """
    if casts:
        if isinstance(x, PackedSequence):
            x = x._replace(data=autocasted(x.data))
        return autocasted(x), autocasted(h), autocasted(c)
    if isinstance(h, Tensor) and torch.is_autocast_enabled("cpu") and h.is_floating_point():
        x = x.to(h.dtype)
    return x, h, c


def is_proxy(x: object) -> bool:
    """Tell whether torch.fx traces symbolically what happens to `x`."""
    return isinstance(x, Proxy)


# docs/notes/torch.md: "Quantized layers are leaves for torch.fx"
def as_leaf(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the node of a call of `module`, for its forward to return.

    A tracer that takes only torch.nn's own modules for leaves goes on into forward, where a value
    that is not there yet would be asked for its dtype.
    """
    proxy = next(x for x in (*args, *kwargs.values()) if is_proxy(x))
    tracer: Any = proxy.tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), args, kwargs)


def refuse_nested(x: Tensor, instead: str) -> None:
    """Raise TypeError for a nested tensor, which torch's layer does not take either."""
    if x.is_nested:
        raise TypeError(f"input: is a nested tensor; give {instead}")


def of_each(layer: Callable[[Tensor], Tensor], nested: Any) -> Tensor:
    """Return a nested tensor of `layer`'s results for the tensors in `nested`, in its layout.

    Jagged tensors keep their offsets, so that the result goes with `nested` in further operations.
    """
    if nested.layout is torch.jagged:
        made = layer(nested.values())
        found: Tensor = torch.nested.nested_tensor_from_jagged(
            made, nested.offsets(), nested.lengths(), nested._ragged_idx
        )
        return found
    return torch.nested.as_nested_tensor([layer(part) for part in nested.unbind()])
