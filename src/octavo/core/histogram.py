"""Observers: from data to a (min, max) range, and from that to scales and zero points.

They behave as the observers of the same names in `torch.ao.quantization.observer` (2.13), over
NumPy arrays: `range()` gives the same float32 numbers as `min_val` and `max_val` there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.qparams import Float32, Grid, QParams, qparams_from_range

Float64 = npt.NDArray[np.float64]


class Observer(ABC):
    """Watches arrays through `observe`, then tells the range that a quantizer should cover.

    `axis` is the channel axis, None for one range over the whole tensor.
    """

    axis: int | None = None

    @abstractmethod
    def observe(self, x: npt.NDArray[Any]) -> None:
        """Takes note of `x`, of any shape and real dtype (seen as float32).

        An empty array changes nothing. Raises ValueError on NaN or infinity.
        """

    @abstractmethod
    def range(self) -> tuple[Float32, Float32]:
        """(lo, hi), float32 [channels] each; ValueError where nothing was observed."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets all that was observed."""

    def qparams(self, grid: Grid) -> QParams:
        """Scale and zero point of `range()` on `grid`."""
        return qparams_from_range(*self.range(), grid, self.axis)


class _RunningRange(Observer):
    """Keeps one (lo, hi) a channel; how a new one is merged is the subclass's `_merge`."""

    def __init__(self, axis: int | None) -> None:
        if axis is not None and axis < 0:
            raise ValueError(f"axis {axis} must be counted from the front: 0 or more")
        self.axis = axis
        self._range: tuple[Float32, Float32] | None = None

    def observe(self, x: npt.NDArray[Any]) -> None:
        data = _as_float32(x, self.axis)
        if data.size == 0:
            return
        others = tuple(i for i in range(data.ndim) if i != self.axis)
        new = (np.atleast_1d(data.min(axis=others)), np.atleast_1d(data.max(axis=others)))
        if self._range is None:
            self._range = new
            return
        if new[0].shape != self._range[0].shape:
            raise ValueError(
                f"{type(self).__name__} saw {self._range[0].size} channels along axis {self.axis} "
                f"before, now {new[0].size}; call reset() between tensors of different width"
            )
        self._range = self._merge(self._range, new)

    def range(self) -> tuple[Float32, Float32]:
        if self._range is None:
            raise _nothing_observed(self)
        return self._range[0].copy(), self._range[1].copy()

    def reset(self) -> None:
        self._range = None

    @abstractmethod
    def _merge(
        self, old: tuple[Float32, Float32], new: tuple[Float32, Float32]
    ) -> tuple[Float32, Float32]: ...


class _MinMax(_RunningRange):
    def _merge(
        self, old: tuple[Float32, Float32], new: tuple[Float32, Float32]
    ) -> tuple[Float32, Float32]:
        return np.minimum(old[0], new[0]), np.maximum(old[1], new[1])


class _MovingAverage(_RunningRange):
    def __init__(self, axis: int | None, averaging_constant: float) -> None:
        super().__init__(axis)
        if not 0 < averaging_constant <= 1:
            raise ValueError(f"averaging_constant {averaging_constant} is not above 0, at most 1")
        self.averaging_constant = averaging_constant

    def _merge(
        self, old: tuple[Float32, Float32], new: tuple[Float32, Float32]
    ) -> tuple[Float32, Float32]:
        c = np.float32(self.averaging_constant)
        with np.errstate(over="ignore"):
            lo, hi = (a + c * (b - a) for a, b in zip(old, new, strict=True))
        if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
            raise ValueError("the moving average of the ranges does not fit into float32")
        return lo, hi


class MinMaxObserver(_MinMax):
    """The least and the greatest value seen, over whole tensors."""

    def __init__(self) -> None:
        super().__init__(axis=None)


class PerChannelMinMaxObserver(_MinMax):
    """The least and the greatest value seen, for each index of `axis`."""

    def __init__(self, axis: int = 0) -> None:
        super().__init__(axis)


class MovingAverageMinMaxObserver(_MovingAverage):
    """`lo += averaging_constant * (min(x) - lo)` and likewise `hi`, over whole tensors.

    The first tensor sets the range.
    """

    def __init__(self, averaging_constant: float = 0.01) -> None:
        super().__init__(None, averaging_constant)


