"""How one layer's weights are to be held, as a recipe's scheme or a user's qconfig says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from octavo.core.kernels import QuantizedWeight, pack, quantize_packed, quantize_weight
from octavo.core.kernels.packing import GROUP
from octavo.core.qtype import Grid, QType
from octavo.errors import OptionError
from octavo.recipe import Granularity, Scheme
from octavo.torch.observed import (
    ActivationKind,
    ObservedWeight,
    activation_of,
    dtype_of,
    is_affine,
    observe_weight,
)
from octavo.torch.observed import words as weight_words
from octavo.torch.qconfig import QConfig

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


class Choice(Protocol):
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
    def words(self) -> str:
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

    def adapted(self, *, symmetric: bool) -> tuple[Choice, str]:
        """The nearest choice that layers here can hold, and what differs in words ("": nothing)."""

    def for_tables(self) -> tuple[Choice, str]:
        """The nearest choice that embedding tables can hold, and what differs in words."""


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
    def words(self) -> str:
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

    def adapted(self, *, symmetric: bool) -> tuple[Choice, str]:
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

    def for_tables(self) -> tuple[Choice, str]:
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


@dataclass(frozen=True)
class QConfigChoice:
    """As a qconfig's weight observer says; activations are quantized per row, or not at all."""

    qconfig: QConfig
    weights_only: bool = False

    @property
    def storage(self) -> str:
        return dtype_of(self.qconfig)

    @property
    def group(self) -> int:
        return 0

    @property
    def affine(self) -> bool:
        return is_affine(self.qconfig)

    @property
    def words(self) -> str:
        quantized = self.storage in ("int8", "uint8") and not self.weights_only
        return weight_words(self.qconfig) + (
            ", activations per row" if quantized else ", weights only"
        )

    def integers(
        self, weight: Float32, name: str, *, symmetric: bool = False, packed: bool = False
    ) -> Integers:
        found = self._observed(weight, name, "output channels")
        n = weight.shape[0]
        if found.zero_point.dtype.kind == "f":
            raise OptionError(
                f"{name}: the qconfig's weight observer has qscheme "
                "per_channel_affine_float_qparams, which only embeddings take; use "
                "per_channel_symmetric or per_channel_affine"
            )
        shift = _shift(found)
        zero = np.array(np.broadcast_to(found.zero_point, n), np.int32) - shift
        if symmetric and zero.any():
            raise OptionError(
                f"{name}: the qconfig asks for affine weights; this layer holds symmetric "
                "ones: use dtype int8 with qscheme per_tensor_symmetric or per_channel_symmetric"
            )
        q = (found.q.astype(np.int16) - shift).astype(np.int8) if shift else found.q
        return Integers(
            pack(q) if packed else q,
            np.array(np.broadcast_to(found.scale, n), np.float32),
            zero if zero.any() else None,
            found.signal,
            found.noise,
        )

    def rows(self, table: Float32, name: str) -> Integers:
        found = self._observed(table, name, "rows")
        n = table.shape[0]
        zero = np.array(np.broadcast_to(found.zero_point, n))
        return Integers(
            found.q,
            np.array(np.broadcast_to(found.scale, n), np.float32),
            zero if zero.any() else None,
            found.signal,
            found.noise,
        )

    def _observed(self, weight: Float32, name: str, what: str) -> ObservedWeight:
        found = observe_weight(self.qconfig, torch.from_numpy(weight), name)
        if found.axis not in (None, 0):
            raise OptionError(
                f"{name}: the qconfig's weight observer has ch_axis={found.axis}; this layer's "
                f"{what} are axis 0: use PerChannelMinMaxObserver.with_args(ch_axis=0)"
            )
        return found

    def adapted(self, *, symmetric: bool) -> tuple[Choice, str]:
        activation = activation_of(self.qconfig)
        if activation.kind is ActivationKind.WEIGHTS_ONLY:
            return self, "activations per row, not in float"
        return self, activation.note

    def for_tables(self) -> tuple[Choice, str]:
        return replace(self, weights_only=True), ""


def _shift(found: ObservedWeight) -> int:
    """What to take from uint8 to make it int8: the zero point, where all is symmetric around one.

    Symmetric uint8 with a range of its own has the middle of that range, not 128.
    """
    if found.q.dtype != np.uint8:
        return 0
    zero = found.zero_point.astype(np.int32)
    middle = int(zero[0]) if zero.size else 128
    fits = found.qmin - middle >= -128 and found.qmax - middle <= 127
    return middle if fits and (zero == middle).all() else 128


DEFAULT = SchemeChoice(Scheme())
"""int8 weights per output channel, activations per row."""
