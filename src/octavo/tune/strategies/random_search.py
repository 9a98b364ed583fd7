"""Assignments drawn at random, none twice."""

from __future__ import annotations

import random

from octavo.tune.search import Ground, Steps
from octavo.tune.space import Space
from octavo.tune.strategies._batches import BATCH, batches
from octavo.tune.strategies._tried import Assignment, Tried
from octavo.tune.strategies.exhaustive import assignments

SMALL = 4096  # assignments: so many are listed and shuffled, more are drawn one by one
MISSES = 20  # batches in a row that bring nothing new: what is left is taken in order


class Random:
    """The recipe itself, then draws without replacement, each scheme of a layer as likely."""

    name = "random"
    converges = False

    def search(self, ground: Ground) -> Steps:
        """One trial for each assignment that quantizes a layer, where it is not stopped before."""
        tried = Tried(ground)
        draw = random.Random(ground.seed)
        yield from tried.ask([{}])
        space = ground.space
        if space.size <= SMALL:
            everything = list(assignments(space))
            draw.shuffle(everything)
            for batch in batches(everything):
                yield from tried.ask(batch)
            return
        # Draws hardly ever meet again in a space of this size, unless most of it was seen.
        misses = 0
        while misses < MISSES:
            known = len(tried.trials)
            yield from tried.ask([_draw(space, draw) for _ in range(BATCH)])
            misses = misses + 1 if len(tried.trials) == known else 0
        for rest in batches(assignments(space)):
            yield from tried.ask(rest)


def _draw(space: Space, draw: random.Random) -> Assignment:
    return {choice.layer.name: draw.choice(choice.schemes) for choice in space.choices}
