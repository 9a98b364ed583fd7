"""Quantized layers are leaves for torch.fx: one node `call_module`, whatever the tracer's rule."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.fx import Proxy


def is_proxy(x: object) -> bool:
    """Whether torch.fx traces symbolically what happens to `x`."""
    return isinstance(x, Proxy)


def as_leaf(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The node of a call of `module`, for its forward to return.

    A tracer that takes only torch.nn's own modules for leaves goes on into forward, where a value
    that is not there yet would be asked for its dtype.
    """
    proxy = next(x for x in (*args, *kwargs.values()) if is_proxy(x))
    tracer: Any = proxy.tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), args, kwargs)
