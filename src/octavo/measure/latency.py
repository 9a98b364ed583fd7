"""The time of models over one another, within a bounded time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octavo.errors import OptionError
from octavo.measure.timing import Comparison, interleave, rest

LEAST_SECONDS = 0.02  # a round of one model: below that, a tick of the kernel shows


def time_ratios(
    runs: Mapping[str, Callable[[], object]],
    *,
    warmup: int = 5,
    rounds: int = 21,
    budget_seconds: float = 30.0,
) -> Comparison:
    """Times `runs` in turns; `.time(of, over)` of the result has the ratio's median and quartiles.

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
        settle=lambda name: rest(),
    )
