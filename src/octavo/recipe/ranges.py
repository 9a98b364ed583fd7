"""The range of a layer's activations or weights, and whether outliers stretch it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.core.extent import Extent

OUTLIERS = 30.0
"""From this peak on a range is marked.

One int8 scale over all numbers then has a signal to noise ratio of 23 dB (see `Range.peak`), less
than four bits' worth; normally distributed numbers have a peak of 4 to 6.
"""


@dataclass(frozen=True)
class Range:
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
        """What was counted; None where there were no finite numbers."""
        if not extent.values:
            return None
        return cls(extent.low, extent.high, extent.rms, extent.values, extent.outliers)

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
        """Whether outliers take most of the resolution of one scale over all numbers."""
        return self.peak >= OUTLIERS
