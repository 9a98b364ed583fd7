"""How a quantized model differs from the float one: its outputs, and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from octavo.core import versions
from octavo.core.data import Data
from octavo.core.metrics import Tally
from octavo.core.value_range import Extent
from octavo.results.comparison_page import comparison_page
from octavo.results.page import Page, Result

STANDS_OUT_DB = 10.0
"""By which a layer is worse than the median of all: ten times the noise."""

OUTLIERS = 30.0
"""From this peak on a range is marked.

One int8 scale over all numbers then has a signal to noise ratio of 23 dB (see `Range.peak`), less
than four bits' worth; normally distributed numbers have a peak of 4 to 6.
"""


# docs/notes/reports.md: "Ranges are those of the float model"
@dataclass(frozen=True)
class Range(Data):
    """The finite numbers of a tensor over all runs: bounds, root mean square, and how many.

    `outliers` counts those further from zero than `OUTLIERS` times the root mean square. Of one
    tensor it is exact; of several (runs, the weights of an LSTM) some may be missing where the root
    mean square of the first ones is more than 8 times that of all. `rms` is infinite where float64
    overflows.
    """

    low: float
    high: float
    rms: float
    values: int
    outliers: int = 0

    @classmethod
    def of(cls, extent: Extent) -> Range | None:
        """Return the range that `extent` counted; None where there were no finite numbers."""
        if not extent.values:
            return None
        return cls(extent.low, extent.high, extent.rms, extent.values, extent.outliers)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Range:
        """Read what `to_dict` wrote; an infinity that JSON lost comes back."""
        return cls(**{**data, "rms": math.inf if data["rms"] is None else data["rms"]})

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def peak(self) -> float:
        """Largest absolute value over the root mean square, the crest factor; 0 for zeros.

        Rounding to steps of `peak rms / 127` has the noise `step^2 / 12`, so that the signal to
        noise ratio of one symmetric int8 scale is `10 log10(12 127^2 / peak^2)` dB (Widrow and
        Kollar, Quantization Noise, 2008).
        """
        return self.largest / self.rms if self.rms > 0 and math.isfinite(self.rms) else 0.0

    @property
    def stretched(self) -> bool:
        """Tell whether outliers take most of the resolution of one scale over all numbers."""
        return self.peak >= OUTLIERS


@dataclass(frozen=True)
class Difference(Data):
    """How far the quantized model's numbers are from the float one's, over all runs as one.

    `error` is `octavo.core.metrics.relative_error` (half the squared distance over the squared
    length; infinite where the quantized numbers are not finite), `sqnr_db` the same in decibels,
    `cosine` None where a vector has no direction, `max_error` the largest absolute difference of
    finite numbers. `values` are the numbers compared: those that are finite in the float model.
    `non_finite` of them are not finite in the quantized one; `float_non_finite` are left out.
    """

    error: float
    sqnr_db: float
    cosine: float | None
    max_error: float
    values: int
    non_finite: int = 0
    float_non_finite: int = 0

    @classmethod
    def of(cls, tally: Tally) -> Difference | None:
        """Return the difference that `tally` counted; None where there was nothing to compare."""
        if not tally.values and not tally.reference_non_finite:
            return None
        return cls(
            tally.error,
            tally.sqnr_db,
            tally.cosine,
            tally.largest,
            tally.values,
            tally.non_finite,
            tally.reference_non_finite,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Difference:
        """Read what `to_dict` wrote; infinities that JSON lost come back.

        `error` 0 tells an infinite SQNR of equal numbers from that of hopeless ones.
        """
        error = math.inf if data["error"] is None else data["error"]
        endless = math.inf if error == 0.0 else -math.inf
        sqnr = endless if data["sqnr_db"] is None else data["sqnr_db"]
        return cls(**{**data, "error": error, "sqnr_db": sqnr})


@dataclass(frozen=True)
class OutputDifference(Data):
    """One output of the model.

    `top1` is the share of rows (along the last axis) whose largest number is at the same place; of
    outputs that are no floating-point numbers, the share of elements that are equal. None where
    there are no such rows. `difference` is None where nothing could be compared; `note` says why.
    `scores` is False for rows that are vectors (hidden states, embeddings): the place of their
    largest number means nothing.
    """

    name: str
    difference: Difference | None
    top1: float | None = None
    note: str = ""
    scores: bool = True

    @property
    def agreement(self) -> float | None:
        """Return `top1`, or None where it means nothing."""
        return self.top1 if self.scores else None


@dataclass(frozen=True)
class LayerDifference(Data):
    """One quantized layer.

    `alone` is its error when it is fed what the float model feeds it, `accumulated` that of the
    same numbers in the quantized model as it runs. `at` names the values that are compared: the
    layer's outputs, or the next ones that both models have (behind an activation that the layer
    has taken in, for example).

    `inputs` is the range of what the float model multiplies with the weights in these runs: of
    several tensors (query, key and value; a product of two activations) the one with the largest
    peak. `weights` is that of the float weights, all as one. None where there are none, as for the
    inputs of an embedding, or where they are not seen: inside of a subgraph, for example.
    """

    name: str
    kind: str
    op: str
    at: tuple[str, ...]
    alone: Difference | None
    accumulated: Difference | None
    notes: tuple[str, ...] = ()
    inputs: Range | None = None
    weights: Range | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """Larger is worse: the error alone, then the accumulated one."""
        both = self.alone, self.accumulated
        errors = [d.error if d is not None and d.values else -1.0 for d in both]
        return errors[0], errors[1]


@dataclass(frozen=True)
class Comparison(Result):
    """A float model and a quantized form of it, compared on the same inputs.

    `layers` are the quantized ones, the worst first: by their error alone, then by the accumulated
    one. `left_float` counts the others. `target` is "portable", "native" or "torch"; `inputs` says
    whether inputs were "given" or "made up". `padding` counts rows of outputs that were left out,
    over all runs: a mask among the inputs hides their tokens.
    """

    float_model: str
    quantized_model: str
    target: str
    inputs: str
    runs: int
    outputs: tuple[OutputDifference, ...]
    layers: tuple[LayerDifference, ...]
    left_float: int
    notes: tuple[str, ...] = ()
    version: int = field(default=versions.PAGE)
    padding: int = 0

    @property
    def _rated(self) -> list[float]:
        alone = [layer.alone for layer in self.layers if layer.alone is not None]
        return [d.sqnr_db for d in alone if d.values]  # else float's numbers are not finite

    @property
    def median_sqnr_db(self) -> float | None:
        """Return the median SQNR of the layers alone; None where none could be measured."""
        return median(self._rated) if self._rated else None

    @property
    def suspect(self) -> LayerDifference | None:
        """The layer to look at first; None where none stands out."""
        worst, middle = self.layers[0] if self.layers else None, self.median_sqnr_db
        if worst is None or worst.alone is None or not worst.alone.values or middle is None:
            return None
        stands_out = len(self._rated) > 1 and worst.alone.sqnr_db < middle - STANDS_OUT_DB
        return worst if worst.alone.non_finite or stands_out else None

    def page(self, verbose: bool = False) -> Page:
        """Lay the comparison out as a page; `verbose` names every layer."""
        return comparison_page(self, verbose)


def worst_first(layers: Sequence[LayerDifference]) -> tuple[LayerDifference, ...]:
    """Layers in the order of a Comparison; those that are equally bad stay as they are."""
    return tuple(sorted(layers, key=lambda layer: layer.rank, reverse=True))
