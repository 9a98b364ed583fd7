"""Which kinds of layers gain no time from being quantized."""

from __future__ import annotations

from octavo.recipe import FLOAT, Kind, Scheme
from octavo.tune.search import Ground

PAYS = 0.97  # of the time of the model with all kinds quantized: below, the kind costs time
# Tables are often most of a file: they are not stored four times as large for a few percent.
LOOKUP_PAYS = 0.9


def surveyed(ground: Ground) -> dict[str, Scheme]:
    """The assignment to start from: kinds that cost time when they are quantized are float.

    Each kind in turn is left float, and the models are timed against the one with all of them
    quantized. A kind is given up where even the upper quartile says that it costs time, lookups
    where it is a tenth. Where all would be, the one that costs least stays. Nothing is timed where
    the objective needs no time or there is one kind only.
    """
    space = ground.space
    by_kind: dict[Kind, dict[str, Scheme]] = {}
    for choice in space.quantized:
        by_kind.setdefault(choice.layer.kind, {})[choice.layer.name] = FLOAT
    if not ground.timed or len(by_kind) < 2:
        return {}
    without = [space.candidate(names) for names in by_kind.values()]
    _, *ratios = ground.time_ratios([space.candidate({}), *without])
    costs = {
        kind: high
        for kind, (_, high) in zip(by_kind, ratios, strict=True)
        if high < (LOOKUP_PAYS if kind is Kind.EMBEDDING else PAYS)
    }
    if len(costs) == len(by_kind):
        del costs[max(costs, key=lambda kind: costs[kind])]
    return {name: FLOAT for kind in costs for name in by_kind[kind]}
