"""How one layer's weights are to be held, as a recipe's scheme or a user's qconfig says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.core.kernels import QuantizedWeight, quantize_packed, quantize_weight
from octavo.core.kernels.packing import GROUP
from octavo.core.qparams import Grid, QType
from octavo.recipe import Granularity, Scheme

Float32 = npt.NDArray[np.float32]

HALVES = ("float16", "bfloat16")
"""Storages whose weights are floats: nothing is quantized, neither weights nor activations."""

REPAIR = "find where training diverged, or leave the layer float"
"""What to do about NaN and infinity."""


@dataclass(frozen=True)
class Integers:
    """A weight as int8: `w = (q - zero_point) * scale`, for each index of its first axis.

    `q` int8, in the weight's shape or packed; `scale` float32 [n]; `zero_point` int32 [n], or None
    where all are 0. Embedding tables may be uint8, and their zero points float32. `signal` and
    `noise` are the sums of squares of the weight and of what rounding changed.
    """

    q: npt.NDArray[Any]
    scale: Float32
    zero_point: npt.NDArray[Any] | None
    signal: float
    noise: float


class WeightChoice(Protocol):
    """What a layer is to become. Equal choices give equal weights."""

    @property
    def storage(self) -> str:
        """Of the weight: "int8", "uint8", "float16" or "bfloat16"."""

    @property
    def group(self) -> int:
        """Inputs that share an activation scale: 0 for a whole row, or 128."""

    @property
    def affine(self) -> bool:
        """Whether integers may have zero points."""

    @property
    def description(self) -> str:
        """A few words for tables."""

    def integers(
        self, weight: Float32, name: str, *, symmetric: bool = False, packed: bool = False
    ) -> Integers:
        """The weight [n, ...] quantized along its first axis, as int8; `packed` one of [n, k].

        `symmetric`: the layer can hold no zero points. Raises ValueError for NaN and infinity, and
        OptionError where the choice cannot be kept to; both name the layer.
        """

    def rows(self, table: Float32, name: str) -> Integers:
        """An embedding table [rows, dim] quantized row by row, as int8 or uint8 (`storage`)."""

    def adapted(self, *, symmetric: bool) -> tuple[WeightChoice, str]:
        """The nearest choice that layers here can hold, and what differs in words ("": nothing)."""

    def for_tables(self) -> tuple[WeightChoice, str]:
        """The nearest choice that embedding tables can hold, and what differs in words."""


@dataclass(frozen=True)
class Answer:
    """What is asked of a layer: a choice, or None and the reason.

    `named`: of its own name or type, not of others with it."""

    choice: WeightChoice | None
    reason: str = ""
    named: bool = False


@dataclass(frozen=True)
class SchemeChoice:
    """As a scheme says."""

    scheme: Scheme

    @property
    def storage(self) -> str:
        assert self.scheme.weight is not None
        return self.scheme.weight.qtype.value

    @property
    def group(self) -> int:
        activation = self.scheme.activation
        return GROUP if activation and activation.granularity is Granularity.GROUP else 0

    @property
    def affine(self) -> bool:
        assert self.scheme.weight is not None
        return not self.scheme.weight.symmetric

    @property
    def description(self) -> str:
        return self.scheme.describe()

    def integers(
        self, weight: Float32, name: str, *, symmetric: bool = False, packed: bool = False
    ) -> Integers:
        quantize = quantize_packed if packed else quantize_weight
        return self._quantized(weight, name, QType.INT8, symmetric or not self.affine, quantize)

    def rows(self, table: Float32, name: str) -> Integers:
        return self._quantized(table, name, QType.parse(self.storage), not self.affine)

    def _quantized(
        self,
        weight: Float32,
        name: str,
        qtype: QType,
        symmetric: bool,
        quantize: Callable[..., QuantizedWeight] = quantize_weight,
    ) -> Integers:
        w = self.scheme.weight
        assert w is not None
        channel = w.granularity is Granularity.CHANNEL
        grid = Grid.of(qtype, symmetric=symmetric, reduce_range=w.reduce_range)
        try:
            ranges = _histogram_range(weight) if w.observer == "histogram" else None
            found = quantize(weight, grid, 0 if channel else None, ranges)
        except ValueError as error:
            advice = "" if np.isfinite(weight).all() else f"; {REPAIR}"
            raise ValueError(f"{name}: weight: {error}{advice}") from None
        n = weight.shape[0]
        zero = found.qparams.zero_point
        return Integers(
            found.q,
            np.array(np.broadcast_to(found.qparams.scale, n)),
            np.array(np.broadcast_to(zero, n)) if zero.any() else None,
            found.signal,
            found.noise,
        )

    def adapted(self, *, symmetric: bool) -> tuple[WeightChoice, str]:
        w, a = self.scheme.weight, self.scheme.activation
        assert w is not None
        if not w.qtype.is_integer:
            return self, ""
        notes = []
        if w.granularity is Granularity.BLOCK:
            notes.append(f"weights per channel, not per block of {w.block}")
            w = replace(w, granularity=Granularity.CHANNEL, block=None)
        if w.qtype is not QType.INT8:
            notes.append(f"int8 weights, not {w.qtype.value}")
            w = replace(w, qtype=QType.INT8)
        if symmetric and not w.symmetric:
            notes.append("symmetric weights, not affine")
            w = replace(w, symmetric=True)
        wanted = a
        default = Scheme().activation
        assert default is not None
        if (
            a is None
            or a.granularity is Granularity.TENSOR
            or (symmetric and a.granularity is Granularity.GROUP)
        ):
            a = default
        elif a.granularity is Granularity.GROUP and a.group != GROUP:
            a = replace(a, group=GROUP)
        a = replace(a, qtype=QType.UINT8)
        if a != wanted:
            words = "in float" if wanted is None else f"per {_per(wanted)}"
            notes.append(f"activations per {_per(a)}, not {words}")
        return SchemeChoice(Scheme(w, a)), "; ".join(notes)

    def for_tables(self) -> tuple[WeightChoice, str]:
        w = self.scheme.weight
        assert w is not None
        note = ""
        if w.granularity is Granularity.BLOCK:
            note = f"a scale for each row, not for each block of {w.block}"
            w = replace(w, granularity=Granularity.CHANNEL, block=None)
        return SchemeChoice(Scheme(w, None)), note  # indices have nothing to quantize


def _histogram_range(weight: Float32) -> tuple[Float32, Float32]:
    from octavo.core.observers import HistogramObserver

    observer = HistogramObserver()
    observer.observe(weight)
    return observer.range()


def _per(activation: Any) -> str:
    if activation.group:
        return f"group of {activation.group}"
    return f"{activation.granularity.value} ({activation.qtype.value})"


DEFAULT = SchemeChoice(Scheme())
"""int8 weights per output channel, activations per row."""
