"""Layers of transformers' caches that a program writes into, as their own updates would.

    layer                        where new keys are written          what an update returns
    DynamicLayer                 behind the others (`Room`)          all of them
    DynamicSlidingWindowLayer    behind the others (`Room`)          those in sight, and the new
    StaticLayer                  behind the others, in its memory    the whole memory
    StaticSlidingWindowLayer     the same; a full one moves up       the whole memory

Of layers that are not of one of these very classes, and of all others' states, nothing is known
here: those make their own update, between two programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from octavo.torch.blocks.cache.cache_memory import Shape, fits, room_of

HOME = "transformers.cache_utils"


@dataclass(slots=True)
class Place:
    """Where a program writes the new keys and values of one update."""

    keys: Tensor
    values: Tensor
    """Memory [B, H, capacity, D]. What the update returns is the beginning of it."""
    start: int
    """The first of the new ones."""
    done: Callable[[], object]
    """Has the layer know them, once they are written."""
    before: Callable[[], None] | None = None
    """Makes room for them, where nothing else can fail any more."""


class LayerKind:
    """What an update of one class of cache layers does."""

    grows = False
    """Whether an update returns as many keys as the layer says to have after it."""

    def returned(self, layer: Any, added: int) -> int:
        """Say how many keys an update with `added` new ones returns."""
        return int(layer.get_mask_sizes(added)[0])

    def place(self, layer: Any, keys: Shape, values: Shape, lasting: bool) -> Place | None:
        """Say where keys and values of these shapes go; None if the layer's own update must run.

        `lasting`: no others will follow.
        """
        raise NotImplementedError


def _kept(layer: Any) -> int:
    """Count the keys that a layer which grows holds."""
    if not layer.is_initialized or layer.keys is None:
        return 0
    shape = layer.keys.shape
    return int(shape[2]) if len(shape) == 4 else 0


class _Growing(LayerKind):
    grows = True

    def returned(self, layer: Any, added: int) -> int:
        return _kept(layer) + added

    def place(self, layer: Any, keys: Shape, values: Shape, lasting: bool) -> Place | None:
        kept = _kept(layer)
        room = room_of(layer, kept, keys, values, lasting)
        if room is None:
            return None
        total = kept + keys[2]
        return Place(room.keys, room.values, kept, lambda: room.keep(0, total))


class _Sliding(LayerKind):
    def returned(self, layer: Any, added: int) -> int:
        total = _kept(layer) + added
        return min(total, layer.sliding_window - 1 + added) if layer.record_past else total

    def place(self, layer: Any, keys: Shape, values: Shape, lasting: bool) -> Place | None:
        kept, added, window = _kept(layer), keys[2], layer.sliding_window
        if type(window) is not int or window < 2:
            return None
        room = room_of(layer, kept, keys, values, lasting)
        if room is None:
            return None
        first, end = room.begin, room.begin + kept + added
        seen = end - self.returned(layer, added)

        def done() -> None:
            room.keep(first if layer.record_past else max(first, end - window + 1), end)
            layer.cumulative_length += added

        memory = (room.keys, room.values)
        if seen:
            memory = (room.keys[:, :, seen:], room.values[:, :, seen:])
        return Place(*memory, first + kept - seen, done)


class _Static(LayerKind):
    def place(self, layer: Any, keys: Shape, values: Shape, lasting: bool) -> Place | None:
        if not layer.is_initialized:
            layer.lazy_initialization(*(torch.empty(b, h, 0, d) for b, h, _, d in (keys, values)))
        if not _is_plain(layer.keys, keys) or not _is_plain(layer.values, values):
            return None
        return self._place(layer, keys[2])

    def _place(self, layer: Any, added: int) -> Place | None:
        length = layer.cumulative_length
        start = int(length)
        if not 0 <= start <= layer.keys.shape[2] - added:
            return None  # its own update says so
        return Place(layer.keys, layer.values, start, lambda: length.add_(added))


class _StaticSliding(_Static):
    def _place(self, layer: Any, added: int) -> Place | None:
        capacity, length = layer.keys.shape[2], layer.cumulative_length_int
        if length >= layer.max_cache_len == capacity and added == 1:
            both = layer.keys, layer.values
            return Place(*both, capacity - 1, partial(_count, layer, 1), partial(_move_up, both))
        found = super()._place(layer, added)
        if found is None or found.start != length:
            return None
        written = found.done

        def done() -> None:
            written()
            _count(layer, added)

        found.done = done
        return found


def _count(layer: Any, added: int) -> None:
    layer.cumulative_length_int += added


def _move_up(both: tuple[Tensor, Tensor]) -> None:
    """Drop the first key and value in memory [B, H, T, D]; the others move up by one."""
    for memory in both:
        memory[:, :, :-1] = memory[:, :, 1:].clone()


def _is_plain(held: Any, new: Shape) -> bool:
    """Tell whether a program can write to a static layer's memory."""
    plain = type(held) is Tensor and held.dtype is torch.float32 and held.is_cpu
    return plain and held.dim() == 4 and held.is_contiguous() and fits(held, new)


_KINDS = {
    "DynamicLayer": _Growing(),
    "DynamicSlidingWindowLayer": _Sliding(),
    "StaticLayer": _Static(),
    "StaticSlidingWindowLayer": _StaticSliding(),
}


@lru_cache(1)
def _known() -> dict[type, tuple[LayerKind, Any]]:
    """Return, by cache layer class, its kind, and its update as it was when first asked for."""
    home = sys.modules[HOME]
    return {getattr(home, n): (kind, getattr(home, n).update) for n, kind in _KINDS.items()}


def kind_of(cache: Any, layer: Any) -> LayerKind | None:
    """Return the kind of a cache's layer; for None, of the one that the first update makes."""
    of = cache.layer_class_to_replicate if layer is None else type(layer)
    found = _known().get(of)
    return None if found is None else found[0]


def place_of(cache: Any, index: int, keys: Shape, values: Shape, lasting: bool) -> Place | None:
    """Say where keys and values of these shapes go in a cache's layer, made if need be.

    Returns None where the cache's own update has to run.
    """
    home, layers = sys.modules[HOME], cache.layers
    if cache.offloading or type(cache).update is not home.Cache.update or "update" in vars(cache):
        return None
    if index >= len(layers):
        if cache.layer_class_to_replicate is not home.DynamicLayer:
            return None
        while len(layers) <= index:
            layers.append(home.DynamicLayer())
    layer = layers[index]
    found = _known().get(type(layer))
    if found is None or type(layer).update is not found[1] or "update" in vars(layer):
        return None
    return found[0].place(layer, keys, values, lasting)
