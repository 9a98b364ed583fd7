"""Timing that holds on a noisy machine: A B B A A B ..., compared round by round.

A machine's speed drifts by more than the differences that matter. Two calls made within the same
tenth of a second drift together, so the median of their ratios holds where a ratio of medians does
not.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import OptionError
from octavo.measure import waiting

LEAST_SECONDS = 0.02  # a round of one model: below that, a tick of the kernel shows
WAKING_SHOWS = 1.0  # seconds; waking threads and reading weights takes milliseconds
LONGEST_WAIT = 0.2  # for another call's threads; ONNX Runtime's spin on for 50 ms
STEP = 0.012  # longer than a tick of the kernel, at which it counts the time of threads elsewhere


@dataclass(frozen=True)
class Timing:
    """Seconds a call took on the wall, one figure for each round, and cores busy meanwhile."""

    seconds: tuple[float, ...]
    cores: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of the middle round."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Distance of the quartiles, as a share of the median."""
        low, high = _quartiles(self.seconds)
        return (high - low) / self.median

    @property
    def busy(self) -> float:
        """Cores in use: about the number of threads at work; less if others held the machine."""
        return statistics.median(self.cores)


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of a ratio taken in each round."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Comparison:
    """The timings of calls that were made in turn, without rounds that waited for a processor.

    `busy` says that most did, so that all are there and nothing can be told from them.
    """

    timings: Mapping[str, Timing]
    busy: bool = False

    def __getitem__(self, name: str) -> Timing:
        return self.timings[name]

    def time(self, of: str, over: str) -> Ratio:
        """Time of one call as a share of the other's: 0.5 is half the time."""
        pairs = zip(self[of].seconds, self[over].seconds, strict=True)
        ratios = [mine / theirs for mine, theirs in pairs]
        return Ratio(statistics.median(ratios), *_quartiles(ratios))

    def speed(self, of: str, over: str) -> Ratio:
        """Return how many times as fast call `of` is as call `over`: 2 is half the time."""
        return self.time(of=over, over=of)

    def check_threads(self, threads: int) -> None:
        """Raise RuntimeError if a call kept more than `threads` cores busy."""
        for name, timing in self.timings.items():
            if timing.busy > threads + 0.1:
                raise RuntimeError(
                    f"{name} kept {timing.busy:.1f} cores busy and was to use {threads} thread(s)"
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: {"seconds": t.seconds, "cores": t.cores} for name, t in self.timings.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """Read what `to_dict` wrote."""
        return cls(
            {name: Timing(tuple(t["seconds"]), tuple(t["cores"])) for name, t in data.items()}
        )


def pooled(parts: Sequence[Comparison]) -> Comparison:
    """Return one comparison with the rounds of all `parts`, which timed the same calls.

    How fast a model runs depends on where its weights happen to lie in memory, by a tenth and more,
    and that changes from process to process, not from round to round.
    """
    return Comparison(
        {
            name: Timing(
                tuple(second for part in parts for second in part[name].seconds),
                tuple(busy for part in parts for busy in part[name].cores),
            )
            for name in parts[0].timings
        },
        any(part.busy for part in parts),
    )


def time_ratios(
    runs: Mapping[str, Callable[[], object]],
    *,
    warmup: int = 5,
    rounds: int = 21,
    budget_seconds: float = 30.0,
) -> Comparison:
    """Time `runs` in turns; `.time(of, over)` of the result has the ratio's median and quartiles.

    Each is run `warmup` times, then timed in `rounds` rounds, short ones several times a round.
    Rounds are left out where they would take longer than `budget_seconds`, though each run is
    timed twice: runs of 5 s take 15 s each at least. Before each run, the threads of the one
    before come to rest. Raises OptionError for numbers out of range.
    """
    if not runs:
        raise OptionError("runs is empty; give at least one callable to time")
    if warmup < 0:
        raise OptionError(f"warmup is {warmup}; it is 0 or more runs")
    if rounds < 2:
        raise OptionError(f"rounds is {rounds}; quartiles need at least 2")
    if not budget_seconds >= 0:
        raise OptionError(f"budget_seconds is {budget_seconds}; it is 0 or more")
    return interleave(
        runs,
        rounds=rounds,
        warmup=warmup,
        least=LEAST_SECONDS,
        budget=budget_seconds,
        settle=lambda name: await_threads(),
    )


def interleave(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 21,
    warmup: int = 2,
    least: float = 0.02,
    budget: float = math.inf,
    settle: Callable[[str], object] | None = None,
    wall: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
    waits: Callable[[], float] = lambda: waiting.waited(),  # noqa: PLW0108  # tests replace it
) -> Comparison:
    """Time `calls` in turn, each for at least `least` seconds a round.

    After `warmup` calls each, one more says how often a call must be repeated to fill `least`.
    Every second round runs backwards, so that none always follows the same neighbour. With
    `settle`, that function is given a call's name before the call is timed, and the call is then
    made once untimed, which wakes its threads and warms its weights (calls longer than a second are
    not: it would not show). `wall` and `cpu` are clocks in seconds, `waits` counts those that this
    process has waited for processors.

    `budget` seconds are what slow calls may take: a third of it goes into warming up, and no round
    begins that would likely end after it. Each call is made once to warm up and two rounds are
    timed, however long that takes.
    """
    if rounds < 2:
        raise ValueError(f"rounds is {rounds}; quartiles need at least 2")
    begin, names = wall(), list(calls)
    once: dict[str, float] = {}
    for name, call in calls.items():
        if settle is not None:
            settle(name)
        once[name] = _warmed_up(call, warmup, budget / 3 / len(calls), wall, cpu)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    cores: dict[str, list[float]] = {name: [] for name in calls}
    clean: list[int] = []
    rounds_begin = wall()
    for i in range(rounds):
        now = wall()
        if i >= 2 and now + (now - rounds_begin) / i > begin + budget:
            break
        waited = False
        for name in names if i % 2 == 0 else reversed(names):
            if settle is not None:
                settle(name)
                if once[name] <= WAKING_SHOWS:
                    calls[name]()
            repeats = max(1, math.ceil(least / max(once[name], 1e-7)))
            before = waits()
            elapsed, busy = _timed(calls[name], repeats, wall, cpu)
            waited |= waits() - before > waiting.SHARE * elapsed * repeats * max(1.0, busy)
            seconds[name].append(elapsed)
            cores[name].append(busy)
        if not waited:
            clean.append(i)
    made = len(seconds[names[0]]) if names else 0
    is_busy = len(clean) < max(2, made / 2)
    kept = range(made) if is_busy else clean
    timings = {
        n: Timing(tuple(seconds[n][i] for i in kept), tuple(cores[n][i] for i in kept))
        for n in calls
    }
    return Comparison(timings, is_busy)


def _warmed_up(
    call: Callable[[], object],
    warmup: int,
    budget: float,
    wall: Callable[[], float],
    cpu: Callable[[], float],
) -> float:
    """Seconds of the last of `warmup` calls and one more; fewer, but one, if `budget` is spent."""
    until = wall() + budget
    once, _ = _timed(call, 1, wall, cpu)
    for _ in range(warmup):
        if wall() >= until:
            break
        once, _ = _timed(call, 1, wall, cpu)
    return once


def threads_are_busy() -> bool:
    """Tell whether another thread of this process works, as pools do for a while after a call.

    This thread does not sleep meanwhile: it would lose its core to other programs, and what it runs
    next would take anything up to twice as long.
    """
    process, thread = time.process_time(), time.thread_time()
    end = time.perf_counter() + STEP
    while time.perf_counter() < end:
        pass
    return (time.process_time() - process) - (time.thread_time() - thread) > STEP / 4


# docs/notes/tuning.md: "Before a turn nothing sleeps"
def idle(limit: float = 10.0) -> None:
    """Wait until no other thread of this process works, for `limit` seconds at most.

    Pools spin on after a call, and would take a core from the next one's: on this project's
    machines TBB's for 1 ms, OpenMP's for 10 ms, ONNX Runtime's for 50 ms. The wait takes processor
    time itself, which counts where a container has a quota. Raises RuntimeError if one is still at
    it after `limit`.
    """
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        if not threads_are_busy():
            return
    raise RuntimeError(f"a thread of this process is still busy after {limit} s")


def await_threads() -> None:
    """Wait for the threads that the last call has left spinning, not long."""
    # A host's own thread may never rest (a dashboard, a scheduler): then it disturbs all alike.
    with contextlib.suppress(RuntimeError):
        idle(LONGEST_WAIT)


def _timed(
    call: Callable[[], object],
    repeats: int,
    wall: Callable[[], float],
    cpu: Callable[[], float],
) -> tuple[float, float]:
    """Seconds a call, and cores busy."""
    cpu_start, start = cpu(), wall()
    for _ in range(repeats):
        call()
    elapsed = wall() - start
    return elapsed / repeats, (cpu() - cpu_start) / max(elapsed, 1e-9)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
