"""Functions of the elements of a program's values."""

from __future__ import annotations

from octavo.core.program_values import Size, Values, ValueType

UNARY = (
    *("neg", "exp", "tanh", "sigmoid", "relu", "gelu", "gelu_tanh", "silu", "rsqrt", "sqrt"),
    *("reciprocal", "abs", "erf"),
)
SLOW_UNARY = ("sin", "cos", "log", "softplus")
"""What the C library computes, in float64."""
BINARY = ("add", "sub", "mul", "div", "min", "max")
COMPARE = ("gt", "ge", "lt", "le", "eq", "ne")
LOGIC = ("and", "or")
INTEGERS = ("add", "sub", "mul", "floordiv", "min", "max")

Operand = int
"""The number of a value. A second operand may also be a float, or, beside int64, a Size."""


class Elements(Values):
    """Results have float32 elements where nothing else is said; inputs broadcast as PyTorch's."""

    def unary(self, op: str, x: int) -> int:
        """Apply one of UNARY or SLOW_UNARY to float32, or "not" to bool."""
        if op == "not":
            rank = self._of_type("unary not", x, ValueType.BOOL).rank
            return self._made(self._native.logical_not(x), ValueType.BOOL, rank)
        if op not in UNARY and op not in SLOW_UNARY:
            raise ValueError(f"unary: {op!r} is none of {', '.join((*UNARY, *SLOW_UNARY, 'not'))}")
        rank = self._of_type(f"unary {op}", x, ValueType.FLOAT32).rank
        if op in UNARY:
            made = self._native.unary(UNARY.index(op), x)
        else:
            made = self._native.slow_unary(SLOW_UNARY.index(op), x)
        return self._made(made, ValueType.FLOAT32, rank)

    def power(self, x: int, exponent: float) -> int:
        """Compute `x ** exponent`."""
        rank = self._of_type("power", x, ValueType.FLOAT32).rank
        return self._made(self._native.power(x, exponent), ValueType.FLOAT32, rank)

    def binary(self, op: str, a: Operand, b: Operand | float | Size) -> int:
        """Apply `op` to two values of one dtype.

        `b` may be a float, or beside int64 an integer value's Size. Float32 has BINARY, int64
        INTEGERS, both and bool COMPARE (to bool), bool LOGIC.
        """
        step = f"binary {op}"
        first = self._value(step, a)
        if isinstance(b, float):
            self._of_type(step, a, ValueType.FLOAT32)
            b = self.scalar(b)
        elif isinstance(b, Size):
            self._of_type(step, a, ValueType.INT64)
            b = self.integer(b)
        second = self._of_type(step, b, first.dtype)
        rank = max(first.rank, second.rank)
        if op in COMPARE:
            made = self._native.compare(COMPARE.index(op), a, b)
            return self._made(made, ValueType.BOOL, rank)
        if first.dtype is ValueType.FLOAT32 and op in BINARY:
            made = self._native.binary(BINARY.index(op), a, b)
        elif first.dtype is ValueType.INT64 and op in INTEGERS:
            made = self._native.integers(INTEGERS.index(op), a, b)
        elif first.dtype is ValueType.BOOL and op in LOGIC:
            made = self._native.logic(LOGIC.index(op), a, b)
        else:
            self._refuse(step, a, "has no such function")
        return self._made(made, first.dtype, rank)

    def where(self, condition: int, a: int, b: int | float) -> int:
        """Take `a` where the bool `condition` is true, else `b`."""
        ranks = [self._of_type("where", condition, ValueType.BOOL).rank]
        kind = self._value("where", a).dtype
        other = self.scalar(b) if isinstance(b, float) else b
        ranks += [self._of_type("where", one, kind).rank for one in (a, other)]
        return self._made(self._native.where(kind.code, condition, a, other), kind, max(ranks))

    def cast(self, x: int, dtype: ValueType | str) -> int:
        """Convert a value to another dtype, as torch.Tensor.to does."""
        found, kind = self._value("cast", x), ValueType(dtype)
        if found.dtype is kind:
            return x
        return self._made(self._native.cast(kind.code, x), kind, found.rank)

    def scalar(self, value: float) -> int:
        """Add a float32 value without axes."""
        return self._made(self._native.scalar(value), ValueType.FLOAT32, 0)

    def integer(self, value: int | Size) -> int:
        """Add an int64 value without axes."""
        return self._made(self._native.integer(self._size(value)), ValueType.INT64, 0)

    def arange(self, stop: int | Size) -> int:
        """Make the values 0, 1, ... stop - 1, int64."""
        return self._made(self._native.arange(self._size(stop)), ValueType.INT64, 1)
