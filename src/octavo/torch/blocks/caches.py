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
from functools import lru_cache
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from octavo.torch import ops
from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.place import plain

_HOME = "transformers.cache_utils"


@dataclass(frozen=True)
class Slot:
    """One `update` of a forward: of which cache of two ("": there is but one), at which layer."""

    part: str
    index: int
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


def is_cache(value: Any) -> bool:
    """Whether it is one of transformers' caches."""
    home = sys.modules.get(_HOME)
    return home is not None and isinstance(value, home.Cache)


def is_plain_layer(layer: Any) -> bool:
    """Whether it is a cache layer that only grows, of that very class."""
    return type(layer) is sys.modules[_HOME].DynamicLayer


def has_layers(cache: Any, part: str) -> bool:
    """Whether a cache is true."""
    return bool(getattr(cache, part) if part else cache)


def layer_of(cache: Any, slot_part: str, index: int) -> Any:
    """The cache layer; None where it is made by the first update."""
    holder = getattr(cache, slot_part) if slot_part else cache
    layers = holder.layers
    return layers[index] if index < len(layers) else None


def growing_layer(cache: Any, slot: Slot, layer: Any) -> Any:
    """The layer that a slot updates, made where there is none; None where it is another kind."""
    holder = getattr(cache, slot.part) if slot.part else cache
    home = sys.modules[_HOME]
    if holder.offloading or type(holder).update is not home.Cache.update:
        return None
    if layer is None:
        if holder.layer_class_to_replicate is not home.DynamicLayer:
            return None
        while len(holder.layers) <= slot.index:
            holder.layers.append(home.DynamicLayer())
        layer = holder.layers[slot.index]
    return layer if is_plain_layer(layer) else None


def kept_by(layer: Any) -> int:
    """How many keys a cache layer that only grows holds."""
    if layer is None or not layer.is_initialized or layer.keys is None:
        return 0
    keys = layer.keys
    return keys.shape[2] if keys.dim() == 4 else 0


