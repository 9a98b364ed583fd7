"""Which callable is faster: on a machine that drifts, stalls and places models at random."""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import octavo.measure
from octavo.errors import OptionError
from octavo.measure.benchmark import compare
from octavo.measure.openings import LONG, SLOT, Clock, Openings
from octavo.results.benchmark import Benchmark, Pair, Verdict
from tests.measure.noisy_machine import Machine

NOISES: list[dict[str, float]] = [
    {},
    {"placed": 0.04, "drift": 0.6},
    {"spikes": 0.1, "jitter": 0.1},
]
QUIET: dict[str, float] = {"placed": 0, "spikes": 0, "jitter": 0, "drift": 0}


def verdicts(noise: dict[str, float], more: float, runs: int = 10) -> Counter[Verdict]:
    found: Counter[Verdict] = Counter()
    for seed in range(runs):
        machine = Machine(seed, **noise)
        openers = {"a": machine.opener(0.002), "b": machine.opener(0.002 * more)}
        (pair,), _ = compare(openers, seconds=30, clock=machine.clock, seed=seed)
        found[pair.verdict] += 1
        assert machine.now < 31
    return found


@pytest.mark.parametrize("noise", NOISES, ids=["usual", "placed and drifting", "disturbed"])
def test_equals_raise_no_alarm_and_three_percent_are_found(noise: dict[str, float]) -> None:
    equal = verdicts(noise, 1.0)
    assert equal[Verdict.SLOWER] + equal[Verdict.FASTER] <= 1
    assert verdicts(noise, 1.03)[Verdict.SLOWER] >= 9
    if not noise:
        assert verdicts(noise, 1 / 1.03)[Verdict.FASTER] >= 9


def test_a_machine_of_no_use_is_told() -> None:
    found = verdicts({"placed": 0.5, "spikes": 0.6, "jitter": 1.0}, 1.0)
    assert found[Verdict.NOISY] >= 9


def test_the_ratio_is_the_later_over_the_earlier_and_without_noise_exact() -> None:
    machine = Machine(0, **QUIET)
    openers = {name: machine.opener(t) for name, t in {"x": 0.004, "y": 0.001, "z": 0.002}.items()}
    pairs, timed = compare(openers, shape="in=1x8", threads=2, items=8, clock=machine.clock)
    assert [(p.a, p.b, round(p.ratio, 9)) for p in pairs] == [
        ("x", "y", 0.25),
        ("x", "z", 0.5),
        ("y", "z", 2.0),
    ]
    assert all(p.low == pytest.approx(p.ratio) == p.high for p in pairs)
    assert {(p.shape, p.threads) for p in pairs} == {("in=1x8", 2)}
    assert [t.name for t in timed] == ["x", "y", "z"]
    assert timed[0].seconds == pytest.approx(0.004)
    assert timed[0].per_second == pytest.approx(2000)
    assert timed[0].load_seconds == pytest.approx(0.01)
    assert timed[0].spread < 1e-9
    assert machine.now < 15, "clear cases end early"


def test_progress_is_told_after_each_opening() -> None:
    machine, told = Machine(0, **QUIET), []
    openers = {name: machine.opener(0.2, opening=1) for name in "ab"}
    (pair,), _ = compare(
        openers,
        seconds=8,
        threads=2,
        clock=machine.clock,
        progress=lambda *what: told.append(what),
    )
    assert pair.openings == 4
    assert len(told) == len(openers) + 4
    assert {(stage, total) for stage, _, total in told} == {("timing, 2 threads", 8)}
    done = [spent for _, spent, _ in told]
    assert done == sorted(done)
    assert done[0] < 3 and done[-1] == 8


@pytest.mark.parametrize("limit", [0.0, 1.0, 4.0, 6.0, 8.0, 30.0, math.inf])
def test_no_turn_begins_after_the_limit(limit: float) -> None:
    """Each opening takes 2.1 s: both models are opened, and called twice."""
    machine = Machine(0, **QUIET)
    openers = {name: machine.opener(0.5, opening=0.05) for name in ("a", "b")}
    pairs, timed = compare(openers, seconds=1.0, clock=machine.clock, limit=limit)
    assert machine.now <= limit + 1.1
    if limit < 5:
        assert (pairs, timed) == ((), ())
    else:
        assert pairs[0].openings == (2 if limit < 9 else 4)
        assert pairs[0].ratio == pytest.approx(1)


def test_what_a_place_does_cancels() -> None:
    """The one that is opened first is always 5% slower."""
    machine = Machine(0, **{**QUIET, "placed": 0.001})
    openers = {"a": machine.opener(0.002, place=0.05), "b": machine.opener(0.002, place=0.05)}
    (pair,), _ = compare(openers, clock=machine.clock)
    assert pair.verdict is Verdict.SAME
    assert pair.within < 0.005


def test_places_and_turns_go_to_and_fro() -> None:
    made: list[str] = []
    now = [0.0]

    def opener(name: str) -> Callable[[], Callable[[], object]]:
        def opened() -> Callable[[], object]:
            made.append(name.upper())

            def call() -> None:
                made.append(name)
                now[0] += 2 * SLOT

            return call

        return opened

    openings = Openings(
        {"a": opener("a"), "b": opener("b")}, 60.0, Clock(lambda: now[0], int, bool)
    )
    made.clear()
    first, second = next(iter(openings))
    text = "".join(made)
    half = len(text) // 2
    # Open, one call; then turns of a waking call and a timed one.
    assert text[:half] in ("AaBbaabbbbaaaabbbbaa", "BbAabbaaaabbbbaaaabb")
    assert text[half:] == text[:half].swapcase().translate(str.maketrans("aAbB", "BbAa"))
    assert len(first.seconds["a"]) == len(second.seconds["b"]) == 4