class MovingAveragePerChannelMinMaxObserver(_MovingAverage):
    """As MovingAverageMinMaxObserver, for each index of `axis`."""

    def __init__(self, axis: int = 0, averaging_constant: float = 0.01) -> None:
        super().__init__(axis, averaging_constant)


class HistogramObserver(Observer):
    """The range that gives the least squared error when a histogram of all data is quantized.

    The search starts from all bins and gives up the ends step by step, the end that loses fewer
    values first, until the error grows. When a new tensor widens the range, the old
    histogram is spread over the new bins, each old bin in 16 parts.
    """

    _UPSAMPLING = 16
    _STEP = 1e-5  # the share of all values that one step of the search gives up

    def __init__(self, bins: int = 2048) -> None:
        if bins < 2:
            raise ValueError(f"bins {bins} must be at least 2")
        self.bins = bins
        self.reset()

    @classmethod
    def of(cls, lo: float, hi: float, counts: Float64) -> HistogramObserver:
        """One that has counted values between `lo` and `hi`: `counts` [bins], over equal widths.

        Where `lo` is above `hi` it has seen nothing.
        """
        made = cls(len(counts))
        made._lo, made._hi = np.float32(lo), np.float32(hi)
        made._counts = np.array(counts, np.float64)
        return made

    @property
    def counts(self) -> Float64:
        """How many values lie in each bin, [bins]; shares, since wider bins were filled."""
        return self._counts

    def reset(self) -> None:
        """Empties the histogram."""
        self._lo, self._hi = np.float32(np.inf), np.float32(-np.inf)
        self._counts: Float64 = np.zeros(self.bins)

    def observe(self, x: npt.NDArray[Any]) -> None:
        """Counts the values of `x`, over a wider range where they need it."""
        data = _as_float32(x, None)
        if data.size == 0:
            return
        lo, hi = min(data.min(), self._lo), max(data.max(), self._hi)
        if (lo, hi) != (self._lo, self._hi):
            self._counts = self._spread(lo, hi)
            self._lo, self._hi = lo, hi
        self._counts += _histogram(data, self.bins, lo, hi)

    def range(self) -> tuple[Float32, Float32]:
        """The range with the least squared error that the search finds, float32 [1] each."""
        if self._lo > self._hi:
            raise _nothing_observed(self)
        start, end = (0, self.bins - 1) if self._lo == self._hi else self._search()
        # float32 as in torch.ao, but where `lo + width * bins` could overflow on the way.
        kind = np.float32 if max(-self._lo, self._hi) < 1e38 else np.float64
        lo, hi, bins = kind(self._lo), kind(self._hi), kind(self.bins)
        width = hi / bins - lo / bins
        ends = (lo + width * kind(start), lo + width * kind(end + 1))
        return np.array(ends[:1], np.float32), np.array(ends[1:], np.float32)

    def _spread(self, lo: np.float32, hi: np.float32) -> Float64:
        """The counts so far, in the bins of the wider range `lo..hi`."""
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


class PlaceholderObserver(Observer):
    """Stands where nothing needs observing: float16, or activations quantized at run time."""

    def observe(self, x: npt.NDArray[Any]) -> None:
        """Looks at nothing, so that anything goes."""

    def reset(self) -> None:
        """There is nothing to forget."""

    def range(self) -> tuple[Float32, Float32]:
        """Always a ValueError."""
        raise ValueError(
            "PlaceholderObserver observes nothing: the tensor is float, or its range is found at "
            "run time; use MinMaxObserver to get a range and qparams"
        )


def _as_float32(x: npt.NDArray[Any], axis: int | None) -> Float32:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        data = np.asarray(x).astype(np.float32, copy=False)
    if axis is not None and axis >= data.ndim:
        raise ValueError(f"axis {axis} is not in 0..{data.ndim - 1} of shape {data.shape}")
    finite = np.isfinite(data)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"cannot observe NaN or infinity: {data[first]} at index {first}")
    return data


def _nothing_observed(observer: Observer) -> ValueError:
    return ValueError(f"{type(observer).__name__} has observed nothing yet; call observe(x) first")


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