class Session:
    """What a stub's methods do. This one runs a forward for real, beside the cache."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self.usage = Usage()

    def update(
        self, part: str, k: Tensor, v: Tensor, index: int, args: Any, kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values, these included."""
        layer = layer_of(self._cache, part, index)
        home = sys.modules[_HOME]
        exact = (
            *(home.DynamicLayer, home.DynamicSlidingWindowLayer),
            *(home.StaticLayer, home.StaticSlidingWindowLayer),
        )
        if layer is None or type(layer) in exact:
            args, kwargs = (), {}  # which these do not read
        elif any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves((args, kwargs))):
            raise UnknownStep(f"a {type(layer).__name__} that is given further tensors")
        found = (k, v) if layer is None else copy.deepcopy(layer).update(k, v, *args, **kwargs)
        length = k.shape[-2]
        total = length if layer is None else layer.get_mask_sizes(length)[0]
        if found[0].shape[-2] != total:
            raise UnknownStep(f"a {type(layer).__name__} that returns other keys than it says")
        self.usage.slots.append(Slot(part, index, tuple(args), dict(kwargs)))
        self.usage.totals.append(int(total))
        return found

    def length(self, part: str, index: int) -> Any:
        """How many keys are kept."""
        for slot, total in zip(self.usage.slots, self.usage.totals, strict=True):
            if (slot.part, slot.index) == (part, index):  # asked after the update
                layer = layer_of(self._cache, part, index)
                if layer is None or is_plain_layer(layer):
                    return total
                raise UnknownStep("a cache layer that is asked for its length twice")
        found = self._length(part, index)
        if type(found) is not int:
            raise UnknownStep("a cache that tells its length by a tensor")
        self.usage.asked.append((part, index))
        self.usage.lengths.append(found)
        return found

    def _length(self, part: str, index: int) -> Any:
        layer = layer_of(self._cache, part, index)
        return 0 if layer is None else layer.get_seq_length()

    def read(self, part: str, index: int, key: str) -> Tensor:
        """Keys or values as they are kept."""
        found: Tensor = getattr(layer_of(self._cache, part, index), key)
        self.usage.reads.append((part, index, key))
        return found

    def has_layers(self, part: str) -> bool:
        """Whether a cache has any."""
        return self.usage.filled.setdefault(part, has_layers(self._cache, part))

    def flag(self, index: int) -> Any:
        """Whether the cross attention of a layer has its keys."""
        if index in self.usage.written:
            return self.usage.written[index]
        return self.usage.flags.setdefault(index, self._cache.is_updated.get(index))

    def set_flag(self, index: int, value: Any) -> None:
        """Says so."""
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
        """What is given for it."""
        place = len(self.new) // 2
        self._expect(place < len(self.known.slots))
        slot = self.known.slots[place]
        self._expect((slot.part, slot.index) == (part, index))
        self.new += [k, v]
        return self._all_of(place, k, v)

    def length(self, part: str, index: int) -> Any:
        """What is given for it."""
        for place, slot in enumerate(self.known.slots[: len(self.new) // 2]):
            if (slot.part, slot.index) == (part, index):
                return self._totals[place]
        self._expect((part, index) in self.known.asked)
        return self._lengths[self.known.asked.index((part, index))]

    def read(self, part: str, index: int, key: str) -> Tensor:
        """What is given for it."""
        self._expect((part, index, key) in self.known.reads)
        return self._reads[self.known.reads.index((part, index, key))]

    def has_layers(self, part: str) -> bool:
        """As it was."""
        self._expect(part in self.known.filled)
        return self.known.filled[part]

    def flag(self, index: int) -> Any:
        """As it was, or was written since."""
        if index in self.usage.written:
            return self.usage.written[index]
        self._expect(index in self.known.flags)
        return self.known.flags[index]

    def _expect(self, holds: bool) -> None:
        if not holds:
            raise UnknownStep("its use of the cache varies")


class _Stub:
    """In the place of a cache: what it does not have makes a trace fail."""

    _session: Session
    _part: str

    def update(self, k: Tensor, v: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        return self._session.update(self._part, k, v, plain(layer_idx), args, kwargs)

    def __bool__(self) -> bool:
        return self._session.has_layers(self._part)

    def __len__(self) -> int:
        raise UnknownStep("a cache is asked for the number of its layers")

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        part = "self_attention_cache" if hasattr(type(self), "_two") else self._part
        return self._session.length(part, plain(layer_idx))

    @property
    def layers(self) -> Any:
        return _Layers(self._session, self._part)

    def __getattr__(self, name: str) -> Any:
        raise UnknownStep(f"a cache is asked for its {name}")


class _TwoStubs(_Stub):
    """In the place of the caches of self and cross attention."""

    _two = True
    self_attention_cache: Any
    cross_attention_cache: Any
    is_updated: Any


class _Layers:
    def __init__(self, session: Session, part: str) -> None:
        self._session, self._part = session, part

    def __getitem__(self, index: int) -> Any:
        return _Layer(self._session, self._part, plain(index))


class _Layer:
    def __init__(self, session: Session, part: str, index: int) -> None:
        self._at = session, part, index

    @property
    def keys(self) -> Tensor:
        session, part, index = self._at
        return session.read(part, index, "keys")

    @property
    def values(self) -> Tensor:
        session, part, index = self._at
        return session.read(part, index, "values")


class _Flags:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, index: int, default: Any = None) -> Any:
        return self._session.flag(plain(index))

    __getitem__ = get

    def __setitem__(self, index: int, value: Any) -> None:
        self._session.set_flag(plain(index), value)


@lru_cache(64)
def _stub_type(kind: type, stub: type) -> type:
    return type(f"{kind.__name__}Stub", (stub, kind), {})


def stub_of(cache: Any, session: Session) -> Any:
    """What stands for `cache` in a forward that `session` watches."""
    if not is_cache(cache):
        raise UnknownStep(f"an argument is a {type(cache).__name__}")
    home = sys.modules[_HOME]
    if not isinstance(cache, home.EncoderDecoderCache):
        return _made(type(cache), _Stub, session, "")
    made: Any = _made(type(cache), _TwoStubs, session, "")
    for part in ("self_attention_cache", "cross_attention_cache"):
        made.__dict__[part] = _made(type(getattr(cache, part)), _Stub, session, part)
    made.__dict__["is_updated"] = _Flags(session)
    return made


def _made(kind: type, stub: type, session: Session, part: str) -> Any:
    made: Any = object.__new__(_stub_type(kind, stub))
    made.__dict__.update(_session=session, _part=part)
    return made


def _never(k: Tensor, v: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    raise RuntimeError("octavo::cached is for traces")


def _fake(k: Tensor, v: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    sizes = (*k.shape[:2], total.shape[0])
    return k.new_empty((*sizes, k.shape[3])), v.new_empty((*sizes, v.shape[3]))


cached = ops.define(
    "cached", "(Tensor k, Tensor v, Tensor total) -> (Tensor, Tensor)", _never, _fake
)
