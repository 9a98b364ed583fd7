"""Every assignment, those with the fewest deviations from the recipe first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from octavo.tune.search import Ground, Steps
from octavo.tune.space import Space
from octavo.tune.strategies._batches import batches
from octavo.tune.strategies._tried import Assignment, Tried


class Exhaustive:
    """Everything; nothing is made before its turn, so that a space of any size can be begun."""

    name = "exhaustive"
    converges = False

    def search(self, ground: Ground) -> Steps:
        """One trial for each assignment that quantizes a layer."""
        tried = Tried(ground)
        yield from tried.ask([{}])
        for batch in batches(assignments(ground.space)):
            yield from tried.ask(batch)


def assignments(space: Space) -> Iterator[Assignment]:
    """Every assignment but the recipe itself."""
    for count in range(1, len(space.choices) + 1):
        for changed in combinations(space.choices, count):
            names = [choice.layer.name for choice in changed]
            for schemes in product(*(choice.schemes[1:] for choice in changed)):
                yield dict(zip(names, schemes, strict=True))
