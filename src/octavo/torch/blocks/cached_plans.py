"""Plans for calls with a cache: a program before its update and one after, or one that does both.

Where a cache layer only grows, keys and values are written behind the others, into memory with room
for more. In every other cache the update is its own, between two programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from octavo.core.program import Program
from octavo.torch.blocks.caches import (
    Usage,
    growing_layer,
    has_layers,
    is_plain_layer,
    kept_by,
    layer_of,
)
from octavo.torch.blocks.compiled import Compiled
from octavo.torch.blocks.emission import Emission
from octavo.torch.blocks.nodes import Graph, Node, UnknownStep
from octavo.torch.blocks.plans import Held, Outputs, used_inputs
from octavo.torch.blocks.room import room_of

_VIEWS = ("reshape", "permute", "slice", "unsqueeze", "squeeze", "expand")


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
        self._inputs, self._probes = inputs[:given], inputs[given:]
        count = len(compiled.outputs) - 2 * len(usage.slots)
        spec = compiled.structure.children()[0]
        self._outputs = Outputs(compiled.outputs[:count], spec)
        self._new: list[Node] = compiled.outputs[count:]
        if any(n.op == "cached" for n in Graph([], self._new).nodes()):
            raise UnknownStep("keys that are computed from those of a cache")
        self._cached = [n for n in Graph([], self._outputs.nodes).nodes() if n.op == "cached"]
        self._shapes = [compiled.sizes.function(node.shape) for node in self._new]
        self._ints = [i for i, n in enumerate(self._probes) if not isinstance(n.shape[0], int)]
        self._held, self._name = held, name
        self._split = _Split(self)
        self._grown: _Grown | None = None
        self._threads = torch.get_num_threads

    # --- what a call is ---

    def fits(self, sizes: tuple[int, ...], objects: tuple[Any, ...]) -> Any:
        """What `run` takes besides, or None where it is for other sizes, or other states."""
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
        layers, totals = [], []
        for slot, shape in zip(usage.slots, self._shapes[::2], strict=True):
            layer = layer_of(cache, slot.part, slot.index)
            added = shape(sizes)[2]
            layers.append(layer)
            if layer is None or is_plain_layer(layer):
                totals.append(kept_by(layer) + added)
            else:
                totals.append(int(layer.get_mask_sizes(added)[0]))
        lengths = []
        for part, index in usage.asked:
            layer = layer_of(cache, part, index)
            length = 0 if layer is None else layer.get_seq_length()
            if type(length) is not int:
                return None
            lengths.append(length)
        if not self._sizes.fit((*sizes, *totals, *lengths)):
            return None
        return reads, layers, (*totals, *lengths), sizes

    # --- running ---

    def run(self, tensors: tuple[Tensor, ...], objects: tuple[Any, ...], state: Any) -> Any:
        """What the block's forward returns; the cache holds the new keys and values."""
        cache = objects[0]
        reads, layers, counts, sizes = state
        given = (*tensors, *reads)
        ints = tuple(counts[i] for i in self._ints)
        made = self._run_grown(cache, given, layers, counts, ints, sizes)
        if made is None:
            made = self._split.run(given, ints, partial(self._update, cache))
        for index, value in self._usage.written.items():
            cache.is_updated[index] = value
        return self._outputs.returned(made, given)

    def _update(self, cache: Any, place: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        slot = self._usage.slots[place]
        holder = getattr(cache, slot.part) if slot.part else cache
        found: tuple[Tensor, Tensor] = holder.update(k, v, slot.index, *slot.args, **slot.kwargs)
        return found

    def _run_grown(
        self, cache: Any, given: Any, layers: Any, counts: Any, ints: Any, sizes: Any
    ) -> Any:
        """What one program makes that writes into the cache's own memory; None where none can."""
        if not layers:
            return None
        rooms = []
        for place, (slot, found) in enumerate(zip(self._usage.slots, layers, strict=True)):
            layer = growing_layer(cache, slot, found)
            if layer is None:
                return None
            keys, values = (self._shapes[2 * place + i](sizes) for i in (0, 1))
            spare = slot.part != "cross_attention_cache"
            room = room_of(layer, counts[place] - keys[2], counts[place], keys, values, spare)
            if room is None:
                return None
            rooms.append(room)
        if self._grown is None:
            self._grown = _Grown(self)
        memory = tuple(t for room in rooms for t in (room.keys, room.values))
        made = self._grown.run(given, memory, ints)
        for room, total in zip(rooms, counts, strict=False):
            room.keep(total)
        return made

    def flat(self, tensors: tuple[Tensor, ...]) -> list[Any]:
        """All outputs and what updates are given, in a row, where these return made-up values."""
        count = len(self._inputs)
        given, probes = tensors[:count], tensors[count:]
        new: list[Tensor] = []

        def all_of(place: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            new.extend((k, v))
            return made_up(place, k, v, len(probes[place]))

        ints = tuple(len(probes[i]) for i in self._ints)
        made = self._split.run(given, ints, all_of)
        return [*self._outputs.flat(made, given), *new]


def made_up(place: int, k: Tensor, v: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """All keys and values that a cache could return in a trial."""
    draw = torch.Generator().manual_seed(place)
    keys = torch.randn(*k.shape[:2], total, k.shape[3], generator=draw)
    return keys, torch.randn(*v.shape[:2], total, v.shape[3], generator=draw)


class _Part:
    """One program of a plan."""

    def __init__(self, plan: CachedPlan, roots: Sequence[Node]) -> None:
        self.program = Program()
        self.emission = Emission(self.program, plan._held.weights)
        used = used_inputs(plan._inputs, roots)
        for node in used:
            self.emission.input(node)
        self._used = [node.args[0] for node in used]
        for place in plan._ints:
            self.emission.number(plan._probes[place].shape[0])
        self._threads = torch.get_num_threads

    def finish(self, name: str, outputs: Sequence[Node]) -> None:
        for node in outputs:
            self.program.output(self.emission.value(node))
        self._call = self.program.finish(name)

    def run(self, given: Sequence[Tensor], more: Any, ints: Any) -> Any:
        tensors = (*(given[i] for i in self._used), *more)
        return self._call(tensors, ints, self._threads())


class _Split:
    """A program that computes new keys and values, and one that goes on with all of them."""

    def __init__(self, plan: CachedPlan) -> None:
        self._plan = plan
        border = _border(plan._outputs.nodes)
        self._before = _Part(plan, [*plan._new, *border])
        self._before.finish(f"{plan._name} before its cache", [*plan._new, *border])
        self._after = after = _Part(plan, plan._outputs.nodes)
        for node in border:
            after.emission.input(node)
        places = {n.args[0]: i for i, n in enumerate(plan._probes)}
        self._kept: list[tuple[int, int]] = []
        for node in plan._cached:
            after.emission.input(node)
            self._kept.append((places[node.attributes["total"]], node.args[2]))
        after.finish(f"{plan._name} after its cache", plan._outputs.nodes)

    def run(
        self,
        given: Sequence[Tensor],
        ints: Any,
        update: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]],
    ) -> Any:
        made = self._before.run(given, (), ints)
        count = len(self._plan._new)
        kept = [update(i, made[2 * i], made[2 * i + 1]) for i in range(count // 2)]
        full = tuple(kept[place][which] for place, which in self._kept)
        return self._after.run(given, (*made[count:], *full), ints)


class _Grown:
    """One program that writes new keys and values behind those in memory with room."""

    def __init__(self, plan: CachedPlan) -> None:
        part = self._part = _Part(plan, [*plan._new, *plan._outputs.nodes])
        e, program = part.emission, part.program
        places = {n.args[0]: i for i, n in enumerate(plan._probes)}
        memory = [(program.input(4), program.input(4)) for _ in plan._usage.slots]
        for place, both in enumerate(memory):
            total = e.size(plan._probes[place].shape[0])
            for which, whole in enumerate(both):
                new = plan._new[2 * place + which]
                length = e.size(new.shape[2])
                start = (
                    total - length
                    if isinstance(total, int) and isinstance(length, int)
                    else (program.compute("sub", total, length))
                )
                program.copy_to(e.value(new), program.slice(whole, 2, start, total))
                kept = program.slice(whole, 2, 0, total)
                for node in plan._cached:
                    if places[node.attributes["total"]] == place and node.args[2] == which:
                        e.give(node, kept)
        part.finish(plan._name, plan._outputs.nodes)

    def run(self, given: Any, memory: Any, ints: Any) -> Any:
        return self._part.run(given, memory, ints)


def _border(roots: Sequence[Node]) -> list[Node]:
    """What a program after the cache is given of the one before: no views, nothing twice."""
    depends: dict[int, bool] = {}
    graph = Graph([], list(roots))
    for node in graph.nodes():
        depends[id(node)] = node.op == "cached" or any(depends[id(n)] for n in node.inputs)
    found: list[Node] = []
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen or node.op in ("input", "constant", "cached"):
            continue
        seen.add(id(node))
        if depends[id(node)] or node.op in _VIEWS:
            stack.extend(node.inputs)
        else:
            found.append(node)
    return found
