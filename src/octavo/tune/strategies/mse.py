"""Layers left float one after another, those first that do most to the output when quantized."""

from __future__ import annotations

from octavo.recipe import FLOAT
from octavo.tune.search import Ground, Steps
from octavo.tune.strategies._batches import batches
from octavo.tune.strategies._ranking import ranked
from octavo.tune.strategies._tried import Assignment, Tried


class Mse:
    """By the output's error when a layer alone is quantized, the worst first, each added to those
    before."""

    name = "mse"
    converges = False

    def search(self, ground: Ground) -> Steps:
        """As many trials as there are layers."""
        tried = Tried(ground)
        yield from tried.ask([{}])
        names = [choice.layer.name for choice in ground.space.quantized]
        order = list(ranked(ground, names)) if names else []
        falls: list[Assignment] = [
            dict.fromkeys(order[:count], FLOAT) for count in range(1, len(order))
        ]
        for batch in batches(falls):
            yield from tried.ask(batch)
