"""Memory of a growing cache layer with room for what comes.

    layer.keys = room.keys[:, :, :total]

The layer's own update makes a new tensor of all keys in each step. Here new ones are written behind
the others, but only where `layer.keys` is the very tensor that was put there last: whoever crops,
reorders or copies a cache, and whoever else writes to it, has another one, which is copied once.
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


class Room:
    """Keys and values [B, H, capacity, D] of one cache layer."""

    def __init__(self, layer: Any = None, keys: Any = None, values: Any = None) -> None:
        self._owner: Any = None if layer is None else weakref.ref(layer)
        self.keys, self.values = keys, values
        self._last: tuple[Any, Any] = (None, None)

    def __deepcopy__(self, memo: Any) -> Room:
        return Room()

    def __reduce__(self) -> Any:
        return Room, ()

    def belongs_to(self, layer: Any) -> bool:
        """Whether the layer holds what was put there last."""
        return (
            self._owner is not None
            and self._owner() is layer
            and layer.keys is self._last[0]
            and layer.values is self._last[1]
        )

    def keep(self, total: int) -> None:
        """Has the layer hold the first `total` of them."""
        layer = self._owner()
        keys, values = self.keys[:, :, :total], self.values[:, :, :total]
        if not layer.is_initialized:
            layer.lazy_initialization(keys, values)
        layer.keys, layer.values = self._last = keys, values


def room_of(
    layer: Any, kept: int, total: int, keys: tuple[int, ...], values: tuple[int, ...], spare: bool
) -> Room | None:
    """Memory for `total` keys of which the layer has `kept`; None where it holds something else.

    `keys` and `values` are the shapes of the new ones.
    """
    room = layer.__dict__.get(ROOM)
    if kept and room is not None and room.belongs_to(layer) and room.keys.shape[2] >= total:
        return room if _fits(room.keys, keys) and _fits(room.values, values) else None
    capacity = total + max(_LEAST, total // 4) if spare else total
    made = [torch.empty(b, h, capacity, d) for b, h, _, d in (keys, values)]
    if kept:
        for old, new in zip((layer.keys, layer.values), made, strict=True):
            if old.dtype is not torch.float32 or not old.is_cpu or not _fits(old, new.shape):
                return None
            new[:, :, :kept] = old
    room = layer.__dict__[ROOM] = Room(layer, *made)
    return room


def _fits(held: Tensor, new: tuple[int, ...]) -> bool:
    """Whether both are of one batch, and as many heads as deep."""
    return (*held.shape[:2], held.shape[3]) == (*new[:2], new[3])
