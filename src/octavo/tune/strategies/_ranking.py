"""Layers in the order of what quantizing each alone does to the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from octavo.results.tuning import Trial
from octavo.tune.search import Ground

GAP = 8.0  # neighbours in a ranking that differ by this factor are of two sorts
FLOOR = 1e-6  # of the worst error: what is below does nothing


def ranked(ground: Ground, names: Sequence[str]) -> dict[str, float]:
    """Each layer's error when it alone is quantized, the worst first, shown through `ground.rank`.

    One run of the model for each name. NaN counts as infinite; equal errors keep the given order.
    """
    errors = ground.errors(ground.space.base, [{name} for name in names])
    known = [math.inf if math.isnan(error) else error for error in errors]
    order = sorted(range(len(names)), key=lambda at: -known[at])
    ranking = {names[at]: known[at] for at in order}
    ground.rank(ranking)
    return ranking


def pronounced_gap(errors: Sequence[float]) -> int | None:
    """How many of `errors` (falling) stand before the largest gap, where it is a clear one.

    None also where most of them would: then rather the few after it are special.
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


def proportional(errors: Sequence[float], failed: Trial | None, bound: float) -> int:
    """How many of the worst must go, if the loss of the `failed` trial were their errors' sum.

    From 1 to one less than all; 1 where nothing can be told.
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
