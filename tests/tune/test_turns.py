"""Comparisons of a model's variants: how many at once, and that they end in time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from octavo.results.target import Built
from octavo.tune.turns import Maker, Opener, Turns, fewest_seconds, quotient
from tests.measure.noisy_machine import Machine

FLOAT_BYTES = 400


class Models:
    """On a made-up machine: those that exist, and the most bytes that did, beside the float one."""

    def __init__(self, calls: Mapping[int, float], making: float = 0.0, opening: float = 0.001):
        self.machine = Machine(1, placed=0.001, spikes=0, drift=0.05, idle=0)
        self.calls, self.making, self.opening = calls, making, opening
        self.alive: set[int] = set()
        self.most, self.broken = 0, -1

    def maker(self, at: int) -> Maker:
        @contextmanager
        def made() -> Iterator[Opener]:
            if at == self.broken:
                raise RuntimeError("no such kernel")
            self.machine.sleep(self.making if at else 0.0)
            open_one = self.machine.opener(self.calls[at], self.opening)
            self.alive.add(at)
            self.most = max(self.most, len(self.alive - {0}))
            yield lambda: built(open_one(), 100 if at else FLOAT_BYTES)
            self.alive.remove(at)

        return made

    def turns(self, **more: Any) -> Turns:
        makers = [self.maker(at) for at in self.calls]
        return Turns(makers, [{}], 5.0, clock=self.machine.clock, **more)


def built(call: Any, size: int) -> Built:
    return Built(None, lambda feed: call(), size)


TIMES = {0: 0.01, 1: 0.005, 2: 0.004, 3: 0.008, 4: 0.012}


@pytest.mark.parametrize(("held", "at_once"), [(10**9, 4), (400, 2), (0, 1)])
def test_no_more_variants_exist_at_once_than_may_be_held(held: int, at_once: int) -> None:
    models = Models(TIMES)
    found = models.turns(held=held).compared()
    assert (models.most, models.alive) == (at_once, set())
    pairs = {(a, b): (ratio, low, high) for a, b, ratio, low, high in found["pairs"]}
    assert set(pairs) == {(a, b) for b in TIMES for a in range(b)}
    for (a, b), (ratio, low, high) in pairs.items():
        assert ratio == pytest.approx(TIMES[b] / TIMES[a], rel=0.02)
        assert low < ratio < high < 1.1 * low
    assert found["bytes"] == [FLOAT_BYTES, 100, 100, 100, 100]
    assert models.machine.now < 8


def test_one_that_cannot_be_made_has_the_error_and_the_others_times() -> None:
    models = Models(TIMES)
    models.broken = 2
    found = models.turns(held=0).compared()
    assert found["errors"] == ["", "", "RuntimeError: no such kernel", "", ""]
    assert [seconds is None for seconds in found["seconds"]] == [False, False, True, False, False]
    assert not any(2 in pair[:2] for pair in found["pairs"])


@pytest.mark.parametrize("making", [0.0, 0.4])
@pytest.mark.parametrize("opening", [0.0, 0.5])
@pytest.mark.parametrize("call", [0.001, 0.5, 5.0])
@pytest.mark.parametrize("limit", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("held", [10**9, 0])
def test_a_comparison_ends_in_time(
    making: float, opening: float, call: float, limit: float, held: int
) -> None:
    """But for what the float model's own figures cost, and the last step."""
    models = Models(dict.fromkeys(range(8), call), making, opening)
    turns = models.turns(limit=limit, held=held)
    found = turns.compared()
    step = max(making + opening + call, 2 * call)
    assert models.machine.now <= max(limit, 2 * (opening + call)) * 1.02 + 1.1 * step
    timed = [at for at, seconds in enumerate(found["seconds"]) if seconds is not None]
    assert timed == list(range(len(timed)))  # the first ones
    if fewest_seconds(9 if held else 15, call * 1.1, opening) + 8 * making < limit:
        assert len(timed) == 8


def test_errors_of_ratios_measured_apart_add_up_as_squares() -> None:
    ratio, low, high = quotient([0.5, 0.5 * math.exp(-3), 0.5], [0.25, 0.25, 0.25 * math.exp(4)])
    assert ratio == pytest.approx(2)
    assert low == pytest.approx(2 * math.exp(-5))
    assert high == pytest.approx(2)
    assert quotient([1.0, 0.0, 1e40], [1.0, 0.0, 1e40])[2] < math.inf
