"""What quantizing each layer alone does to the output, and which kinds of layers cost time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from octavo.recipe import FLOAT, Kind, Scheme
from octavo.results.tuning import Trial
from octavo.tune.search import SearchContext

GAP = 8.0  # neighbours in a ranking that differ by this factor are of two sorts
FLOOR = 1e-6  # of the worst error: what is below does nothing
PAYS = 0.97  # of the time of the model with all kinds quantized: below, the kind costs time
# Tables are often most of a file: they are not stored four times as large for a few percent.
LOOKUP_PAYS = 0.9


# docs/notes/tuning.md: "Ranking is not evaluating"
def rank_layers(context: SearchContext, names: Sequence[str]) -> dict[str, float]:
    """Return each layer's error when it alone is quantized, the worst first.

    The errors are shown through `context.rank`. The model runs once for each name. NaN counts
    as infinite; equal errors keep the given order.
    """
    errors = context.errors(context.space.base, [{name} for name in names])
    known = [math.inf if math.isnan(error) else error for error in errors]
    order = sorted(range(len(names)), key=lambda at: -known[at])
    ranking = {names[at]: known[at] for at in order}
    context.rank(ranking)
    return ranking


def gap_position(errors: Sequence[float]) -> int | None:
    """Return how many of `errors` (falling) stand before the largest gap, if it is a clear one.

    None also where most of the errors would: then rather the few after the gap are special.
    """
    finite = [error for error in errors if not math.isinf(error)]
    if len(finite) < len(errors):
        return len(errors) - len(finite) or None
    if not finite or finite[0] <= 0:
        return None
    held = [max(error, finite[0] * FLOOR) for error in finite]
    gaps = [a / b for a, b in pairwise(held)]
    widest = max(range(len(gaps)), key=lambda at: gaps[at], default=None)
    if widest is None or gaps[widest] <= GAP or 2 * (widest + 1) > len(errors):
        return None
    return widest + 1


def proportional_count(errors: Sequence[float], failed: Trial | None, bound: float) -> int:
    """Return how many of the worst must go, if the `failed` trial's loss were the errors' sum.

    The number is from 1 to one less than all; 1 where nothing can be told.
    """
    loss = None if failed is None else failed.loss
    total = math.fsum(errors)
    if loss is None or not 0 < loss < math.inf or not 0 < total < math.inf:
        return 1
    allowed, rest = total * max(bound, 0.0) / loss, total
    for count, error in enumerate(errors[:-1], 1):
        rest -= error
        if rest <= allowed:
            return count
    return max(1, len(errors) - 1)


def leave_slow_kinds_float(context: SearchContext) -> dict[str, Scheme]:
    """Return the assignment to start from: kinds that cost time when they are quantized are float.

    Each kind in turn is left float, and the models are timed against the one with all of them
    quantized. A kind is given up where even the upper quartile says that it costs time, lookups
    where it is a tenth. Where all would be, the one that costs least stays. Nothing is timed where
    the objective needs no time or there is one kind only.
    """
    space = context.space
    by_kind: dict[Kind, dict[str, Scheme]] = {}
    for choice in space.quantized:
        by_kind.setdefault(choice.layer.kind, {})[choice.layer.name] = FLOAT
    if not context.timed or len(by_kind) < 2:
        return {}
    without = [space.candidate(names) for names in by_kind.values()]
    _, *ratios = context.time_ratios([space.candidate({}), *without])
    costs = {
        kind: high
        for kind, (_, high) in zip(by_kind, ratios, strict=True)
        if high < (LOOKUP_PAYS if kind is Kind.EMBEDDING else PAYS)
    }
    if len(costs) == len(by_kind):
        del costs[max(costs, key=lambda kind: costs[kind])]
    return {name: FLOAT for kind in costs for name in by_kind[kind]}
