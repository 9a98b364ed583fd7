"""Which layer of a model an error is about, and which argument is no tensor."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor, nn

_NAMED = "_octavo_layer"


def named(error: Exception, layer: nn.Module, *args: Any, **kwargs: Any) -> Exception:
    """Return what a call of `layer` with these arguments raises for `error`, which names the layer.

    Of layers in one another that is the innermost.
    """
    if _NAMED in vars(error):
        return error
    with suppress(TypeError):  # of arguments that forward does not have, or misses
        given = inspect.signature(layer.forward).bind(*args, **kwargs).arguments
        error = next((found for one in given.items() for found in _misgiven(*one)), error)
    name = _name_of(layer)
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{name}: {error.args[0]}",)
    vars(error)[_NAMED] = name
    return error


def _misgiven(name: str, value: Any) -> Iterator[TypeError]:
    """Find what people have in place of tensors in an argument, and in a pair of states."""
    listed = isinstance(value, list) and any(isinstance(part, Tensor) for part in value)
    if listed or isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _misgiven(f"{name}[{i}]", part)
    elif isinstance(value, np.ndarray | list | float | str):
        kind = type(value).__name__
        yield TypeError(f"{name}: needs a tensor, not {kind}; torch.as_tensor({name}) makes one")


def _name_of(layer: nn.Module) -> str:
    """Layers do not know their names: the model that calls them, further up the stack, does."""
    model = layer
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        model = owner if isinstance(owner, nn.Module) else model
        frame = frame.f_back  # type: ignore[assignment]
    names = (name for name, module in model.named_modules() if module is layer)
    return next(names, "") or type(layer).__name__
