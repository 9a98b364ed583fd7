"""Variants of a model timed in turns with the float one: few in memory at once, within a limit."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from octavo.measure.benchmark import compare
from octavo.measure.openings import Clock
from octavo.results.target import Built, Feed

HELD = 2 * 2**30
"""Bytes of variants that exist at once beside the float model; one variant may have more."""

OPENINGS, CALLS = 6, 11
"""Of each model, in a comparison of which something can be told."""

Opener = Callable[[], Built]
Maker = Callable[[], AbstractContextManager[Opener]]
Row = list[float]  # a ratio, and the bounds of its interval


def fewest_seconds(models: int, call: float, opening: float = 0.0) -> float:
    """Return the least seconds that comparing so many models takes, if all are like this one."""
    return models * (OPENINGS * opening + CALLS * call)


# docs/notes/tuning.md: "Few variants are held at once"
@dataclass
class Turns:
    """One comparison: `makers` make the models, the float one first, and `feeds` are the inputs.

    It takes about `seconds` where calls are short. Nothing begins after `limit` seconds. Where
    that is too short for all variants, the first ones are compared, or none.
    """

    makers: Sequence[Maker]
    feeds: Sequence[Feed]
    seconds: float
    limit: float = math.inf
    seed: int = 0
    held: int = HELD
    clock: Clock = field(default_factory=Clock)
    _openers: dict[int, Opener] = field(default_factory=dict)
    _float_seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes: list[int | None] = [None] * len(self.makers)
        self._times: list[float | None] = [None] * len(self.makers)
        self._errors = [""] * len(self.makers)
        self._pairs: dict[tuple[int, int], Row] = {}
        self._end = self.clock.wall() + self.limit
        self._each = 0.0  # seconds that a model needs at least

    def compared(self) -> dict[str, Any]:
        """Return `seconds`, `bytes` and `errors` of each model, and `pairs`.

        A pair is [a, b, the time of b over that of a, the bounds of its 99% interval], where a
        and b are places among the makers.

        A model that cannot be made or run has an error in place of figures; one that there was no
        time for has neither. Both are in no pair. Several inputs share the time, and count alike.
        """
        with contextlib.ExitStack() as stack:
            if self._make(0, stack):
                self._each = self._least()
                left = self._wanted()
                all_models = len(left)
                while left:
                    left = self._compare_some(left, all_models)
        self._add_pairs_through_float()
        rows = [[*places, *figures] for places, figures in self._pairs.items()]
        return {
            "seconds": self._times,
            "bytes": self._sizes,
            "errors": self._errors,
            "pairs": rows,
        }

    def _least(self) -> float:
        """Seconds that a model like the float one needs; it has run once before."""
        start = self.clock.wall()
        built = self._openers[0]()
        opening = self.clock.wall() - start
        self._run(built)
        return fewest_seconds(1, self.clock.wall() - start - opening, opening)

    def _wanted(self) -> list[int]:
        """List the variants that there is time for, if making them takes none."""
        others = len(self.makers) - 1
        room = int(min(others, (self._end - self.clock.wall()) / max(self._each, 1e-9) - 1))
        return list(range(1, room + 1)) if room >= min(2, others) else []

    def _compare_some(self, left: list[int], all_models: int) -> list[int]:
        """Make and compare the first of `left`, as many as may be held; return the others.

        None are left where the end is near.
        """
        with contextlib.ExitStack() as stack:
            some: list[int] = []
            held = largest = 0
            while left and (not some or held + largest <= self.held):
                if self.clock.wall() + self._each * (len(some) + 2) > self._end:
                    left = []
                    break
                at, *left = left
                if self._make(at, stack):
                    some.append(at)
                    twice = 2 * (self._sizes[at] or 0)  # as it was made, and as it is opened
                    held, largest = held + twice, max(largest, twice)
            if some:
                share = len(some) / (len(some) + len(left))
                self._time([0, *some], self.seconds * len(some) / all_models, share)
            for at in some:
                del self._openers[at]
        return left

    def _make(self, at: int, stack: contextlib.ExitStack) -> bool:
        """Tell whether the model can be made, opened and run."""
        try:
            opener = stack.enter_context(self.makers[at]())
            built = opener()
            self._run(built)
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises for a form
            self._errors[at] = f"{type(error).__name__}: {error}"
            return False
        self._openers[at], self._sizes[at] = opener, built.bytes
        return True

    def _run(self, built: Built) -> None:
        for feed in self.feeds:
            built.run(feed)

    def _time(self, places: Sequence[int], seconds: float, share: float) -> None:
        """Compare some models within this `share` of the time that is left; more if need be."""
        left = self._end - self.clock.wall()
        limit = min(left, max(left * share, self._each * len(places))) / len(self.feeds)
        found = []
        for feed in self.feeds:
            calls = {str(at): partial(_opened_call, self._openers[at], feed) for at in places}
            budget = seconds / len(self.feeds)
            found.append(
                compare(calls, seconds=budget, seed=self.seed, limit=limit, clock=self.clock)
            )
        if not all(rows for rows, _ in found):
            return  # the end came first
        for at in places:
            self._times[at] = math.fsum(
                one.seconds for _, timed in found for one in timed if one.name == str(at)
            )
        self._float_seconds.append(self._times[0] or 0.0)
        self._times[0] = math.fsum(self._float_seconds) / len(self._float_seconds)
        for rows, _ in found:
            for row in rows:
                known = self._pairs.setdefault((int(row.a), int(row.b)), [1.0, 1.0, 1.0])
                for i, value in enumerate((row.ratio, row.low, row.high)):
                    known[i] *= value ** (1 / len(found))

    def _add_pairs_through_float(self) -> None:
        """Add pairs not held at once, from what each model takes of the float model's time."""
        timed = [at for at in range(1, len(self.makers)) if (0, at) in self._pairs]
        for i, b in enumerate(timed):
            for a in timed[:i]:
                if (a, b) not in self._pairs:
                    self._pairs[a, b] = quotient(self._pairs[0, b], self._pairs[0, a])


def quotient(b: Row, a: Row) -> Row:
    """Return the ratio of two ratios measured apart: their errors add up as squares do."""
    middle_b, low_b, high_b = map(_log, b)
    middle_a, low_a, high_a = map(_log, a)
    middle = middle_b - middle_a
    low = middle - math.hypot(middle_b - low_b, high_a - middle_a)
    high = middle + math.hypot(high_b - middle_b, middle_a - low_a)
    return [math.exp(max(-100.0, min(x, 100.0))) for x in (middle, low, high)]


def _log(x: float) -> float:
    return math.log(max(x, 1e-40))  # of two values an interval may begin at 0


def _opened_call(opener: Opener, feed: Feed) -> Any:
    return partial(opener().run, feed)
