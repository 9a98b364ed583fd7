"""How one layer's weights are to be held, as a recipe's scheme or a user's qconfig says."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.core.error_feedback import round_with_feedback
from octavo.core.group_rounding import RoundedGroups, round_groups
from octavo.core.kernels import QuantizedWeight, quantize_packed, quantize_weight
from octavo.core.kernels.packing import GROUP, WeightFormat
from octavo.core.qparams import Grid, QType
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.recipe.scheme import GROUPS

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
        """Return the storage of the weight: "int8", "uint8", "float16" or "bfloat16"."""

    @property
    def format(self) -> WeightFormat:
        """Return how a linear layer holds the integers: in groups, or `INT8`."""

    @property
    def search(self) -> bool:
        """Tell whether a group's scale is that of the least squared error, not of its range."""

    @property
    def held(self) -> Hashable:
        """Return what tells choices apart by what they make of a weight, whatever inputs become."""

    @property
    def group(self) -> int:
        """Inputs that share an activation scale: 0 for a whole row, else 128 or the format's."""

    @property
    def affine(self) -> bool:
        """Tell whether integers may have zero points."""

    @property
    def description(self) -> str:
        """A few words for tables."""

    def integers(
        self, weight: Float32, name: str, *, symmetric: bool = False, packed: bool = False
    ) -> Integers:
        """Quantize the weight [n, ...] along its first axis, as int8; `packed` one of [n, k].

        `symmetric`: the layer can hold no zero points. Raises ValueError for NaN and infinity, and
        OptionError where the choice cannot be kept to; both name the layer.
        """

    def rows(self, table: Float32, name: str) -> Integers:
        """Quantize an embedding table [rows, dim] row by row, as int8 or uint8 (`storage`)."""

    def adapted(self, *, symmetric: bool, grouped: bool = False) -> tuple[WeightChoice, str]:
        """Return the nearest choice that layers here can hold, and what differs in words.

        The words are "" where nothing differs.

        `grouped`: weights in groups are among what they hold.
        """

    def for_tables(self, *, grouped: bool = False) -> tuple[WeightChoice, str]:
        """Return the nearest choice that embedding tables can hold, and what differs in words."""


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
    def format(self) -> WeightFormat:
        w = self.scheme.weight
        if w is None or w.granularity is not Granularity.BLOCK or w.block not in GROUPS:
            return WeightFormat.INT8
        return WeightFormat.grouped(4 if w.qtype is QType.INT4 else 8, w.block, not w.symmetric)

    @property
    def search(self) -> bool:
        return self.scheme.weight is not None and self.scheme.weight.observer == "search"

    @property
    def held(self) -> Hashable:
        return self.scheme.weight

    @property
    def group(self) -> int:
        activation = self.scheme.activation
        return (activation.group or 0) if activation else 0

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

    def adapted(self, *, symmetric: bool, grouped: bool = False) -> tuple[WeightChoice, str]:
        w, a = self.scheme.weight, self.scheme.activation
        assert w is not None
        if not w.qtype.is_integer:
            return self, ""
        if grouped and w.granularity is Granularity.BLOCK:
            w, notes = _in_groups(w)
            group = w.block
        else:
            w, notes = _per_channel(w, symmetric=symmetric)
            group = None if symmetric else GROUP
        a, note = _activation(a, group, float_as_group=w.block is not None)
        return SchemeChoice(Scheme(w, a)), "; ".join([*notes, *note])

    def for_tables(self, *, grouped: bool = False) -> tuple[WeightChoice, str]:
        w = self.scheme.weight
        assert w is not None
        if not w.qtype.is_integer or w.granularity is not Granularity.BLOCK:
            return SchemeChoice(Scheme(w, None)), ""  # indices have nothing to quantize
        if grouped:
            w, notes = _in_groups(w)
        else:
            notes = [f"a scale for each row, not for each block of {w.block}"]
            if w.qtype is QType.INT4:
                notes.append("int8, not int4")
            w = _by_channel(w, QType.INT8 if w.qtype is QType.INT4 else w.qtype)
        return SchemeChoice(Scheme(w, None)), "; ".join(notes)


