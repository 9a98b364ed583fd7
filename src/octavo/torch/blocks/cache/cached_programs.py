"""Programs of a plan with a cache: one that writes into it, or one on each side of its update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.core.program import Program
from octavo.torch.blocks.emit.emission import Emission
from octavo.torch.blocks.nodes import Graph, Node
from octavo.torch.blocks.plan.plans import Held, used_inputs

_VIEWS = ("reshape", "permute", "slice", "unsqueeze", "squeeze", "expand")


@dataclass(frozen=True)
class Parts:
    """What programs are made of."""

    name: str
    held: Held
    inputs: Sequence[Node]
    """The tensors of a call, and those of the cache that it reads."""
    probes: Sequence[Node]
    """Whose first size is how many keys an update returns, or a layer says to have."""
    ints: Sequence[int]
    """Those probes whose size varies, in order."""
    new: Sequence[Node]
    """Keys and values that updates are given."""
    cached: Sequence[Node]
    """What comes of updates and is read."""
    results: Sequence[Node]


class _Part:
    """One program of a plan."""

    def __init__(self, parts: Parts, roots: Sequence[Node]) -> None:
        self.program = Program()
        self.emission = Emission(self.program, parts.held.weights)
        used = used_inputs(parts.inputs, roots)
        for node in used:
            self.emission.input(node)
        self._used = [node.args[0] for node in used]
        for place in parts.ints:
            self.emission.number(parts.probes[place].shape[0])
        self._threads = torch.get_num_threads

    def finish(self, name: str, outputs: Sequence[Node]) -> None:
        for node in outputs:
            self.program.output(self.emission.value(node))
        self._call = self.program.finish(name)

    def run(self, given: Sequence[Tensor], more: Any, ints: Any) -> Any:
        tensors = (*[given[i] for i in self._used], *more)
        return self._call(tensors, ints, self._threads())


class Split:
    """A program that computes new keys and values, and one that goes on with all of them."""

    def __init__(self, parts: Parts) -> None:
        self._count = len(parts.new)
        border = _border(parts.results)
        self._before = _Part(parts, [*parts.new, *border])
        self._before.finish(f"{parts.name} before its cache", [*parts.new, *border])
        self._after = after = _Part(parts, parts.results)
        for node in border:
            after.emission.input(node)
        places = _places(parts)
        self._kept: list[tuple[int, int]] = []
        for node in parts.cached:
            after.emission.input(node)
            self._kept.append((places[node.attributes["total"]], node.args[2]))
        after.finish(f"{parts.name} after its cache", parts.results)

    def run(
        self,
        given: Sequence[Tensor],
        ints: Any,
        update: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]],
    ) -> Any:
        """Run both programs, and return all results.

        `update` is called with the place of an update and its new keys and values.
        """
        made = self._before.run(given, (), ints)
        kept = [update(i, made[2 * i], made[2 * i + 1]) for i in range(self._count // 2)]
        full = tuple(kept[place][which] for place, which in self._kept)
        return self._after.run(given, (*made[self._count :], *full), ints)


class Whole:
    """One program that writes new keys and values where a cache's layers have them."""

    def __init__(self, parts: Parts) -> None:
        part = self._part = _Part(parts, [*parts.new, *parts.results])
        e, program = part.emission, part.program
        count = len(parts.new) // 2
        memory = [(program.input(4), program.input(4)) for _ in range(count)]
        starts = [program.input_int() for _ in range(count)]
        places = _places(parts)
        for place, both in enumerate(memory):
            total = e.size(parts.probes[place].shape[0])
            for which, whole in enumerate(both):
                new = parts.new[2 * place + which]
                end = program.compute("add", starts[place], e.size(new.shape[2]))
                program.copy_to(e.value(new), program.slice(whole, 2, starts[place], end))
                kept = program.slice(whole, 2, 0, total)
                for node in parts.cached:
                    if places[node.attributes["total"]] == place and node.args[2] == which:
                        e.give(node, kept)
        part.finish(parts.name, parts.results)

    def run(self, given: Sequence[Tensor], memory: Any, ints: Any) -> Any:
        """Return all results; `memory` is two tensors per update, `ints` ends with their starts."""
        return self._part.run(given, memory, ints)


def _places(parts: Parts) -> dict[int, int]:
    return {node.args[0]: i for i, node in enumerate(parts.probes)}


def _border(roots: Sequence[Node]) -> list[Node]:
    """Return the nodes that the program before the cache passes to the one after it.

    They are no views, and none is there twice.
    """
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
