"""The activations that quantized layers read: each is quantized once, whoever shares it."""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.analysis.bounds import ValueBounds
from octavo.graph.analysis.constants import ConstantLookup, Fixed
from octavo.graph.analysis.dims import Dims
from octavo.graph.analysis.uniform_rows import UniformRows
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.analysis.zero_points import zero_point_for
from octavo.graph.emit.emitter import Emitter
from octavo.graph.emit.rows import (
    QuantizedRows,
    SharedSizes,
    quantize_images,
    quantize_rows,
    quantize_tensor,
)

# Operators that pick as many items as the data has; after them an activation may have no rows.
SELECTIONS = frozenset("NonZero NonMaxSuppression Compress Unique TopK Loop".split())


class Activations:
    """Draws them with `emitter`; `node` tells the graph that the layer is in."""

    def __init__(self, model: ir.Model, emitter: Emitter, constants: ConstantLookup) -> None:
        self.uniform = UniformRows(constants)
        self._emitter, self._bounds = emitter, ValueBounds(Fixed(constants))
        self._maybe_none = any(n.op_type in SELECTIONS for g in graphs_of(model) for n in g)
        self._drawn: dict[tuple[int, int, str], tuple[ir.Value, QuantizedRows]] = {}
        self._casts: dict[tuple[int, int], tuple[ir.Value, ir.Value]] = {}
        self.dims: Dims | None = None
        """Strictly of the model as it was; with it, activations of the same sizes share shapes."""
        self._by_sizes: dict[ir.Graph | ir.Function | None, SharedSizes] = {}

    @property
    def have_rows(self) -> bool:
        """Tell whether any input has a scale for each row: ONNX Runtime's own form has none."""
        return any(kind == "row" for _, _, kind in self._drawn)

    def as_float32(self, x: ir.Value, node: ir.Node, dtype: ir.DataType) -> ir.Value:
        """Return `x` of `dtype` in float32: itself, or a Cast."""
        if dtype is ir.DataType.FLOAT:
            return x
        key = (id(x), id(node.graph))
        if key not in self._casts:
            cast = self._emitter.cast(x, ir.DataType.FLOAT, f"{x.name}_float32")
            self._casts[key] = (x, cast)
        return self._casts[key][1]

    def zero_point(self, x: ir.Value) -> int:
        """Return the constant zero point of the rows (or images) of `x`, by what makes `x`."""
        return zero_point_for(self._bounds(x))

    def per_row(self, x: ir.Value, width: int, node: ir.Node) -> QuantizedRows:
        """Float32 `x` [..., width], with a scale for each row."""
        key = (id(x), id(node.graph), "row")
        if key not in self._drawn:
            if node.graph not in self._by_sizes:
                self._by_sizes[node.graph] = SharedSizes(self._emitter, self.dims)
            rows = quantize_rows(
                self._emitter,
                x,
                width,
                self._by_sizes[node.graph],
                uniform=self.uniform(x),
                maybe_none=self._maybe_none,
                zero_point=self.zero_point(x),
            )
            self._drawn[key] = (x, rows)
        return self._drawn[key][1]

    def per_tensor(self, x: ir.Value, node: ir.Node) -> QuantizedRows:
        """Float32 `x`, with one scale for all of it."""
        key = (id(x), id(node.graph), "tensor")
        if key not in self._drawn:
            self._drawn[key] = (x, quantize_tensor(self._emitter, x))
        return self._drawn[key][1]

    def per_image(self, x: ir.Value, rank: int, node: ir.Node) -> QuantizedRows:
        """Float32 `x` [B, C, ...] of `rank`, with a scale for each image."""
        key = (id(x), id(node.graph), "image")
        if key not in self._drawn:
            self._drawn[key] = (x, quantize_images(self._emitter, x, rank, self.zero_point(x)))
        return self._drawn[key][1]
