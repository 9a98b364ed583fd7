"""Caches of transformers among a block's arguments: what a forward does with one.

A forward gives a cache its new keys and values and goes on with all that are kept (`update`), asks
how many those are, or reads what an earlier call left (cross attention). For a trace the cache is a
stub that notes this, and whose answers are inputs of the graph.

    k, v  ->  [octavo::cached]  ->  all keys, all values
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from octavo.torch import ops
from octavo.torch.blocks.cache.cache_layers import HOME, LayerKind, kind_of
from octavo.torch.blocks.nodes import UnknownStep


@dataclass(frozen=True)
class Slot:
    """One `update` of a forward: of which cache of two ("": there is but one), at which layer."""

    part: str
    index: int
    kind: LayerKind | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Usage:
    """What one forward did with its cache, in order."""

    slots: list[Slot] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    """Keys that each update returned."""
    reads: list[tuple[str, int, str]] = field(default_factory=list)
    """Tensors of cache layers that were read: part, index, attribute."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Whose length was asked for."""
    lengths: list[int] = field(default_factory=list)
    filled: dict[str, bool] = field(default_factory=dict)
    """Whether caches have layers, which is their truth."""
    flags: dict[int, Any] = field(default_factory=dict)
    """What `is_updated` said."""
    written: dict[int, Any] = field(default_factory=dict)
    """What was written there."""

    def place_of(self, part: str, index: int, before: int | None = None) -> int | None:
        """Return which of the updates `before` was of a layer; None where none was."""
        for place, slot in enumerate(self.slots[:before]):
            if (slot.part, slot.index) == (part, index):
                return place
        return None

    def grows(self, place: int) -> bool:
        """Tell whether an update returned as many keys as its layer says to have after it."""
        kind = self.slots[place].kind
        if kind is None:
            raise UnknownStep("a cache layer that is asked for its length twice")
        return kind.grows


def is_cache(value: Any) -> bool:
    """Tell whether `value` is one of transformers' caches."""
    home = sys.modules.get(HOME)
    return home is not None and isinstance(value, home.Cache)


def has_layers(cache: Any, part: str) -> bool:
    """Tell whether the cache of a part is true."""
    return bool(holder_of(cache, part))


def holder_of(cache: Any, part: str) -> Any:
    """Return the cache named `part` of an encoder-decoder cache; for "", `cache` itself."""
    return getattr(cache, part) if part else cache


def layer_of(cache: Any, part: str, index: int) -> Any:
    """Return the layer `index` of a cache; None where the first update is to make it."""
    layers = holder_of(cache, part).layers
    return layers[index] if index < len(layers) else None


def length_of(layer: Any) -> int:
    """Return how many keys a cache layer says to have; 0 for None."""
    return 0 if layer is None else int(layer.get_seq_length())


def returned_by(kind: LayerKind | None, layer: Any, added: int) -> int:
    """Say how many keys an update with `added` new ones returns."""
    if layer is None:
        return added
    return int(layer.get_mask_sizes(added)[0]) if kind is None else kind.returned(layer, added)


