"""The operands of a linear operator, and float weights of the model as weights of operators.

A weight is quantized when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import GroupedWeight, QuantizedWeight
from octavo.core.stored_integers import as_int8
from octavo.graph.emit.emitter import Emitter
from octavo.ir.weight import Account, Weight, WeightIntegers
from octavo.onnx.blocks import format_of, is_in_blocks
from octavo.onnx.constants import Constants, Root
from octavo.onnx.kept_integers import Arrange, is_stored, keep, stored_blocks, stored_weight
from octavo.onnx.operators.reader import ReadContext
from octavo.onnx.stored_blocks import StoredBlocks
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
        """Return the shape of the weight, arranged."""
        return constants.shape(self.w) if self.arrangement is None else self.arrangement.shape

    def orientation(self, constants: Constants) -> tuple[Root, bool]:
        """Return where W [K, N] is stored, and whether it is stored as [N, K]."""
        root = constants.root(self.w)
        return root, root.transposed != self.transpose_w


def transposed_input(operands: Operands, x: ir.Value, e: Emitter) -> ir.Value:
    """Swap the last two axes of `x`, which stands for the x of `operands`."""
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


def quantized_rows(
    c: ReadContext,
    key: Any,
    name: str,
    shape: tuple[int, ...],
    rows: Arrange,
    scheme: WeightScheme,
    source: ir.Value,
    *,
    leaf: ir.Value | None = None,
    alpha: float = 1.0,
    axes: int = 1,
) -> Weight:
    """Return a weight of `shape`: `rows` arranges the numbers of `leaf`, a scale for each row.

    `leaf` is `source` by default; the first `axes` of `shape` are the rows. Scales are multiplied
    by `alpha`. All layers that ask for `key` share it.
    """
    account = Account()
    channels, held = shape[:axes], leaf or source

    def make() -> WeightIntegers:
        kept = _kept(c, held, rows, scheme, account)
        if kept is not None:
            return _shaped(kept, shape, channels, alpha)
        axis = 0 if scheme.granularity is Granularity.CHANNEL else None
        array = rows(c.weights.float32(held))
        c.constants.release(held)
        found = c.weights.quantize(array, axis, scheme, name)
        account.signal, account.noise = found.signal, found.noise
        if is_stored(c.constants, held):
            account.changed_rows = len(array)
        return _shaped(_integers(found, int(np.prod(channels))), shape, channels, alpha)

    return c.once(
        ("weight", key),
        lambda: Weight(key, name, shape, c.blaming(make), source=source, account=account),
    )


def _kept(
    c: ReadContext, held: ir.Value, rows: Arrange, scheme: WeightScheme, account: Account
) -> WeightIntegers | None:
    """Return the integers of a weight that the file holds in integers; None for other weights."""
    stored = stored_weight(c.constants, held)
    kept = None if stored is None else keep(stored, rows, zero_points=not scheme.symmetric)
    if kept is None:
        return None
    account.changed_rows = kept.changed
    return kept.integers


def _integers(found: QuantizedWeight, count: int) -> WeightIntegers:
    q, zero = as_int8(found.q, np.broadcast_to(found.qparams.zero_point, count))
    scale = np.broadcast_to(found.qparams.scale, count)
    return WeightIntegers(q, scale, zero if np.any(zero) else None)


def _shaped(
    found: WeightIntegers, shape: tuple[int, ...], channels: tuple[int, ...], alpha: float
) -> WeightIntegers:
    scale = (found.scale * np.float32(alpha)).astype(np.float32).reshape(channels)
    zero = found.zero_point
    zeros = None if zero is None else zero.reshape(channels)
    return WeightIntegers(found.q.reshape(shape), scale, zeros)


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
    """Return the matrix [N, K] of `source`; `root` holds [N, K] if `by_outputs`, else [K, N].

    `shape` is [N, K]; a stored vector is one output, and a table of rank 3 and more is flattened.
    """
    leaf = root.leaf

    def rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if arrangement is not None:
            array = arrangement.make(array)  # [K, N]
        stored = array[None] if array.ndim == 1 else array if by_outputs else array.T
        return np.ascontiguousarray(stored).reshape(shape)

    key = matrix_key(root, graph, scheme, by_outputs=by_outputs, alpha=alpha)
    if arrangement is not None:
        key = (*key, arrangement.key)
    name = leaf.name or "weight"
    if is_in_blocks(scheme):
        whole = by_outputs and arrangement is None
        kept = stored_blocks(c.constants, leaf) if whole else None
        return _grouped_rows(c, key, name, shape, rows, scheme, source, leaf, kept, alpha)
    return quantized_rows(c, key, name, shape, rows, scheme, source, leaf=leaf, alpha=alpha)


def _grouped_rows(
    c: ReadContext,
    key: Any,
    name: str,
    shape: tuple[int, int],
    rows: Arrange,
    scheme: WeightScheme,
    source: ir.Value,
    leaf: ir.Value,
    kept: StoredBlocks | None,
    alpha: float,
) -> Weight:
    """Return a weight in groups; the arguments are those of `quantized_rows`.

    The weight has the integers of `kept` where those have the format of `scheme`.
    """
    account, weight_format = Account(), format_of(scheme)
    assert weight_format is not None

    def make() -> GroupedWeight:
        if kept is not None and kept.format is weight_format:
            found = kept.grouped()
            account.changed_rows, account.rounded_scales = 0, found.rounded
            made = found.weight
        else:
            rounded = c.weights.groups.grouped(rows(c.weights.float32(leaf)), scheme, name)
            c.constants.release(leaf)
            account.signal, account.noise = rounded.signal, rounded.noise
            made = rounded.weight
        return replace(made, channel_scale=made.channel_scale * np.float32(alpha))

    blamed = c.blaming(make)
    return c.once(
        ("weight", key),
        lambda: Weight(
            key, name, shape, blamed, source=source, account=account, format=weight_format
        ),
    )
