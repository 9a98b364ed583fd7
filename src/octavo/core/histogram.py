"""A histogram of data, and the (min, max) range that a quantizer should cover of it.

Both behave as `torch.ao.quantization.observer.HistogramObserver` (2.13), over NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.qparams import Float32

Float64 = npt.NDArray[np.float64]


class HistogramObserver:
    """The range that gives the least squared error when a histogram of all data is quantized.

    The search starts from all bins and gives up the ends step by step, the end that loses fewer
    values first, until the error grows. When a new tensor widens the range, the old
    histogram is spread over the new bins, each old bin in 16 parts.
    """

    _UPSAMPLING = 16
    _STEP = 1e-5  # the share of all values that one step of the search gives up

    def __init__(self, bins: int = 2048) -> None:
        self.bins = bins
        self._lo, self._hi = np.float32(np.inf), np.float32(-np.inf)
        self._counts: Float64 = np.zeros(bins)

    @classmethod
    def of(cls, lo: float, hi: float, counts: Float64) -> HistogramObserver:
        """Build an observer that has counted values between `lo` and `hi`.

        `counts` [bins] are over equal widths. Where `lo` is above `hi` the observer has seen
        nothing.
        """
        made = cls(len(counts))
        made._lo, made._hi = np.float32(lo), np.float32(hi)
        made._counts = np.array(counts, np.float64)
        return made

    @property
    def counts(self) -> Float64:
        """Return how many values lie in each bin, [bins]; shares, since wider bins were filled."""
        return self._counts

    def observe(self, x: npt.NDArray[Any]) -> None:
        """Count the values of `x`, over a wider range where they need it.

        `x` has any shape and real dtype, and an empty one changes nothing. Raises ValueError on NaN
        or infinity.
        """
        data = finite_float32(x)
        if data.size == 0:
            return
        lo, hi = min(data.min(), self._lo), max(data.max(), self._hi)
        if (lo, hi) != (self._lo, self._hi):
            self._counts = self._spread(lo, hi)
            self._lo, self._hi = lo, hi
        self._counts += _histogram(data, self.bins, lo, hi)

    def range(self) -> tuple[Float32, Float32]:
        """Return the range with the least squared error that the search finds, float32 [1] each.

        Raises ValueError where nothing was observed.
        """
        if self._lo > self._hi:
            raise ValueError("HistogramObserver has observed nothing yet; call observe(x) first")
        start, end = (0, self.bins - 1) if self._lo == self._hi else self._search()
        # float32 as in torch.ao, but where `lo + width * bins` could overflow on the way.
        kind = np.float32 if max(-self._lo, self._hi) < 1e38 else np.float64
        lo, hi, bins = kind(self._lo), kind(self._hi), kind(self.bins)
        width = hi / bins - lo / bins
        ends = (lo + width * kind(start), lo + width * kind(end + 1))
        return np.array(ends[:1], np.float32), np.array(ends[1:], np.float32)

    def _spread(self, lo: np.float32, hi: np.float32) -> Float64:
        """Return the counts so far, in the bins of the wider range `lo..hi`."""
        if self._lo > self._hi:
            return self._counts
        if self._lo == self._hi:
            return _histogram(np.array([self._lo]), self.bins, lo, hi) * float(self._counts.sum())
        parts = self.bins * self._UPSAMPLING
        edges = np.linspace(float(self._lo), float(self._hi), parts + 1)
        middles = (edges[:-1] + edges[1:]) / 2
        weights = np.repeat(self._counts, self._UPSAMPLING) / self._UPSAMPLING
        boundaries = np.linspace(float(lo), float(hi), self.bins + 1)
        target = np.clip(np.searchsorted(boundaries, middles, "right") - 1, 0, self.bins - 1)
        return np.bincount(target, weights, self.bins).astype(np.float64, copy=False)

    def _search(self) -> tuple[int, int]:
        """First and last bin of the best range found.

        The search of caffe2's norm_minimization.cc, as torch.ao's `_non_linear_param_search`.
        """
        below = np.cumsum(self._counts).tolist()
        total = below[-1]
        start, end = 0, self.bins - 1
        alpha, beta, least = 0.0, 1.0, np.inf
        while alpha < beta:
            next_alpha, next_beta = alpha + self._STEP, beta - self._STEP
            left, right = start, end
            while left < end and below[left] < next_alpha * total:
                left += 1
            while right > start and below[right] > next_beta * total:
                right -= 1
            new_start, new_end = start, end
            if left - start > end - right:
                new_start, alpha = left, next_alpha
            else:
                new_end, beta = right, next_beta
            if (new_start, new_end) == (start, end):
                continue
            error = _quantization_error(self._counts, new_start, new_end)
            if error > least:
                break
            least, start, end = error, new_start, new_end
        return start, end


def finite_float32(x: npt.ArrayLike) -> Float32:
    """Return `x` as float32. Raises ValueError on NaN and infinity, and names the first."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        data = np.asarray(x).astype(np.float32, copy=False)
    finite = np.isfinite(data)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"cannot observe NaN or infinity: {data[first]} at index {first}")
    return data


def _histogram(x: npt.NDArray[Any], bins: int, lo: np.float32, hi: np.float32) -> Float64:
    # In float64, so that hi - lo cannot overflow. lo == hi gets a range of width 1 around it.
    counts, _ = np.histogram(x.astype(np.float64), bins, (float(lo), float(hi)))
    return counts.astype(np.float64)


def _quantization_error(counts: Float64, start: int, end: int, levels: int = 256) -> float:
    """Squared error when bins `start..end` are covered by `levels` steps, in bin widths.

    Each bin is taken as evenly filled: between two distances a, b from the middle of a step, the
    error is `density * (b^3 - a^3) / 3`.
    """
    step = (end - start + 1) / levels
    begins = np.arange(counts.size) - float(start)
    ends = begins + 1.0
    first = np.clip(np.floor(begins / step), 0, levels - 1)
    last = np.clip(np.floor(ends / step), 0, levels - 1)
    half = step / 2
    head = half**3 - (begins - (first + 0.5) * step) ** 3
    whole = (last - first - 1) * 2 * half**3
    tail = (ends - (last + 0.5) * step) ** 3 + half**3
    return float(counts @ (head + whole + tail)) / 3
