"""The arguments of a block's call: their form, the tensors in them, and other objects.

layer(x, None, position_embeddings=(cos, sin), cache=c)
    tensors x, cos, sin    objects c    key: all the rest, and the tensors' dtypes and ranks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

BLOCK = "_octavo_block"
"""Where a block keeps what runs it: an attribute of its own `__dict__`."""


def rebuild(value: Any, tensor: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
    """Replace each tensor and each object in `value`, in the order of `call_form`."""
    if isinstance(value, Tensor):
        return tensor(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (tuple, list):
        return type(value)(rebuild(part, tensor, other) for part in value)
    if type(value) is dict:
        return {key: rebuild(part, tensor, other) for key, part in value.items()}
    return other(value)


class Arguments:
    """A call's arguments with places for its tensors and objects."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._form = (args, kwargs)

    def fill(
        self, tensors: Sequence[Any], objects: Sequence[Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call's args and kwargs with `tensors` and `objects` put in their places."""
        given, others = iter(tensors), iter(objects)
        args, kwargs = rebuild(self._form, lambda _: next(given), lambda _: next(others))
        return args, kwargs
