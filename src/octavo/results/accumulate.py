"""Adds up how outputs and layers differ, run by run, to what a Comparison holds."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from octavo.core.masked_rows import Padding
from octavo.core.metrics import Agreement, Tally, holds_numbers, is_unit
from octavo.core.value_range import Extent
from octavo.results.comparison import OUTLIERS, Difference, LayerDifference, OutputDifference, Range

_VECTORS = re.compile("hidden|embed|pooled|pooler|feature|latent|encod", re.IGNORECASE)


class Output:
    """One output over all runs; `scores` is False for one that is known to hold vectors."""

    def __init__(self, name: str, scores: bool = True) -> None:
        self._name, self._note = name, ""
        self._tally, self._same = Tally(), Agreement()
        self._scores = scores and _VECTORS.search(name) is None
        self._unit, self._numbers = True, 0

    def add(self, reference: Any, other: Any, padding: Padding) -> None:
        """Add one run.

        Values that are not numbers, or arrays of different shapes, are noted instead.
        """
        if not (holds_numbers(reference) and holds_numbers(other)):
            self._note = "it holds no numbers"
        elif reference.shape != other.shape:
            self._note = _shapes(reference, other)
        else:
            reference, other = padding.seen(self._name, reference, other)
            self._numbers += reference.size
            self._tally.add(reference, other)
            self._same.add(reference, other)
            self._unit = self._unit and is_unit(reference)

    def found(self) -> OutputDifference:
        """Return the output's difference, from all that was counted."""
        difference = Difference.of(self._tally)
        nothing = "it holds no finite numbers" if self._numbers else "it is empty"
        note = self._note or ("" if difference else nothing)
        scores = self._scores and not (self._unit and difference is not None)
        return OutputDifference(self._name, difference, self._same.share, note, scores)


class LayerErrors:
    """One layer over all runs: alone, accumulated, and the ranges of its inputs and weights.

    The `padding` of a run counts for nothing.
    """

    def __init__(self) -> None:
        self._alone, self._accumulated = Tally(), Tally()
        self._inputs: dict[str, Extent] = defaultdict(lambda: Extent(OUTLIERS))
        self._weights = Extent(OUTLIERS)
        self._notes: dict[str, None] = {}

    def multiplied(self, name: str, array: Any, padding: Padding) -> None:
        """Count a tensor that the layer multiplies in the float model, by a name of its own."""
        self._inputs[name].add(*padding.seen(name, array, layer=True))

    def weights(self, array: Any) -> None:
        """Count one of the layer's weights in the float model."""
        self._weights.add(array)

    def alone(self, reference: Any, other: Any, padding: Padding) -> None:
        """Count an output of the float model's layer, and of the quantized one fed the same."""
        self._add(self._alone, reference, other, padding, "alone")

    def accumulated(self, reference: Any, other: Any, padding: Padding) -> None:
        """Count an output of the layer in the float model, and in the quantized one as run."""
        self._add(self._accumulated, reference, other, padding, "accumulated")

    def note(self, text: str) -> None:
        """Note a text about the layer, once however often that text is given."""
        self._notes[text] = None

    def found(
        self, name: str, kind: str, op: str, at: tuple[str, ...], notes: tuple[str, ...] = ()
    ) -> LayerDifference:
        """Return the layer's difference, from all that was counted."""
        alone, accumulated = Difference.of(self._alone), Difference.of(self._accumulated)
        inputs = [r for r in map(Range.of, self._inputs.values()) if r is not None]
        return LayerDifference(
            name,
            kind,
            op,
            at,
            alone,
            accumulated,
            (*notes, *self._notes),
            max(inputs, key=lambda r: r.peak, default=None),
            Range.of(self._weights),
        )

    def _add(self, tally: Tally, reference: Any, other: Any, padding: Padding, which: str) -> None:
        if not (holds_numbers(reference) and holds_numbers(other)):
            return
        if reference.shape != other.shape:
            self.note(f"{which}: {_shapes(reference, other)}")
        else:
            tally.add(*padding.seen("", reference, other, layer=True))


def _shapes(reference: Any, other: Any) -> str:
    return (
        f"its shape is {list(other.shape)}, and {list(reference.shape)} in the float model: not "
        "compared"
    )
