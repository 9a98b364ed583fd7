"""Float weights of the model as the weights of operators: quantized when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.integers import as_int8
from octavo.core.kernels import QuantizedWeight
from octavo.ir.weight import Account, Weight, WeightIntegers
from octavo.onnx.constants import Root
from octavo.onnx.operators.operands import Arrangement
from octavo.onnx.operators.reader import ReadContext
from octavo.recipe import Granularity, WeightScheme

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
