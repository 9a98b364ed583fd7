"""What is traced of a call, and tried: its forward, over all that a trace has for inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from octavo.torch.blocks.cache.cache_stubs import stub_of
from octavo.torch.blocks.cache.cached_plans import CachedPlan, made_up
from octavo.torch.blocks.cache.call_caches import (
    GivenSession,
    Session,
    Usage,
    cached,
    is_cache,
    layer_of,
)
from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.plan.compiled import Compiled
from octavo.torch.blocks.plan.plans import Held, Plan

Forward = Callable[[Sequence[Tensor], Sequence[Any]], Any]
"""Calls a block's own forward with tensors and objects in their places."""
AnyPlan = Plan | CachedPlan


class PlainCall:
    """A call with nothing but tensors and plain values."""

    more_sizes: tuple[int, ...] = ()
    """Sizes of the inputs that follow the call's tensors."""
    usage_key: Any = None
    """What tells calls apart besides, for blocks of one structure."""

    def __init__(self, forward: Forward, tensors: tuple[Tensor, ...]) -> None:
        self._forward = forward
        self.given = tensors

    def traced(self, *given: Tensor) -> Any:
        """Return what the forward returns for the inputs of a trace."""
        return self._forward(given, ())

    def own(self, given: tuple[Tensor, ...]) -> Sequence[Any]:
        """Return the leaves of what the forward returns for real tensors."""
        leaves: Sequence[Any] = pytree.tree_leaves(self.traced(*given))
        return leaves

    def plan(self, compiled: Compiled, held: Held, name: str) -> AnyPlan:
        """Make the plan that runs `compiled` with the tensors that `held` holds."""
        return Plan(compiled, held, name)


class CachedCall(PlainCall):
    """A call with one cache. It is run once, beside the cache, to see how that is used."""

    def __init__(
        self, forward: Forward, tensors: tuple[Tensor, ...], objects: tuple[Any, ...]
    ) -> None:
        cache = objects[0]
        if any(other is not cache for other in objects) or not is_cache(cache):
            raise UnknownStep(f"an argument is a {type(objects[-1]).__name__}")
        super().__init__(forward, tensors)
        self._cache, self._objects, self._count = cache, len(objects), len(tensors)
        session = Session(cache)
        with torch.no_grad():
            self._run(tensors, session)
        self.usage: Usage = session.usage
        reads = [
            getattr(layer_of(cache, part, index), key) for part, index, key in self.usage.reads
        ]
        counts = (*self.usage.totals, *self.usage.lengths)
        self.given = (*tensors, *reads, *(torch.empty(n) for n in counts))
        self.more_sizes = (*(n for t in reads for n in t.shape), *counts)
        places = [(s.part, type(s.kind), len(s.args), len(s.kwargs)) for s in self.usage.slots]
        asked = [part for part, _ in self.usage.asked]
        read = [(part, key) for part, _, key in self.usage.reads]
        flags = [*self.usage.flags.values(), *self.usage.written.values()]
        self.usage_key = repr((places, asked, read, flags, self.usage.filled))

    def traced(self, *given: Tensor) -> Any:
        """Return what the forward returns, and the keys and values that it gives the cache."""
        totals, lengths = self._counts(given)

        def all_of(place: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            found: tuple[Tensor, Tensor] = cached(k, v, totals[place])
            return found

        return self._result(given, all_of, totals, lengths)

    def own(self, given: tuple[Tensor, ...]) -> Sequence[Any]:
        """Return the leaves of what the forward returns and gives the cache, for real tensors."""
        totals, lengths = self._counts(given)

        def all_of(place: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return made_up(place, k, v, len(totals[place]))

        result = self._result(given, all_of, totals, lengths)
        leaves: Sequence[Any] = pytree.tree_leaves(result)
        return leaves

    def plan(self, compiled: Compiled, held: Held, name: str) -> AnyPlan:
        """Make the plan that runs `compiled` with the tensors that `held` holds and a cache."""
        return CachedPlan(compiled, held, name, self.usage, self._count)

    def _counts(self, given: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        first = self._count + len(self.usage.reads)
        last = first + len(self.usage.totals)
        return given[first:last], given[last:]

    def _result(self, given: Sequence[Tensor], all_of: Any, totals: Any, lengths: Any) -> Any:
        reads = given[self._count :][: len(self.usage.reads)]
        sizes = ([t.shape[0] for t in totals], [t.shape[0] for t in lengths])
        session = GivenSession(self.usage, all_of, reads, *sizes)
        return self._run(given[: self._count], session), session.new

    def _run(self, tensors: Sequence[Tensor], session: Session) -> Any:
        return self._forward(tensors, [stub_of(self._cache, session)] * self._objects)
