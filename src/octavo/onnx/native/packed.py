"""A matrix as kernels read it, stored once for all nodes of a graph that use it alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.graph.native.linear import PackedValues, packed_tensor
from octavo.onnx.constants import Root
from octavo.onnx.rule import Context
from octavo.onnx.weights import Stats
from octavo.recipe import Granularity, WeightScheme


@dataclass(frozen=True)
class PackedUse:
    """A weight [n, k] that a node of `graph` wants packed, its scales times `alpha`.

    `by_outputs`: it is stored as [n, k], else as [k, n].
    """

    root: Root
    n: int
    k: int
    by_outputs: bool
    scheme: WeightScheme
    graph: ir.Graph | None
    alpha: float = 1.0

    @property
    def key(self) -> Any:
        """Equal for uses that are one tensor in the file."""
        return ("packed", self.root.key, self.by_outputs, self.alpha, self.scheme, self.graph)


def hold_packed(use: PackedUse, context: Context) -> tuple[PackedValues, Stats | None]:
    """The weight in the graph, and its statistics where it is new."""
    constants, store = context.constants, context.weights
    leaf, n = use.root.leaf, use.n
    per_channel = use.scheme.granularity is Granularity.CHANNEL

    def make() -> tuple[npt.NDArray[np.float32], int | None]:
        array = store.float32(leaf)
        matrix = array[None] if array.ndim == 1 else array if use.by_outputs else array.T
        constants.release(leaf)
        return np.ascontiguousarray(matrix), 0 if per_channel else None

    def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
        q, zero = as_int8(w.q, np.broadcast_to(w.qparams.zero_point, n))
        packed, context.checksums[use.key] = packed_tensor(q)
        scale = np.broadcast_to(w.qparams.scale, n) * np.float32(use.alpha)
        return packed, scale.astype(np.float32), zero

    name = leaf.name or "weight"
    w, stats = store.custom(use.key, name, make, finish, use.scheme, use.graph)
    digest = context.checksums[use.key]
    return PackedValues(w.q, w.scale, w.zero_point, n, use.k, digest), stats


def as_int8(
    q: npt.NDArray[Any], zero_point: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    """Integers and zero points as int8: uint8 ones lie 128 higher."""
    if q.dtype == np.uint8:
        moved = np.ascontiguousarray(q).view(np.uint8) ^ np.uint8(128)
        return moved.view(np.int8), (np.asarray(zero_point, np.int32) - 128).astype(np.int8)
    return np.asarray(q, np.int8), np.asarray(zero_point).astype(np.int8)