def _in_groups(w: WeightScheme) -> tuple[WeightScheme, list[str]]:
    """Return the nearest weights in groups that kernels have, and in words what differs."""
    assert w.block is not None
    notes = []
    block = min(GROUPS, key=lambda group: abs(group - w.block))  # type: ignore[operator]
    if block != w.block:
        notes.append(f"weights per block of {block}, not of {w.block}")
    if w.reduce_range:
        notes.append("8 bits, not 7")
    if w.qtype is QType.UINT8:
        notes.append("int8 weights, not uint8")
    qtype = QType.INT8 if w.qtype is QType.UINT8 else w.qtype
    return replace(w, qtype=qtype, block=block, reduce_range=False), notes


def _per_channel(w: WeightScheme, *, symmetric: bool) -> tuple[WeightScheme, list[str]]:
    """Return the nearest int8 weights, scaled per channel or tensor, and in words what differs."""
    notes = []
    if w.granularity is Granularity.BLOCK:
        notes.append(f"weights per channel, not per block of {w.block}")
    if w.qtype is not QType.INT8:
        notes.append(f"int8 weights, not {w.qtype.value}")
    if w.granularity is Granularity.BLOCK or w.qtype is not QType.INT8:
        w = _by_channel(w, QType.INT8)
    if symmetric and not w.symmetric:
        notes.append("symmetric weights, not affine")
        w = replace(w, symmetric=True)
    return w, notes


def _by_channel(w: WeightScheme, qtype: QType) -> WeightScheme:
    """Return `w` as `qtype`, and with a scale for each channel where it was in blocks."""
    if w.granularity is not Granularity.BLOCK:
        return replace(w, qtype=qtype)
    observer = "minmax" if w.observer == "search" else w.observer
    return replace(w, qtype=qtype, granularity=Granularity.CHANNEL, block=None, observer=observer)


def _activation(
    wanted: ActivationScheme | None, group: int | None, *, float_as_group: bool
) -> tuple[ActivationScheme, list[str]]:
    """Say how inputs are quantized, per row or `group` (None: layers have none), and what differs.

    `float_as_group`: per group where inputs were to stay float; else per row.
    """
    per_group = float_as_group if wanted is None else wanted.granularity is Granularity.GROUP
    a = ActivationScheme()
    if group is not None and per_group:
        a = ActivationScheme(granularity=Granularity.GROUP, group=group)
    if a == wanted:
        return a, []
    words = "in float" if wanted is None else f"per {_per(wanted)}"
    return a, [f"activations per {_per(a)}, not {words}"]


def _histogram_range(weight: Float32) -> tuple[Float32, Float32]:
    from octavo.core.histogram import HistogramObserver

    observer = HistogramObserver()
    observer.observe(weight)
    return observer.range()


def _per(activation: Any) -> str:
    if activation.group:
        return f"group of {activation.group}"
    return f"{activation.granularity.value} ({activation.qtype.value})"


def rounded(
    choice: WeightChoice, weight: Float32, name: str, statistics: Float32 | None = None
) -> RoundedGroups:
    """Round the weight [n, k] in groups of `choice.format`, for the layer `name`.

    `statistics` are of the layer's input: mean squares [k], or mean products [k, k], for error
    feedback. Raises ValueError for NaN and infinity, which names the layer.
    """
    try:
        if statistics is not None and statistics.ndim == 2:
            return round_with_feedback(weight, choice.format, statistics)
        return round_groups(weight, choice.format, statistics, choice.search)
    except ValueError as error:
        raise ValueError(f"{name}: weight: {error}; {REPAIR}") from None


DEFAULT = SchemeChoice(Scheme())
"""int8 weights per output channel, activations per row."""
