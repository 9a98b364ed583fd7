"""Memory of a growing cache layer with room for what comes.

    layer.keys = room.keys[:, :, begin:end]

The layer's own update makes a new tensor of all keys in each step. Here new ones are written behind
the others, but only where `layer.keys` is the very tensor that was put there last: whoever crops,
reorders or copies a cache, and whoever else writes to it, has another one, which is copied once.
What was handed out before is never written to.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

ROOM = "_octavo_room"
"""Where a cache layer keeps it: an attribute of its own `__dict__`."""

_LEAST = 64
"""Keys that there is room for beside those that are there."""

Shape = tuple[int, ...]
"""Of new keys or values: [B, H, S, D]."""


class Room:
    """Keys and values [B, H, capacity, D] of one cache layer, which holds those from `begin` on."""

    def __init__(self, layer: Any = None, keys: Any = None, values: Any = None) -> None:
        self._owner: Any = None if layer is None else weakref.ref(layer)
        self.keys, self.values = keys, values
        self._sides = None if keys is None else (_sides(keys.shape), _sides(values.shape))
        self.begin = 0
        self._last: tuple[Any, Any] = (None, None)

    def __deepcopy__(self, memo: Any) -> Room:
        return Room()

    def __reduce__(self) -> Any:
        return Room, ()

    def has_space(self, layer: Any, total: int) -> bool:
        """Tell whether the layer holds what was put there last, with space for `total` keys."""
        return (
            self._owner is not None
            and self._owner() is layer
            and layer.keys is self._last[0]
            and layer.values is self._last[1]
            and self.begin + total <= self.keys.shape[2]
        )

    def fits(self, keys: Shape, values: Shape) -> bool:
        """Tell whether keys and values of these shapes fit here, whatever their count."""
        return self._sides == (_sides(keys), _sides(values))

    def keep(self, begin: int, end: int) -> None:
        """Make the layer hold the keys and values from `begin` to `end` of this memory."""
        layer = self._owner()
        keys = self.keys.narrow(2, begin, end - begin)
        values = self.values.narrow(2, begin, end - begin)
        if not layer.is_initialized:
            layer.lazy_initialization(keys, values)
        self.begin = begin
        layer.keys, layer.values = self._last = keys, values


def room_of(layer: Any, kept: int, keys: Shape, values: Shape, lasting: bool) -> Room | None:
    """Return the memory for a layer's `kept` keys and new ones; None if it holds something else.

    `keys` and `values` are the shapes of the new ones; `lasting`: no others will follow.
    """
    room: Room | None = layer.__dict__.get(ROOM)
    total = kept + keys[2]
    if kept and room is not None and room.has_space(layer, total):
        return room if room.fits(keys, values) else None
    capacity = total if lasting else total + max(_LEAST, total // 4)
    made = [torch.empty(b, h, capacity, d) for b, h, _, d in (keys, values)]
    if kept:
        for old, new in zip((layer.keys, layer.values), made, strict=True):
            if old.dtype is not torch.float32 or not old.is_cpu or not fits(old, new.shape):
                return None
            new[:, :, :kept] = old
    room = layer.__dict__[ROOM] = Room(layer, *made)
    return room


def fits(held: Tensor, new: Shape) -> bool:
    """Tell whether `held` and `new` agree in batch, number of heads and head size."""
    return _sides(held.shape) == _sides(new)


def _sides(shape: Shape) -> Shape:
    return (*shape[:2], *shape[3:])
