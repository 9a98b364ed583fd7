"""What fewer bits cost a layer, as its weights alone tell it: for models that nobody runs first."""

from __future__ import annotations

from typing import Any

from octavo.core.group_rounding import round_groups
from octavo.core.kernels import WeightFormat
from octavo.recipe.bit_budget import GROWTH, WAYS

ROWS = 256
"""Of a weight, how many are rounded: more tell next to nothing."""


# docs/notes/rounding.md: "Losses without gradients"
def weight_losses(rows: Any, elements: int) -> tuple[float, ...] | None:
    """Return what outputs lose in each of `WAYS`, to compare with the same of other layers.

    `rows` [n, k], an array of floats with inputs last, are some of a weight of so many `elements`.
    None where they hold NaN or infinity, which quantizing them will name.
    """
    try:
        found = [round_groups(rows, WeightFormat.grouped(*held)) for held in WAYS]
    except ValueError:
        return None
    return tuple(one.noise / max(one.signal, 1e-30) * elements**GROWTH for one in found)


def some_rows(matrix: Any) -> Any:
    """Return at most `ROWS` rows of a matrix, from all over it."""
    step = -(-len(matrix) // ROWS)
    return matrix[:: max(1, step)]
