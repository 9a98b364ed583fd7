"""Interleaved timing: a planted difference is found, and drift of the machine does not matter."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from functools import partial

import pytest

from octavo.errors import OptionError
from octavo.measure import timing
from octavo.measure.timing import Comparison, Timing, interleave, pooled, time_ratios


class Clock:
    """Time that only work moves; `pace` is what the machine's speed does to it."""

    def __init__(self, pace: Callable[[float], float] = lambda now: 1.0) -> None:
        self.now, self.busy, self.pace = 0.0, 0.0, pace

    def work(self, seconds: float, threads: int = 1) -> None:
        elapsed = seconds * self.pace(self.now)
        self.now += elapsed
        self.busy += elapsed * threads

    def interleave(
        self, calls: dict[str, Callable[[], object]], rounds: int, budget: float = math.inf
    ) -> Comparison:
        return interleave(
            calls,
            rounds=rounds,
            wall=lambda: self.now,
            cpu=lambda: self.busy,
            least=0.01,
            budget=budget,
        )


@pytest.mark.real_time
def test_a_planted_slowdown_of_two_is_measured() -> None:
    # Sleeping needs no core; on a busy machine it ends some milliseconds late, which is the margin.
    calls = {"fast": partial(time.sleep, 0.02), "slow": partial(time.sleep, 0.04)}
    found = interleave(calls, rounds=5, warmup=0)
    assert found.speed("fast", over="slow").median == pytest.approx(2.0, rel=0.2)
    assert found.time("fast", over="slow").median == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize(
    ("pace", "within"),
    [
        (lambda now: 1.0 + now * 5, 0.03),  # ten times slower at the end of the run
        (lambda now: 50.0 if 0.3 < now < 0.35 else 1.0, 1e-6),
    ],
    ids=["drift", "one disturbed round"],
)
def test_the_machines_pace_does_not_reach_the_ratio(
    pace: Callable[[float], float], within: float
) -> None:
    clock = Clock(pace)
    calls = {"fast": lambda: clock.work(0.01), "slow": lambda: clock.work(0.02)}
    found = clock.interleave(calls, rounds=40)
    assert max(found["fast"].seconds + found["slow"].seconds) > 5 * min(found["fast"].seconds)
    assert found.speed("fast", over="slow").median == pytest.approx(2.0, rel=within)


def test_short_calls_are_repeated_and_the_order_turns() -> None:
    clock, made = Clock(), []

    def call(name: str, seconds: float) -> None:
        made.append(name)
        clock.work(seconds)

    found = clock.interleave({"a": lambda: call("a", 0.004), "b": lambda: call("b", 0.02)}, 2)
    # Two to warm up and one to see how long it takes; then 3 of a and 1 of b fill 0.01 s.
    assert "".join(made) == "aaa" + "bbb" + "aaab" + "baaa"
    assert found["a"].seconds == pytest.approx((0.004, 0.004))


def test_threads_are_counted() -> None:
    clock = Clock()
    found = clock.interleave(
        {"one": lambda: clock.work(0.02), "two": lambda: clock.work(0.02, threads=2)}, rounds=3
    )
    assert (found["one"].busy, found["two"].busy) == pytest.approx((1.0, 2.0))
    found.check_threads(2)
    with pytest.raises(RuntimeError, match=r"two kept 2\.0 cores busy and was to use 1 thread"):
        found.check_threads(1)


def test_quartiles_and_json() -> None:
    found = Comparison(
        {
            "a": Timing((1.0, 1.0, 1.0, 1.0, 1.0), (1.0,) * 5),
            "b": Timing((1.0, 2.0, 3.0, 4.0, 5.0), (1.0,) * 5),
        }
    )
    speed = found.speed("a", over="b")
    assert (speed.median, speed.low, speed.high) == (3.0, 2.0, 4.0)
    assert str(speed) == "3.000 (2.000 to 4.000)"
    assert found["b"].spread == pytest.approx(2 / 3)
    assert Comparison.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    twice = pooled([found, found])
    assert twice["b"].seconds == found["b"].seconds * 2
    assert twice.speed("a", over="b").median == 3.0


@pytest.mark.parametrize(
    ("budget", "warm", "rounds"),
    [
        (0.0, 1, 2),  # the least there is
        (30.0, 1, 2),  # a third warms up: no second call of the first begins after 5 s
        (66.0, 3, 3),  # 30 s to warm up, three rounds of 10 s; a fourth would end at 70 s
        (math.inf, 3, 7),
    ],
)
def test_slow_calls_keep_to_the_budget(budget: float, warm: int, rounds: int) -> None:
    clock, made = Clock(), []

    def call(name: str) -> None:
        made.append(name)
        clock.work(5.0)

    found = clock.interleave({"a": lambda: call("a"), "b": lambda: call("b")}, 7, budget)
    assert len(found["a"].seconds) == len(found["b"].seconds) == rounds
    assert made.count("a") == made.count("b") == warm + rounds
    assert clock.now <= max(budget, 30.0)


def test_a_long_call_is_not_made_once_more_to_wake_it() -> None:
    clock, made, settled = Clock(), [], []

    def call(name: str, seconds: float) -> None:
        made.append(name)
        clock.work(seconds)

    interleave(
        {"long": lambda: call("long", 2.0), "short": lambda: call("short", 0.5)},
        rounds=2,
        warmup=0,
        settle=settled.append,
        wall=lambda: clock.now,
        cpu=lambda: clock.busy,
    )
    assert made.count("long") == 1 + 2
    assert made.count("short") == 1 + 2 * 2
    assert settled == "long short long short short long".split()


def test_time_ratios_of_two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    on_clock = partial(interleave, wall=lambda: clock.now, cpu=lambda: clock.busy)
    monkeypatch.setattr(timing, "interleave", on_clock)
    found = time_ratios(
        {"float": lambda: clock.work(0.02), "int8": lambda: clock.work(0.01)}, rounds=5, warmup=1
    )
    assert len(found["float"].seconds) == 5
    assert found.time("int8", over="float").median == pytest.approx(0.5)


@pytest.mark.real_time
def test_time_ratios_ends_early() -> None:
    start = time.perf_counter()
    found = time_ratios({"a": partial(time.sleep, 0.05)}, rounds=1000, budget_seconds=0.3)
    assert 2 <= len(found["a"].seconds) < 10
    assert time.perf_counter() - start < 5  # a thousand rounds take more than fifty


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"rounds": 1}, "rounds is 1"),
        ({"warmup": -1}, "warmup is -1"),
        ({"budget_seconds": math.nan}, "budget_seconds is nan"),
        ({"runs": {}}, "runs is empty"),
    ],
)
def test_time_ratios_refuses(asked: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        time_ratios(**{"runs": {"a": int}, **asked})
    with pytest.raises(ValueError, match="rounds is 1"):
        interleave({"a": int}, rounds=1)
