"""The search after its end: better recipes near the best one, for as long as there is time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from octavo.recipe import Scheme
from octavo.tune.search import Steps
from octavo.tune.space import Choice
from octavo.tune.strategies._batches import BATCH
from octavo.tune.strategies._tried import Assignment, Tried

CHANGES = (1, 1, 1, 2, 3)  # layers that a random neighbour changes, one of these
MISSES = 500  # neighbours in a row that were tried already: there are no others


def go_on(tried: Tried, sensitivities: Mapping[str, float]) -> Steps:
    """Gives layers of the best recipe back one at a time, then tries random neighbours of it.

    Ends where all of them were tried. Layers without a sensitivity are not given back.
    """
    if tried.met:
        yield from _give_back(tried, sensitivities)
    draw = random.Random(tried.ground.seed)
    while batch := _neighbours(tried, draw):
        yield from tried.ask(batch)


def _give_back(tried: Tried, sensitivities: Mapping[str, float]) -> Steps:
    moved = True
    while moved:
        moved = False
        for move in _moves(tried, sensitivities):
            before = tried.best_trial
            yield from tried.ask([move])
            if tried.best_trial is not before:
                moved = True
                break


def _moves(tried: Tried, sensitivities: Mapping[str, float]) -> Iterator[Assignment]:
    """The best assignment with one layer nearer to the recipe's own scheme, the likeliest first."""
    best = dict(tried.best)
    changed = [c for c in tried.ground.space.choices if c.layer.name in best.keys() & sensitivities]
    for choice in by_promise(changed, sensitivities):
        name = choice.layer.name
        below = choice.schemes[: choice.schemes.index(best[name])]
        for scheme in below:
            move = {**best, name: scheme}
            if not tried.knows(move):
                yield move


def by_promise(choices: list[Choice], sensitivities: Mapping[str, float]) -> list[Choice]:
    """Those that harm the output least first, among equals those that compute and hold most."""
    return sorted(
        choices,
        key=lambda c: (
            sensitivities.get(c.layer.name, 0.0),
            -(c.layer.macs_per_row or 0),
            -c.layer.bytes,
        ),
    )


def _neighbours(tried: Tried, draw: random.Random) -> list[Assignment]:
    """Up to BATCH new neighbours of the best assignment; none where all were tried."""
    found: list[Assignment] = []
    keys = set()
    misses = 0
    while len(found) < BATCH and misses < MISSES:
        near = _neighbour(tried, draw)
        key = tried.key(near)
        if key in keys or tried.knows(near) or not tried.ground.space.held(near):
            misses += 1
            continue
        keys.add(key)
        found.append(near)
    return found


def _neighbour(tried: Tried, draw: random.Random) -> Assignment:
    choices = tried.ground.space.choices
    near: dict[str, Scheme] = dict(tried.best)
    for choice in draw.sample(choices, min(draw.choice(CHANGES), len(choices))):
        near[choice.layer.name] = draw.choice(choice.schemes)
    return near
