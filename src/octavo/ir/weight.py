"""The weights of operators: integers that are made when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import GroupedWeight, WeightFormat


@dataclass(frozen=True)
class WeightIntegers:
    """A weight `(q - zero_point) * scale`: int8 `q`, and vectors of one number for each row of it.

    Rows are outputs, filters, gate units or entries of a table. `scale` is float32; `zero_point`
    is int8, None where all are 0.
    """

    q: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int8] | None = None

    @property
    def zeros(self) -> npt.NDArray[np.int8]:
        """The zero points, 0 where there are none."""
        if self.zero_point is None:
            return np.zeros(self.scale.shape, np.int8)
        return self.zero_point


def rows_of(made: WeightIntegers | GroupedWeight, rows: slice) -> WeightIntegers | GroupedWeight:
    """Return the given rows of a matrix."""
    if isinstance(made, GroupedWeight):
        return replace(
            made,
            q=made.q[rows],
            scale=made.scale[rows],
            zero=None if made.zero is None else made.zero[rows],
            channel_scale=made.channel_scale[rows],
            minimum=None if made.minimum is None else made.minimum[rows],
        )
    zeros = None if made.zero_point is None else made.zero_point[rows]
    return WeightIntegers(made.q[rows], made.scale[rows], zeros)


@dataclass(frozen=True)
class QuantizedWeightValues:
    """A weight as stock operators read it: integers, scale and zero point in the graph.

    For a matrix [K, N], `scale` is float32 [N] (or [] for one scale) and `zero_point` the like in
    the integers' type; for a batched one they are [..., 1, N].
    """

    q: ir.Value
    scale: ir.Value
    zero_point: ir.Value


@dataclass(frozen=True)
class PackedValues:
    """A packed weight in the graph: `w`, scale and zero point of each row, and `w`'s checksum."""

    w: ir.Value
    scale: ir.Value
    zero_point: ir.Value | None
    checksum: int


@dataclass
class Account:
    """What became of one weight: bytes that it takes in the file, and the sums behind its SQNR.

    Of a weight that came in integers `changed_rows` are the channels that got others; None where it
    came in float. `rounded_scales` of it are not quite what the file had.
    """

    bytes: int = 0
    signal: float = 0.0
    noise: float = 0.0
    changed_rows: int | None = None
    rounded_scales: int = 0

    def add(self, other: Account) -> None:
        """Add the bytes and sums of `other` to this account."""
        self.bytes += other.bytes
        self.signal += other.signal
        self.noise += other.noise


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight of `shape`: [N, K], filters [M, C / group, ...] or gates [D, rows, inputs].

    `key` is equal for weights that are the same; `name` is what they are called in a file, with
    "quantized", "scale" and "zero_point" behind it for the parts that `part_names` does not name.
    """

    key: Hashable
    name: str
    shape: tuple[int, ...]
    make: Callable[[], WeightIntegers | GroupedWeight]
    """Quantizes, unpacks or loads it, in groups where `format` has some; nothing is kept here."""
    packed: Callable[[], tuple[Any, Any, Any]] | None = None
    """w, scale and zero point (or None) as kernels read them, where they lie so already."""
    matrix: Callable[[], QuantizedWeightValues] | None = None
    """How it is held for stock operators, where that is settled by whoever shares it."""
    source: ir.Value | None = None
    """The float weight in the graph that `make` and `matrix` read."""
    account: Account = field(default_factory=Account)
    part_names: Mapping[str, str] = field(default_factory=dict)
    format: WeightFormat = WeightFormat.INT8
    """How kernels hold it."""

    def integers(self) -> WeightIntegers:
        """Return the result of `make` for a format without groups."""
        found = self.make()
        assert isinstance(found, WeightIntegers), f"{self.name} is held in groups"
        return found

    def groups(self) -> GroupedWeight:
        """Return the result of `make` for a format of groups."""
        found = self.make()
        assert isinstance(found, GroupedWeight), f"{self.name} is not held in groups"
        return found

    def part_name(self, part: str) -> str:
        """Return the name of a part: "quantized", "scale" or "zero_point"."""
        return self.part_names.get(part, f"{self.name}_{part}")

    @property
    def n(self) -> int:
        """Rows of a matrix: outputs, or entries of a table."""
        return self.shape[0]

    @property
    def k(self) -> int:
        """Columns of a matrix: inputs, or the width of a table."""
        return self.shape[1]
