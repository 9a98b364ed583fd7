"""The operands of a linear operator, and float weights of the model as weights of operators.

A weight is quantized when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.core.stored_integers import as_int8
from octavo.graph.emit.emitter import Emitter
from octavo.ir.weight import Account, Weight, WeightIntegers
from octavo.onnx.constants import Constants, Root
from octavo.onnx.operators.reader import ReadContext
from octavo.recipe import Granularity, WeightScheme


@dataclass(frozen=True)
class Arrangement:
    """How a matrix [K, N] is made of stored numbers that are none; equal `key`s make equal ones."""

    shape: tuple[int, int]
    make: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    key: Hashable


Step = Callable[[Emitter, ir.Value, str], ir.Value]
"""Draws what stands between a node's value and a product's, under a name."""


@dataclass(frozen=True)
class Operands:
    """y = alpha * x @ W + beta * bias; W is `w`, or its last two axes swapped, or arranged.

    `before` makes the product's x, [..., K], of the node's; `after` the node's y of [..., N].
    """

    x: ir.Value
    w: ir.Value
    transpose_x: bool = False
    transpose_w: bool = False
    alpha: float = 1.0
    bias: ir.Value | None = None
    beta: float = 1.0
    arrangement: Arrangement | None = None
    before: Step | None = None
    after: Step | None = None

    def shape(self, constants: Constants) -> tuple[int, ...]:
        """That of the weight, arranged."""
        return constants.shape(self.w) if self.arrangement is None else self.arrangement.shape

    def orientation(self, constants: Constants) -> tuple[Root, bool]:
        """Where W [K, N] is stored, and whether it is stored as [N, K]."""
        root = constants.root(self.w)
        return root, root.transposed != self.transpose_w


def transposed_input(operands: Operands, x: ir.Value, e: Emitter) -> ir.Value:
    """`x`, which stands for that of `operands`, with its last two axes swapped."""
    rank = 2 if operands.x.shape is None else len(operands.x.shape)
    if rank == 1:  # ONNX Runtime's FusedMatMul leaves a vector as it is
        return x
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return e.transpose(x, perm, f"{x.name}_transposed")


def inputs_of(shape: Sequence[int], transposed: bool) -> int:
    """K of a weight of `shape`."""
    if len(shape) == 1:
        return shape[0]
    return shape[-1] if transposed else shape[-2]


Rows = npt.NDArray[np.float32]


def quantized_rows(
    c: ReadContext,
    key: Any,
    name: str,
    shape: tuple[int, ...],
    rows: Callable[[], Rows],
    scheme: WeightScheme,
    source: ir.Value,
    *,
    alpha: float = 1.0,
    axes: int = 1,
) -> Weight:
    """A weight of `shape` from float32 `rows`, whose first `axes` have a scale for each entry.

    Scales are multiplied by `alpha`. All layers that ask for `key` share it.
    """
    account = Account()
    channels = shape[:axes]

    def make() -> WeightIntegers:
        axis = 0 if scheme.granularity is Granularity.CHANNEL else None
        found = c.weights.quantize(rows(), axis, scheme, name)
        account.signal, account.noise = found.signal, found.noise
        return _integers(found, shape, channels, alpha)

    return c.once(
        ("weight", key),
        lambda: Weight(key, name, shape, c.blaming(make), source=source, account=account),
    )


def _integers(
    found: QuantizedWeight, shape: tuple[int, ...], channels: tuple[int, ...], alpha: float
) -> WeightIntegers:
    count = int(np.prod(channels))
    q, zero = as_int8(found.q, np.broadcast_to(found.qparams.zero_point, count))
    scale = np.broadcast_to(found.qparams.scale, count) * np.float32(alpha)
    zeros = zero.reshape(channels) if np.any(zero) else None
    return WeightIntegers(q.reshape(shape), scale.astype(np.float32).reshape(channels), zeros)


def matrix_key(
    root: Root, graph: ir.Graph | None, scheme: WeightScheme, *, by_outputs: bool, alpha: float = 1
) -> Any:
    """Equal for uses of a matrix that are one tensor in a native file."""
    return ("packed", root.key, by_outputs, alpha, scheme, graph)


def native_matrix(
    c: ReadContext,
    source: ir.Value,
    root: Root,
    shape: tuple[int, int],
    graph: ir.Graph | None,
    scheme: WeightScheme,
    *,
    by_outputs: bool,
    alpha: float = 1.0,
    arrangement: Arrangement | None = None,
) -> Weight:
    """The matrix [N, K] of `source`, which `root` holds: as [N, K] if `by_outputs`, else as [K, N].

    `shape` is [N, K]; a stored vector is one output, and a table of rank 3 and more is flattened.
    """
    leaf = root.leaf

    def rows() -> Rows:
        array = c.weights.float32(leaf)
        if arrangement is not None:
            array = arrangement.make(array)  # [K, N]
        stored = array[None] if array.ndim == 1 else array if by_outputs else array.T
        c.constants.release(leaf)
        return np.ascontiguousarray(stored).reshape(shape)

    key = matrix_key(root, graph, scheme, by_outputs=by_outputs, alpha=alpha)
    if arrangement is not None:
        key = (*key, arrangement.key)
    return quantized_rows(c, key, leaf.name or "weight", shape, rows, scheme, source, alpha=alpha)
