"""Times calls in turns, each opened afresh again and again.

What spoils a comparison is met one by one:

- the machine's speed drifts within seconds: slots of some milliseconds are compared with the ones
  beside them, and every second pass runs backwards (A B B A);
- other programs and the hypervisor take the processor away for moments: of a slot's calls, and of
  an opening's passes, the median counts. Long calls meet that more often than short ones, so
  passes that waited for a processor are left out;
- where a model's weights lie in memory changes its speed from session to session by some percent:
  there are many openings, and they come in twos, of which the second has the opposite order, so
  that both calls have had each place;
- a calling thread that is moved onto the processor of one of its session's threads waits for it:
  where those exist before the first turn, it keeps its own processor.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from octavo.measure import waiting
from octavo.measure.timing import await_threads, threads_are_busy

Call = Callable[[], object]
Opener = Callable[[], Call]

SLOT = 0.01  # seconds of one call's turn; others' programs are met in few of them
SETTLED_SLOT = 0.05  # where a wait of 50 ms comes before it
CHUNK = 1e-4  # seconds between readings of the clock, which take 1e-7
LONG = 0.3  # seconds of a call before whose turns no other wakes it: it would not show
WANTED = 12  # pairs of openings that a budget is planned for
MOST_PASSES, USUAL_PASSES = 16, 4
WAIT = 0.06  # for another call's threads; ONNX Runtime's spin on for 50 ms


# docs/notes/tuning.md: "A spinning session's caller stays on its first processor"
@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Keep this thread, and threads made meanwhile, on the first processor that it may use.

    Where ONNX Runtime chooses the number of threads, it leaves that one to the caller and keeps
    each of its own to one of the others; where it is told a number, its threads go where there is
    room. Does nothing where the system has no such call, or refuses it.
    """
    try:
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
    except (AttributeError, OSError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@dataclass(frozen=True)
class Clock:
    """Seconds on the wall, what comes before each turn, and whether a call made it necessary.

    `waits` are the seconds that this process has waited for processors, `cpu` those it had them.
    """

    wall: Callable[[], float] = time.perf_counter
    settle: Callable[[], object] = await_threads
    spins: Callable[[], bool] = threads_are_busy
    waits: Callable[[], float] = lambda: waiting.waited()  # noqa: PLW0108  # tests put another there
    cpu: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Opening:
    """All calls, opened once and then timed: seconds of a call, one figure a pass, by name.

    Passes in which a turn waited for a processor are left out.

    `opened` has the seconds that opening took, `runs` how many calls each turn timed.
    """

    opened: Mapping[str, float]
    seconds: Mapping[str, tuple[float, ...]]
    runs: Mapping[str, int]

    def log_ratio(self, a: str, b: str) -> float:
        """Logarithm of the time of `b` over that of `a`: the median of the passes."""
        pairs = zip(self.seconds[a], self.seconds[b], strict=True)
        return statistics.median(math.log(after / before) for before, after in pairs)


@dataclass(frozen=True)
class Turn:
    """How one call's turn goes: `calls` readings of the clock, each after `chunk` calls.

    It `wakes` threads and weights with a call before; where calls are long that would not show.
    """

    chunk: int
    calls: int
    wakes: bool

    @classmethod
    def of(cls, once: float, slot: float) -> Turn:
        """Build a turn of about `slot` seconds, for a call that takes `once` seconds."""
        once = max(once, 1e-8)
        chunk = max(1, math.ceil(CHUNK / once))
        return cls(chunk, max(1, math.ceil(slot / once / chunk)), once <= LONG)

    def time(self, call: Call, clock: Clock) -> float:
        """Seconds of one call: the median."""
        if self.wakes:
            call()
        taken = []
        for _ in range(self.calls):
            start = clock.wall()
            for _ in range(self.chunk):
                call()
            taken.append((clock.wall() - start) / self.chunk)
        # Coarse clocks see no time pass; logarithms need some.
        return max(statistics.median(taken), 1e-9)


def _nothing() -> None:
    """Do nothing at a step, where nobody asks to be told."""


# docs/notes/tuning.md: "The value that counts is one of two openings"
class Openings:
    """Openings of `openers`, in twos, planned so that `budget` seconds hold about a dozen twos.

    A first opening of each is not counted: it says how long all takes. Iterating goes on until
    `limit` seconds are over, after which nothing is opened and no turn begins: openings that are
    not whole by then are dropped. So are those that waited for a processor in each pass; it ends
    where `budget` is spent on them. `with_threads` says that opening a call makes all threads that
    it uses. `on_step` is called after each opening.
    """

    def __init__(
        self,
        openers: Mapping[str, Opener],
        budget: float,
        clock: Clock,
        seed: int = 0,
        *,
        with_threads: bool = False,
        limit: float = math.inf,
        on_step: Callable[[], object] = _nothing,
    ) -> None:
        self._openers, self._clock, self._on_step = openers, clock, on_step
        self._spent, self._end = clock.wall() + budget, clock.wall() + limit
        self._made = self._waited = 0  # passes
        self._random = random.Random(seed)
        once, opening = {}, 0.0
        self._settles = False
        for name, opener in openers.items():
            if self._is_over():
                return  # so that iterating gives nothing
            start = clock.wall()
            call = opener()
            opening += clock.wall() - start
            once[name] = _warmed(call, clock)
            self._settles = clock.spins() or self._settles
            del call
            on_step()
        opening += sum(once.values())
        self._kept = one_processor if with_threads and self._settles else contextlib.nullcontext
        slot = SETTLED_SLOT if self._settles else SLOT
        self._turns = {name: Turn.of(seconds, slot) for name, seconds in once.items()}
        turns = sum(once.values()) + sum(max(seconds, slot) for seconds in once.values())
        usual = USUAL_PASSES
        if self._settles:
            turns += WAIT * len(openers)
            usual = 2
        self.passes = _passes(opening, turns, usual, budget)

    def __iter__(self) -> Iterator[tuple[Opening, Opening]]:
        names = list(self._openers)
        while True:
            self._random.shuffle(names)
            first = self._open(names)
            second = first and self._open(names[::-1])
            if first is None or second is None:
                return
            if all(first.seconds.values()) and all(second.seconds.values()):
                yield first, second
            elif self._clock.wall() >= self._spent:
                return

    @property
    def is_busy(self) -> bool:
        """Tell whether other programs had the processors in most passes: the rest may be luck."""
        return self._waited > self._made / 2

    def _is_over(self) -> bool:
        return self._clock.wall() >= self._end

    def _open(self, names: list[str]) -> Opening | None:
        """Open and time the models in the order of `names`; what was opened is gone afterwards.

        None where the end came before all was timed.
        """
        clock, calls, opened = self._clock, {}, {}
        for name in names:
            if self._is_over():
                return None
            start = clock.wall()
            calls[name] = self._openers[name]()
            opened[name] = clock.wall() - start
            calls[name]()  # takes the memory that it needs
        seconds: dict[str, list[float]] = {name: [] for name in names}
        with self._kept():
            for i in range(self.passes):
                taken: dict[str, float] = {}
                waited = False
                for name in names if i % 2 == 0 else names[::-1]:
                    if self._is_over():
                        return None
                    if self._settles:
                        clock.settle()
                    start, busy, waits = clock.wall(), clock.cpu(), clock.waits()
                    taken[name] = self._turns[name].time(calls[name], clock)
                    waits = clock.waits() - waits
                    busy = max(clock.wall() - start, clock.cpu() - busy)
                    waited |= waits > waiting.SHARE * busy
                self._made += 1
                self._waited += waited
                for name in () if waited else names:
                    seconds[name].append(taken[name])
        self._on_step()
        return Opening(
            opened,
            {name: tuple(seconds[name]) for name in self._openers},
            {name: turn.calls * turn.chunk * self.passes for name, turn in self._turns.items()},
        )


def _warmed(call: Call, clock: Clock) -> float:
    """Seconds of one call, after others where they are short."""
    once, end = math.inf, clock.wall() + LONG
    for _ in range(5):
        start = clock.wall()
        call()
        once = min(once, clock.wall() - start)
        if clock.wall() > end:
            break
    return once


def _passes(opening: float, turns: float, usual: int, budget: float) -> int:
    """Return how many passes an opening is worth.

    The `usual` ones, or as much time as opening took; if `budget` then holds `WANTED` twos of
    openings, and as few as one otherwise.
    """
    passes = usual
    if opening > passes * turns:
        passes = min(MOST_PASSES, 2 * round(opening / turns / 2))
    while passes > 1 and 2 * WANTED * (opening + passes * turns) > budget:
        passes //= 2
    return passes
