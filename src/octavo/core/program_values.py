"""Values and sizes of a program, and what only looks at memory in another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from octavo import _native

MOST_AXES = 6


class ValueType(Enum):
    """What the elements of a value are; a bool is a byte."""

    FLOAT32 = "float32"
    BOOL = "bool"
    INT64 = "int64"

    @property
    def code(self) -> int:
        """The C++ core's number for it."""
        return list(ValueType).index(self)


@dataclass(frozen=True, slots=True)
class Size:
    """An integer that is known in each call only: one of a value's sizes, or computed of such."""

    number: int


Length = int | Size
"""A size: known now, or in each call."""

ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "max", "min")
"""What sizes are computed by."""


@dataclass(frozen=True, slots=True)
class _Value:
    dtype: ValueType
    rank: int


class Values:
    """The values of a program by number, and views of them.

    Methods return the number of the value that they make. They raise ValueError, which names the
    step and the value, for what does not fit whatever the sizes will be.
    """

    def __init__(self) -> None:
        self._native = _native.Program()
        self._values: dict[int, _Value] = {}
        self._literals: dict[int, int] = {}

    def _made(self, number: int, dtype: ValueType, rank: int) -> int:
        self._values[number] = _Value(dtype, rank)
        return number

    def _value(self, step: str, number: int) -> _Value:
        found = self._values.get(number)
        if found is None:
            raise ValueError(f"{step}: there is no value {number!r}")
        return found

    def _refuse(self, step: str, number: int, what: str) -> NoReturn:
        value = self._values[number]
        about = f"{value.dtype.value} with {value.rank} axes"
        raise ValueError(f"{step}: value {number} ({about}) {what}")

    def _of_type(self, step: str, number: int, dtype: ValueType) -> _Value:
        found = self._value(step, number)
        if found.dtype is not dtype:
            self._refuse(step, number, f"needs to be {dtype.value}")
        return found

    def _axis(self, step: str, number: int, axis: int, more: int = 0) -> int:
        rank = self._value(step, number).rank + more
        if not -rank <= axis < rank:
            self._refuse(step, number, f"has no axis {axis}")
        return axis % rank

    def _size(self, length: Length) -> int:
        if isinstance(length, Size):
            return length.number
        if length not in self._literals:
            self._literals[length] = self._native.literal(length)
        return self._literals[length]

    def _sizes(self, step: str, number: int, sizes: Sequence[Length]) -> list[int]:
        if len(sizes) > MOST_AXES:
            self._refuse(step, number, f"can have {MOST_AXES} axes, not {len(sizes)}")
        return [self._size(length) for length in sizes]

    def input(self, rank: int, dtype: ValueType | str = ValueType.FLOAT32) -> int:
        """Add a tensor that each call is given, in order, of any strides."""
        if not 0 <= rank <= MOST_AXES:
            raise ValueError(f"input: {rank} axes; a value has up to {MOST_AXES}")
        kind = ValueType(dtype)
        return self._made(self._native.input(kind.code, rank), kind, rank)

    def input_int(self) -> Size:
        """Add an integer that each call is given, in order."""
        return Size(self._native.input_integer())

    def constant(
        self, address: int, sizes: Sequence[int], dtype: ValueType | str = ValueType.FLOAT32
    ) -> int:
        """Contiguous memory, which the caller keeps alive as long as the program."""
        if len(sizes) > MOST_AXES:
            raise ValueError(f"constant: {len(sizes)} axes; a value has up to {MOST_AXES}")
        kind = ValueType(dtype)
        return self._made(self._native.constant(kind.code, address, list(sizes)), kind, len(sizes))

    def size(self, value: int, axis: int) -> Size:
        """Return how many elements the value has along an axis."""
        return Size(self._native.size(value, self._axis("size", value, axis)))

    def compute(self, op: str, a: Length, b: Length) -> Length:
        """Apply one of ARITHMETIC to two lengths.

        Quotients are rounded down, remainders have the sign of `b`.
        """
        if op not in ARITHMETIC:
            raise ValueError(f"compute: {op!r} is none of {', '.join(ARITHMETIC)}")
        code = ARITHMETIC.index(op)
        return Size(self._native.compute(code, self._size(a), self._size(b)))

    def reshape(self, value: int, sizes: Sequence[Length]) -> int:
        """Reshape as torch.reshape does: one size may be -1.

        Data moves only where no strides say the same.
        """
        found = self._value("reshape", value)
        numbers = self._sizes("reshape", value, sizes)
        made = self._native.reshape(found.dtype.code, value, numbers)
        return self._made(made, found.dtype, len(numbers))

    def contiguous(self, value: int) -> int:
        """Return `value` where it lies without gaps in the order of its axes, else a copy."""
        found = self._value("contiguous", value)
        return self._made(self._native.contiguous(found.dtype.code, value), found.dtype, found.rank)

    def permute(self, value: int, axes: Sequence[int]) -> int:
        """Permute the axes, as torch.permute does."""
        found = self._value("permute", value)
        order = [self._axis("permute", value, axis) for axis in axes]
        if sorted(order) != list(range(found.rank)):
            self._refuse("permute", value, f"has no order {tuple(axes)}")
        return self._made(
            self._native.permute(found.dtype.code, value, order), found.dtype, found.rank
        )

    def slice(
        self,
        value: int,
        axis: int,
        start: Length | None,
        stop: Length | None,
        step: Length = 1,
    ) -> int:
        """Take `value[..., start:stop:step, ...]` along an axis, as Python counts."""
        found, along = self._value("slice", value), self._axis("slice", value, axis)
        end = self.size(value, along) if stop is None else stop
        first = 0 if start is None else start
        made = self._native.slice(
            found.dtype.code, value, along, self._size(first), self._size(end), self._size(step)
        )
        return self._made(made, found.dtype, found.rank)

    def expand(self, value: int, sizes: Sequence[Length]) -> int:
        """Expand as torch.expand does: axes of one element repeat, -1 leaves an axis as it is."""
        found = self._value("expand", value)
        if len(sizes) < found.rank:
            self._refuse("expand", value, f"does not expand to {len(sizes)} axes")
        numbers = self._sizes("expand", value, sizes)
        made = self._native.expand(found.dtype.code, value, numbers)
        return self._made(made, found.dtype, len(numbers))

    def unsqueeze(self, value: int, axis: int) -> int:
        """Insert an axis of one element, as torch.unsqueeze does."""
        found, at = self._value("unsqueeze", value), self._axis("unsqueeze", value, axis, 1)
        if found.rank == MOST_AXES:
            self._refuse("unsqueeze", value, "has no room for another axis")
        made = self._native.unsqueeze(found.dtype.code, value, at)
        return self._made(made, found.dtype, found.rank + 1)

    def squeeze(self, value: int, axis: int) -> int:
        """Without an axis that has one element: in a call where it has more, that is an error."""
        found, at = self._value("squeeze", value), self._axis("squeeze", value, axis)
        made = self._native.squeeze(found.dtype.code, value, at)
        return self._made(made, found.dtype, found.rank - 1)
