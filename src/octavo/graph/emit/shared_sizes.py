"""What depends on nothing but sizes is computed once for all activations that have them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from octavo.graph.analysis.dims import Dim, Dims
from octavo.graph.emit.emitter import Emitter

Sizes = tuple[Dim, ...]


# docs/notes/onnxruntime.md: "Shapes and zero points are made once"
class SharedSizes:
    """Shapes and zero points of the activations of one graph.

    Which of them have the same sizes in every run is told by `dims`; without it each is a case of
    its own.
    """

    def __init__(self, emitter: Emitter, dims: Dims | None) -> None:
        self._emitter, self._dims = emitter, dims
        self._made: dict[tuple[str, Sizes], ir.Value] = {}

    def shape(self, x: ir.Value) -> ir.Value:
        """The shape of `x`, an int64 vector."""
        return self._once("shape", self._sizes(x), lambda: self._shape(x))

    def zero_points(self, x: ir.Value, scales: ir.Value, zero_point: int) -> ir.Value:
        """`zero_point` in uint8 as often as there are rows in `x`: as in the vector `scales`."""
        rows = None if (sizes := self._sizes(x)) is None else sizes[:-1]
        name = f"{x.name}_zeros"
        number = ir.tensor([zero_point], ir.DataType.UINT8)

        def make() -> ir.Value:
            count = self._shape(scales)
            return self._emitter.op("ConstantOfShape", [count], out=name, value=number)

        return self._once(f"zero points {zero_point}", rows, make)

    def _shape(self, x: ir.Value) -> ir.Value:
        return self._emitter.op("Shape", [x], out=f"{x.name}_shape")

    def _sizes(self, x: ir.Value) -> Sizes | None:
        sizes = None if self._dims is None else self._dims(x)
        return None if sizes is None or None in sizes else sizes

    def _once(self, what: str, sizes: Sizes | None, make: Callable[[], ir.Value]) -> ir.Value:
        if sizes is None:
            return make()
        if (what, sizes) not in self._made:
            self._made[what, sizes] = make()
        return self._made[what, sizes]
