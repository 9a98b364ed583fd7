"""Observers for qconfigs: what `torch.ao.quantization.observer` has, without quantized tensors.

They take the arguments of torch.ao 2.13's observers of the same names, in the same order, keep the
same attributes (`min_val`, `max_val`, `dtype`, `qscheme`, `quant_min`, `quant_max`, `ch_axis`, ...)
and give the same scales and zero points to the last bit; HistogramObserver's range is within one of
its bins of torch.ao's. What they do otherwise:

- dtypes and schemes may be strings ("int8", "per_channel_symmetric"), which outlive torch.qint8;
- NaN and infinity are refused, and so is asking for parameters before anything was observed;
- arguments that contradict each other are refused when the observer is made, none is ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from octavo.core.histogram import HistogramObserver as Histogram
from octavo.core.histogram import finite_float32
from octavo.errors import OptionError, did_you_mean
from octavo.torch.qconfig.observer_base import (
    EPS,
    PER_CHANNEL,
    PLACEHOLDERS,
    Float32,
    ObserverBase,
    UniformObserver,
    as_float32,
    bare_name,
)


class _RunningRangeObserver(UniformObserver):
    """Observers whose whole state is `min_val` and `max_val`."""

    def forward(self, x: Any) -> Any:
        """Update the range with `x`, of any shape and real dtype, and return `x`.

        An empty tensor changes nothing. Raises ValueError on NaN or infinity.
        """
        if x.numel() == 0:
            return x
        data = finite_float32(self._arranged(as_float32(x)))
        axis = 1 if self._schemes is PER_CHANNEL else None
        found = data.min(axis), data.max(axis)
        if self._has_seen():  # what an observer sees first becomes its range as it is
            found = self._merged(finite_float32(self._range()), found)
        device = self.min_val.device
        self.min_val, self.max_val = (torch.from_numpy(np.array(e)).to(device) for e in found)
        return x

    def _arranged(self, data: Float32) -> Float32:
        return data

    def _merged(self, old: Float32, new: tuple[Any, Any]) -> tuple[Any, Any]:
        return np.minimum(old[0], new[0]), np.maximum(old[1], new[1])


class _MovingAverage(_RunningRangeObserver):
    averaging_constant: float

    def _average_with(self, constant: float) -> None:
        if not 0 < constant <= 1:
            raise self._error(f"averaging_constant {constant} is not above 0, at most 1")
        self.averaging_constant = constant

    def _merged(self, old: Float32, new: tuple[Any, Any]) -> tuple[Any, Any]:
        c = np.float32(self.averaging_constant)
        with np.errstate(over="ignore"):
            lo, hi = (a + c * (b - a) for a, b in zip(old, new, strict=True))
        if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
            raise ValueError("the moving average of the ranges does not fit into float32")
        return lo, hi


class MinMaxObserver(_RunningRangeObserver):
    """The least and the greatest value seen, over whole tensors."""


class MovingAverageMinMaxObserver(_MovingAverage, MinMaxObserver):
    """`min_val += averaging_constant * (min(x) - min_val)`, likewise `max_val`.

    The first tensor sets the range.
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: Any = "uint8",
        qscheme: Any = "per_tensor_affine",
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic
        )
        self._average_with(averaging_constant)
        self._refuse_dynamic(is_dynamic and averaging_constant != 1)


class PerChannelMinMaxObserver(_RunningRangeObserver):
    """The least and the greatest value seen, for each index of `ch_axis`."""

    _schemes = PER_CHANNEL

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = "uint8",
        qscheme: Any = "per_channel_affine",
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(
            dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic
        )
        self.ch_axis = ch_axis
        self._refuse_dynamic(is_dynamic)

    def _arranged(self, data: Float32) -> Float32:
        """Return the data as [channels, all else]."""
        name = type(self).__name__
        if not -data.ndim <= self.ch_axis < data.ndim:
            raise ValueError(f"{name}: ch_axis {self.ch_axis} is not an axis of shape {data.shape}")
        rows = np.moveaxis(data, self.ch_axis, 0)
        if self._has_seen() and len(rows) != self.min_val.numel():
            raise ValueError(
                f"{name} saw {self.min_val.numel()} channels along axis {self.ch_axis} before, now "
                f"{len(rows)}; call reset_min_max_vals() between tensors of different width"
            )
        return rows.reshape(len(rows), -1)


class MovingAveragePerChannelMinMaxObserver(_MovingAverage, PerChannelMinMaxObserver):
    """As MovingAverageMinMaxObserver, for each index of `ch_axis`."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: Any = "uint8",
        qscheme: Any = "per_channel_affine",
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            ch_axis,
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
        )
        self._average_with(averaging_constant)


class HistogramObserver(UniformObserver):
    """The range with the least squared error, searched in a histogram of all that was seen.

    `min_val` and `max_val` are the ends of the data, not of that range. `histogram` float64 [bins]
    counts the values between them.
    """

    histogram: torch.Tensor

    def __init__(
        self,
        bins: int = 2048,
        dtype: Any = "uint8",
        qscheme: Any = "per_tensor_affine",
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
    ) -> None:
        if bins < 2:
            raise self._error(f"bins {bins} must be at least 2")
        self.bins = bins
        super().__init__(
            dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic
        )
        self._refuse_dynamic(is_dynamic)

    def forward(self, x: Any) -> Any:
        """Count the values of `x`, and return `x`. Raises ValueError on NaN or infinity."""
        if x.numel() == 0:
            return x
        data, observer = as_float32(x), self._observer()
        observer.observe(data)
        self.histogram = torch.from_numpy(observer.counts).to(self.histogram.device)
        self.min_val = torch.clamp(self.min_val, max=float(data.min()))
        self.max_val = torch.clamp(self.max_val, min=float(data.max()))
        return x

    def reset_min_max_vals(self) -> None:
        """Forgets all that was observed."""
        super().reset_min_max_vals()
        counts = torch.from_numpy(Histogram(self.bins).counts)
        self.register_buffer("histogram", counts.to(self._device))

    def _observer(self) -> Histogram:
        """Return a Histogram that has seen the same data."""
        counts = self.histogram.to("cpu", torch.float64).numpy()
        return Histogram.of(float(self.min_val), float(self.max_val), counts)

    def _range(self) -> tuple[Float32, Float32]:
        super()._range()
        return self._observer().range()


class PlaceholderObserver(ObserverBase):
    """Looks at nothing: for float16 weights, and for activations that are quantized at run time."""

    def __init__(
        self,
        dtype: Any = "float32",
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        if bare_name(dtype) not in PLACEHOLDERS:
            raise OptionError(
                f"{type(self).__name__}: dtype {dtype!r} is not supported."
                f"{did_you_mean(bare_name(dtype), PLACEHOLDERS)}"
            )
        super().__init__(dtype, is_dynamic or compute_dtype is not None)
        scheme = "per_tensor_affine" if qscheme is None else bare_name(qscheme)
        self.qscheme = getattr(torch, scheme, scheme)
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = EPS if eps is None else eps
        self.custom_op = custom_op_name

    def forward(self, x: Any) -> Any:
        """Return `x`."""
        return x

    def calculate_qparams(self) -> tuple[Any, Any]:
        """Raise ValueError: this observer has no range."""
        raise ValueError(
            "PlaceholderObserver observes nothing: the tensor is float, or its range is found at "
            "run time; use MinMaxObserver to get a scale and a zero point"
        )

    def extra_repr(self) -> str:
        """Return the dtype and whether the observer is dynamic, for repr()."""
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"
