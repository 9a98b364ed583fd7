"""Plans for calls with a cache: one program, or one before the cache's own update and one after.

One program writes new keys and values where the layers of a cache have them, where these are of
classes that are known (`cache_layers`). In every other cache the update is its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from octavo.torch.blocks.cache.cache_layers import Place, kind_of, place_of
from octavo.torch.blocks.cache.cached_programs import Parts, Split, Whole
from octavo.torch.blocks.cache.call_caches import (
    Usage,
    has_layers,
    holder_of,
    layer_of,
    length_of,
    returned_by,
)
from octavo.torch.blocks.nodes import Graph, UnknownStep
from octavo.torch.blocks.plan.compiled import Compiled
from octavo.torch.blocks.plan.plans import Held, Outputs

_LASTING = "cross_attention_cache"
"""The part of a cache that is written once."""
_MANY = 256


class CachedPlan:
    """Runs calls with one cache, which a forward uses as `usage` says."""

    def __init__(
        self, compiled: Compiled, held: Held, name: str, usage: Usage, tensors: int
    ) -> None:
        self._sizes = compiled.sizes
        self._constants = held.weights.constants
        self._usage = usage
        inputs = compiled.graph.inputs
        given = tensors + len(usage.reads)
        probes = inputs[given:]
        count = len(compiled.outputs) - 2 * len(usage.slots)
        spec = compiled.structure.children()[0]
        self._outputs = Outputs(compiled.outputs[:count], spec)
        results, new = self._outputs.nodes, compiled.outputs[count:]
        if any(n.op == "cached" for n in Graph([], new).nodes()):
            raise UnknownStep("keys that are computed from those of a cache")
        cached = [n for n in Graph([], results).nodes() if n.op == "cached"]
        ints = [i for i, n in enumerate(probes) if not isinstance(n.shape[0], int)]
        self._shapes = [compiled.sizes.function(node.shape) for node in new]
        self._known: dict[tuple[int, ...], list[Any]] = {}
        self._parts = Parts(name, held, inputs[:given], probes, ints, new, cached, results)
        self._split = Split(self._parts)
        self._whole: Whole | None = None

    # --- what a call is ---

    def fits(self, sizes: tuple[int, ...], objects: tuple[Any, ...]) -> Any:
        """Return the `state` for `run`; None if the plan is for other sizes or cache states."""
        cache, usage = objects[0], self._usage
        if any(cache.is_updated.get(i) != value for i, value in usage.flags.items()):
            return None
        if any(has_layers(cache, part) is not truth for part, truth in usage.filled.items()):
            return None
        reads = []
        for part, index, key in usage.reads:
            layer = layer_of(cache, part, index)
            found: Any = getattr(layer, key, None)
            if type(found) is not Tensor or found.dtype is not torch.float32:
                return None
            reads.append(found)
            sizes = (*sizes, *found.shape)
        shapes = self._new_shapes(sizes)
        counts = []
        for slot, (keys, _) in zip(usage.slots, shapes, strict=True):
            layer = layer_of(cache, slot.part, slot.index)
            if kind_of(holder_of(cache, slot.part), layer) is not slot.kind:
                return None
            counts.append(returned_by(slot.kind, layer, keys[2]))
        for part, index in usage.asked:
            counts.append(length_of(layer_of(cache, part, index)))
        if not self._sizes.fit((*sizes, *counts)):
            return None
        return reads, shapes, counts

    def _new_shapes(self, sizes: tuple[int, ...]) -> Any:
        """Return the shapes of the new keys and values of each update."""
        found = self._known.get(sizes)
        if found is None:
            if len(self._known) >= _MANY:
                self._known.clear()
            made = [shape(sizes) for shape in self._shapes]
            found = self._known[sizes] = list(zip(made[::2], made[1::2], strict=True))
        return found

    # --- running ---

    def run(self, tensors: tuple[Tensor, ...], objects: tuple[Any, ...], state: Any) -> Any:
        """Return what the block's forward returns; the new keys and values go into the cache."""
        cache = objects[0]
        reads, shapes, counts = state
        given = (*tensors, *reads)
        ints = [counts[i] for i in self._parts.ints]
        places = self._places(cache, shapes)
        if places is None:
            made = self._split.run(given, tuple(ints), partial(self._update, cache))
        else:
            made = self._run_whole(given, places, ints)
        for index, value in self._usage.written.items():
            cache.is_updated[index] = value
        return self._outputs.returned(made, given)

    def _update(self, cache: Any, place: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        slot = self._usage.slots[place]
        holder = holder_of(cache, slot.part)
        found: tuple[Tensor, Tensor] = holder.update(k, v, slot.index, *slot.args, **slot.kwargs)
        return found

    def _places(self, cache: Any, shapes: Any) -> list[Place] | None:
        """Say where each update's keys and values go; None if the cache's own update must run."""
        slots = self._usage.slots
        if not slots or any(slot.kind is None for slot in slots):
            return None
        found = []
        for slot, (keys, values) in zip(slots, shapes, strict=True):
            lasting = slot.part == _LASTING
            place = place_of(holder_of(cache, slot.part), slot.index, keys, values, lasting)
            if place is None:
                return None
            found.append(place)
        return found

    def _run_whole(self, given: Any, places: list[Place], ints: list[int]) -> Any:
        if self._whole is None:
            self._whole = Whole(self._parts)
        memory = []
        for place in places:
            if place.before is not None:
                place.before()
            memory += [place.keys, place.values]
            ints.append(place.start)
        made = self._whole.run(given, memory, tuple(ints))
        for place in places:
            place.done()
        return made

    def flat(self, tensors: tuple[Tensor, ...]) -> list[Any]:
        """Return, in a row, all outputs and what updates get; updates return made-up values."""
        count = len(self._parts.inputs)
        given, probes = tensors[:count], tensors[count:]
        new: list[Tensor] = []

        def all_of(place: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            new.extend((k, v))
            return made_up(place, k, v, len(probes[place]))

        ints = tuple(len(probes[i]) for i in self._parts.ints)
        made = self._split.run(given, ints, all_of)
        return [*self._outputs.flat(made, given), *new]


def made_up(place: int, k: Tensor, v: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Make up all keys and values that a cache could return in a trial."""
    draw = torch.Generator().manual_seed(place)
    keys = torch.randn(*k.shape[:2], total, k.shape[3], generator=draw)
    return keys, torch.randn(*v.shape[:2], total, v.shape[3], generator=draw)
