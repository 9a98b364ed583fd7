"""The arguments of a block's call: their form, the tensors in them, and other objects.

    layer(x, None, position_embeddings=(cos, sin), cache=c)
        tensors x, cos, sin    objects c    key: all the rest, and the tensors' dtypes and ranks
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from octavo.core.guards import call_form

Call = tuple[bytes, tuple[Tensor, ...], tuple[Any, ...]]


def form_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """Key, tensors and objects of a call; None where it has to be the block's own forward's.

    Calls of one key differ in their tensors' values, in sizes beyond 1, and in the objects.
    """
    found: Call | None = call_form(args, kwargs)
    return found


def rebuild(value: Any, tensor: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
    """`value` with each tensor and each object in it replaced, in the order of `form_of`."""
    if isinstance(value, Tensor):
        return tensor(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (tuple, list):
        return type(value)(rebuild(part, tensor, other) for part in value)
    if type(value) is dict:
        return {key: rebuild(part, tensor, other) for key, part in value.items()}
    return other(value)