def test_what_was_opened_is_gone_before_the_next_opening() -> None:
    alive, most = [0], [0]

    class Model:
        def __init__(self) -> None:
            alive[0] += 1
            most[0] = max(most[0], alive[0])

        def __del__(self) -> None:
            alive[0] -= 1

        def __call__(self) -> None:
            time.sleep(0.0005)

    octavo.measure.bench({"a": Model, "b": Model}, seconds=0.5, fresh=True)
    assert most[0] == 2
    assert alive[0] == 0


@pytest.mark.parametrize("call", [5.0, LONG * 1.1, 0.05])
def test_slow_calls_are_bounded(call: float) -> None:
    machine = Machine(0, **QUIET)
    (pair,), timed = compare(
        {"a": machine.opener(call), "b": machine.opener(call * 2)}, seconds=1, clock=machine.clock
    )
    assert pair.openings == 4
    assert pair.verdict is Verdict.SLOWER
    assert pair.ratio == pytest.approx(2.0)
    assert timed[0].runs <= 8
    assert machine.now < 3 * call * 25 + 1


def test_few_openings_tell_a_large_difference_of_slow_models() -> None:
    machine = Machine(1)
    openers = {"a": machine.opener(3.0, opening=1), "b": machine.opener(2.0, opening=1)}
    (pair,), _ = compare(openers, seconds=30, clock=machine.clock)
    assert pair.openings == 4
    assert pair.verdict is Verdict.FASTER


def test_slow_openings_leave_time_for_a_dozen() -> None:
    machine = Machine(0)
    openers = {"a": machine.opener(0.01, opening=0.4), "b": machine.opener(0.01, opening=0.4)}
    (pair,), _ = compare(openers, seconds=30, clock=machine.clock)
    assert pair.openings >= 20
    assert machine.now < 32


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict"),
    [
        (1.03, 1.01, 1.05, Verdict.SLOWER),
        (0.97, 0.95, 0.99, Verdict.FASTER),
        (1.0, 0.98, 1.02, Verdict.SAME),
        (1.012, 1.004, 1.02, Verdict.SAME),  # a difference, but none that matters
        (1.0, 0.9, 1.1, Verdict.NOISY),
        (1.02, 0.999, 1.04, Verdict.NOISY),
        (0.5, 0.1, 2.0, Verdict.NOISY),
    ],
)
def test_verdicts(ratio: float, low: float, high: float, verdict: Verdict) -> None:
    assert Pair("a", "b", "", None, ratio, low, high, 8).verdict is verdict


@pytest.mark.real_time
def test_bench_of_callables() -> None:
    found = octavo.measure.bench(
        {"fast": partial(time.sleep, 0.02), "slow": partial(time.sleep, 0.06)}, seconds=1.6
    )
    assert isinstance(found, Benchmark)
    data: dict[str, Any] = json.loads(found.to_json())
    (row,) = data["rows"]
    assert {"a": "fast", "b": "slow", "shape": "", "threads": None}.items() <= row.items()
    assert row["verdict"] == "slower"
    assert 1 < row["low"] < row["ratio"] < row["high"]
    assert row["ratio"] == pytest.approx(3, rel=0.3)
    assert [one["name"] for one in data["models"]] == ["fast", "slow"]
    assert data["models"][0]["load_seconds"] is None
    assert data["models"][0]["seconds"] >= 0.02
    assert "slow: slower, takes" in str(found)


def test_a_list_is_named_by_position() -> None:
    found = octavo.measure.bench([int, int, int], seconds=0.2)
    assert [(pair.a, pair.b) for pair in found.rows] == [("0", "1"), ("0", "2"), ("1", "2")]


@pytest.mark.real_time
def test_one_callable_has_no_pairs() -> None:
    found = octavo.measure.bench({"alone": int}, seconds=0.2)
    assert found.rows == ()
    assert found.models[0].seconds < 1e-4


@pytest.mark.parametrize(
    ("given", "more", "named"),
    [
        ({"a": int}, {"items": 0}, "items is 0"),
        ({"a": int}, {"fresh": True}, "a callable gave a int"),
    ],
)
def test_what_is_refused(given: Any, more: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        octavo.measure.bench(given, **more)


def test_errors_of_a_callable_and_of_the_package_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        octavo.measure.bench({"a": lambda: 1 // 0})
    with pytest.raises(AttributeError, match=r"'bunch'; it has \['bench'\]"):
        octavo.measure.bunch  # noqa: B018


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
@pytest.mark.parametrize(
    ("with_threads", "spins", "kept"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_thread_keeps_its_processor_beside_threads_that_spin(
    with_threads: bool, spins: bool, kept: bool
) -> None:
    allowed, seen = os.sched_getaffinity(0), []
    if len(allowed) < 2:
        pytest.skip("one processor")

    def opener() -> Callable[[], object]:
        assert os.sched_getaffinity(0) == allowed
        return lambda: seen.append(os.sched_getaffinity(0))

    clock = Clock(settle=int, spins=lambda: spins)
    openings = Openings({"a": opener}, 0.1, clock, with_threads=with_threads)
    first = len(seen)
    next(iter(openings))
    assert seen[first] == allowed, "the call that takes memory"
    assert {min(allowed)} == seen[-1] if kept else seen[-1] == allowed
    assert os.sched_getaffinity(0) == allowed