class Session:
    """What a stub's methods do. This one runs a forward for real, beside the cache."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self.usage = Usage()
        self._added: list[int] = []

    def update(
        self, part: str, k: Tensor, v: Tensor, index: int, args: Any, kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return all keys and values of a layer with the new `k` and `v`, and note the update."""
        if self.usage.place_of(part, index) is not None:
            raise UnknownStep("a cache layer that is updated twice")
        layer = layer_of(self._cache, part, index)
        kind = kind_of(holder_of(self._cache, part), layer)
        if layer is None or kind is not None:
            args, kwargs = (), {}  # which these do not read
        elif any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves((args, kwargs))):
            raise UnknownStep(f"a {type(layer).__name__} that is given further tensors")
        found = (k, v) if layer is None else copy.deepcopy(layer).update(k, v, *args, **kwargs)
        total = returned_by(kind, layer, k.shape[-2])
        if found[0].shape[-2] != total:
            raise UnknownStep(f"a {type(layer).__name__} that returns other keys than it says")
        self.usage.slots.append(Slot(part, index, kind, tuple(args), dict(kwargs)))
        self.usage.totals.append(total)
        self._added.append(k.shape[-2])
        return found

    def length(self, part: str, index: int) -> Any:
        """Return how many keys a layer keeps, and note that it was asked for."""
        place = self.usage.place_of(part, index)
        if place is not None and self.usage.grows(place):
            return self.usage.totals[place]
        found = length_of(layer_of(self._cache, part, index))
        if (part, index) not in self.usage.asked:
            self.usage.asked.append((part, index))
            self.usage.lengths.append(found)
        return found if place is None else found + self._added[place]

    def read(self, part: str, index: int, key: str) -> Tensor:
        """Return the kept keys or values (`key`) of a layer, and note that they were read."""
        found: Tensor = getattr(layer_of(self._cache, part, index), key)
        self.usage.reads.append((part, index, key))
        return found

    def has_layers(self, part: str) -> bool:
        """Tell whether the cache of a part has any layers, and note the answer."""
        return self.usage.filled.setdefault(part, has_layers(self._cache, part))

    def flag(self, index: int) -> Any:
        """Tell whether the cross attention of a layer has its keys, and note the answer."""
        if index in self.usage.written:
            return self.usage.written[index]
        return self.usage.flags.setdefault(index, self._cache.is_updated.get(index))

    def set_flag(self, index: int, value: Any) -> None:
        """Note `value` as whether the cross attention of a layer has its keys."""
        self.usage.written[index] = value


class GivenSession(Session):
    """Answers from what is given: for tracing (fake tensors), and for trials."""

    def __init__(
        self,
        usage: Usage,
        all_of: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]],
        reads: Sequence[Tensor],
        totals: Sequence[Any],
        lengths: Sequence[Any],
    ) -> None:
        self.usage = Usage(flags=dict(usage.flags))
        self.known = usage
        self.new: list[Tensor] = []
        """Keys and values that updates were given."""
        self._all_of = all_of
        self._reads, self._totals, self._lengths = reads, totals, lengths

    def update(
        self, part: str, k: Tensor, v: Tensor, index: int, args: Any, kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return all keys and values, from what was given for this update."""
        place = len(self.new) // 2
        self._expect(place < len(self.known.slots))
        slot = self.known.slots[place]
        self._expect((slot.part, slot.index) == (part, index))
        self.new += [k, v]
        return self._all_of(place, k, v)

    def length(self, part: str, index: int) -> Any:
        """Return how many keys are kept, from what was given for this layer."""
        place = self.known.place_of(part, index, len(self.new) // 2)
        if place is not None and self.known.grows(place):
            return self._totals[place]
        self._expect((part, index) in self.known.asked)
        found = self._lengths[self.known.asked.index((part, index))]
        return found if place is None else found + self.new[2 * place].shape[-2]

    def read(self, part: str, index: int, key: str) -> Tensor:
        """Return kept keys or values (`key`), from what was given for this layer."""
        self._expect((part, index, key) in self.known.reads)
        return self._reads[self.known.reads.index((part, index, key))]

    def has_layers(self, part: str) -> bool:
        """Tell whether the cache of a part had any layers when it was watched."""
        self._expect(part in self.known.filled)
        return self.known.filled[part]

    def flag(self, index: int) -> Any:
        """Return a layer's cross attention flag as it was, or was written since."""
        if index in self.usage.written:
            return self.usage.written[index]
        self._expect(index in self.known.flags)
        return self.known.flags[index]

    def _expect(self, holds: bool) -> None:
        if not holds:
            raise UnknownStep("its use of the cache varies")


def _never(k: Tensor, v: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    raise RuntimeError("octavo::cached is for traces")


def _fake(k: Tensor, v: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    sizes = (*k.shape[:2], total.shape[0])
    return k.new_empty((*sizes, k.shape[3])), v.new_empty((*sizes, v.shape[3]))


cached = ops.define(
    "cached", "(Tensor k, Tensor v, Tensor total) -> (Tensor, Tensor)", _never, _fake
)
