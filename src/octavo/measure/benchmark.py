"""Which of some callables is faster, by how much, and whether that can be told."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from octavo.core.cpu import processor_name, usable_processors
from octavo.core.kernels import isa
from octavo.errors import OptionError
from octavo.measure.openings import Call, Clock, Opener, Opening, Openings
from octavo.results.benchmark import BUSY, Benchmark, Pair, Timed
from octavo.results.words import count

SECONDS = 30.0
FEW = 8  # twos of openings, for which ranks are 99% sure
ENOUGH = 16  # twos of openings, below which none ends early
PRECISE = 0.004  # an interval that reaches this far to each side need not become narrower
MOST = 200  # twos of openings
# Student's t at 99.5%, by degrees of freedom from 1: for values too few for ranks to be that sure.
_STUDENT = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707)

Progress = Callable[[str, int, int], None]


def bench(
    callables: Mapping[str, Call] | Sequence[Call],
    *,
    seconds: float = SECONDS,
    fresh: bool = False,
    items: int = 1,
) -> Benchmark:
    """Time `callables` in turns, and say of each pair how their times compare.

    For PyTorch: `bench({"float": lambda: model(x), "int8": lambda: quantized(x)})`. `print` shows
    the result as a table, `.rows` has the pairs: the time of `b` over that of `a`, `a` being the
    one given earlier, with a 99% interval and a verdict. Where other programs hold the processors
    there are none, and a note says so.

    Args:
        callables: by name, or in a list, whose entries are named "0", "1", ..
        seconds: about what it may take, if calls are short; it ends earlier where all intervals are
            narrow. Each call is made at least ten times, however long that takes, and each
            callable opened five times where it is `fresh`.
        fresh: each callable makes what is timed, a callable itself, and is called again and again:
            `lambda: partial(copy.deepcopy(model), x)`. Where weights lie in memory changes a
            model's speed by some percent, and one copy of each cannot tell that from a difference
            of the models.
        items: what one call handles, for the throughput.

    Raises OptionError. What a callable raises passes through.
    """
    named = _named(callables)
    if not seconds > 0:
        raise OptionError(f"seconds is {seconds}; give a number above 0")
    if items < 1:
        raise OptionError(f"items is {items}; give 1 or more")
    openers = {n: _opener(call) if fresh else _same(call) for n, call in named.items()}
    clock = Clock()
    start = clock.wall()
    rows, timed = compare(openers, seconds=seconds, items=items, clock=clock)
    if not fresh:  # nothing was opened
        timed = tuple(
            replace(one, load_seconds=None, load_low=None, load_high=None) for one in timed
        )
    notes = () if timed else (BUSY,)
    return Benchmark(rows, timed, clock.wall() - start, notes, machine())


def machine() -> str:
    """Describe this machine: `AMD EPYC 9R14, 2 processors, kernels avx512vnni`.

    The processors are those that this process may use.
    """
    try:
        table = f"kernels {isa()}"
    except ValueError:  # OCTAVO_ISA names another; the models ran without Octavo's kernels
        table = ""
    processors = count(usable_processors(), "processor")
    return ", ".join(filter(None, (processor_name(), processors, table)))


def compare(
    openers: Mapping[str, Opener],
    *,
    seconds: float = SECONDS,
    items: int = 1,
    shape: str = "",
    threads: int | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    with_threads: bool = False,
    limit: float = math.inf,
) -> tuple[tuple[Pair, ...], tuple[Timed, ...]]:
    """Return the pairs and the models; each opener gives the call that is timed, opened afresh.

    No turn begins after `limit` seconds: there may then be fewer openings than an interval that
    says much needs, and where there are none, no pairs and no models. There are none, either, where
    the machine is busy: most turns waited for a processor.

    `shape` and `threads` are handed on; `progress` is told the seconds spent. `with_threads` says
    that an opener makes all threads that its call uses, as ONNX Runtime's sessions do.
    """
    clock = clock or Clock()
    begin = clock.wall()
    said = "" if threads is None else f", {count(threads, 'thread')}"

    def tell() -> None:
        if progress is not None:
            spent = min(round(clock.wall() - begin), round(seconds))
            progress(f"timing{said}", spent, max(1, round(seconds)))

    openings = Openings(
        openers, seconds, clock, seed, with_threads=with_threads, limit=limit, on_step=tell
    )
    pairs = list(itertools.combinations(openers, 2))
    found: list[tuple[Opening, Opening]] = []
    first = clock.wall()
    for two in openings:
        found.append(two)
        now = clock.wall()
        over = now + (now - first) / len(found) > begin + seconds
        if len(found) >= 2 and (over or len(found) >= MOST or _precise(found, pairs)):
            break
    if not found or openings.is_busy:
        return (), ()
    rows = tuple(_pair(a, b, found, shape, threads) for a, b in pairs)
    return rows, tuple(_timed(name, found, shape, threads, items) for name in openers)


def _precise(found: Sequence[tuple[Opening, Opening]], pairs: Sequence[tuple[str, str]]) -> bool:
    """Tell whether no interval needs to become narrower.

    The place of the intervals plays no part: that would bias.
    """
    if len(found) < ENOUGH or len(found) % 4:
        return False
    intervals = (middle_interval(_log_ratios(a, b, found)) for a, b in pairs)
    return all(high - low <= 2 * PRECISE for _, low, high in intervals)


def _log_ratios(a: str, b: str, found: Sequence[tuple[Opening, Opening]]) -> list[float]:
    """Return one log ratio for two openings: opposite orders cancel what a place in them does.

    Where there are few, return one for each opening: more of them are worth more than what that
    leaves in.
    """
    each = [tuple(opening.log_ratio(a, b) for opening in two) for two in found]
    if len(each) < FEW:
        return [*itertools.chain.from_iterable(each)]
    return [statistics.fmean(two) for two in each]


def _pair(
    a: str, b: str, found: Sequence[tuple[Opening, Opening]], shape: str, threads: int | None
) -> Pair:
    ratio, low, high = map(_exp, middle_interval(_log_ratios(a, b, found)))
    return Pair(a, b, shape, threads, ratio, low, high, 2 * len(found))


def _exp(x: float) -> float:
    """Two values may bound a ratio by nothing that a float, or JSON, holds."""
    return math.exp(min(x, 100.0))


def _timed(
    name: str,
    found: Sequence[tuple[Opening, Opening]],
    shape: str,
    threads: int | None,
    items: int,
) -> Timed:
    openings = list(itertools.chain.from_iterable(found))
    seconds = [s for opening in openings for s in opening.seconds[name]]
    low, median, high = _quartiles(seconds)
    load = _quartiles([opening.opened[name] for opening in openings])
    return Timed(
        name=name,
        shape=shape,
        threads=threads,
        seconds=median,
        low=low,
        high=high,
        per_second=items / median,
        runs=sum(opening.runs[name] for opening in openings),
        load_low=load[0],
        load_seconds=load[1],
        load_high=load[2],
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def _same(call: Call) -> Opener:
    return lambda: call


def _opener(factory: Call) -> Opener:
    """Return an opener that calls `factory`: OptionError where that gives nothing to call."""

    def opened() -> Call:
        made = factory()
        if not callable(made):
            raise OptionError(
                f"fresh=True: a callable gave a {type(made).__name__}, which cannot be called; it "
                "makes what is timed, such as partial(copy.deepcopy(model), x)"
            )
        return made

    return opened


def _named(callables: Mapping[str, Call] | Sequence[Call]) -> dict[str, Call]:
    if isinstance(callables, Mapping):
        named = {str(name): call for name, call in callables.items()}
    elif isinstance(callables, Sequence):
        named = {str(i): call for i, call in enumerate(callables)}
    else:
        raise OptionError(
            f"callables is a {type(callables).__name__}; give a dict of names and callables"
        )
    if not named:
        raise OptionError("callables is empty; give at least one callable to time")
    for name, call in named.items():
        if not callable(call):
            raise OptionError(
                f"callables[{name!r}] is a {type(call).__name__} and cannot be called; give a "
                "function without arguments, such as lambda: model(x)"
            )
    return named


# docs/notes/tuning.md: "The interval is that of the signed-rank test"
def middle_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (estimate, low, high) of the middle of two or more noisy `values`, 99% sure.

    Values are taken to spread evenly around their middle, as the difference of two timings does
    that were made alike. The interval is the one of Wilcoxon's signed-rank test: its bounds are
    averages of two values each (Walsh averages), and the estimate is the median of all of them
    (Hodges and Lehmann, 1963). It needs no shape of the distribution, loses 5% against Student's
    on normal values, and holds while fewer than 29% of the values are wild. Below eight values it
    is Student's, which takes them to be normal.
    """
    given = np.asarray(values, dtype=np.float64)
    if len(given) < 2:
        raise ValueError(f"{len(given)} values have no interval; give 2 or more")
    if len(given) - 2 < len(_STUDENT):
        mean = float(given.mean())
        reach = _STUDENT[len(given) - 2] * float(given.std(ddof=1)) / math.sqrt(len(given))
        return mean, mean - reach, mean + reach
    first, second = np.triu_indices(len(given))
    walsh = np.sort((given[first] + given[second]) / 2)
    outside = _averages_below(len(given))
    return float(np.median(walsh)), float(walsh[outside]), float(walsh[-1 - outside])


@lru_cache
def _averages_below(n: int) -> int:
    """Count the smallest Walsh averages of `n` values that lie below the interval."""
    below = np.cumsum(_signed_rank_chances(n))
    return int(np.searchsorted(below, 0.005, side="right")) - 1


def _signed_rank_chances(n: int) -> npt.NDArray[np.float64]:
    """Return the chance of each sum of ranks 1..n, each rank being taken with probability 1/2."""
    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        taken = np.zeros_like(chances)
        taken[rank:] = chances[:-rank]
        chances = (chances + taken) / 2
    return chances
