"""Weights of one layer of a recurrent stack in ONNX's order of gates.

W [D, gates * hidden, inputs] and R [D, gates * hidden, output] are kept as matrices of all their
rows, so that each row has its scale along axis 0: the same integers for every form below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import Tensor

from octavo.core.recurrent_weights import ONNX_GRU, ONNX_LSTM, Kind, permute_gates
from octavo.graph.lower.products import dequantize
from octavo.ir.weight import QuantizedWeightValues
from octavo.torch.exports.reading import ExportContext
from octavo.torch.layers.recurrent_weights import STORAGE, DirectionForm

# In which order of PyTorch's gates ONNX has its own; the constants are the way back.
_ORDERS = {
    Kind.LSTM: tuple(int(i) for i in np.argsort(ONNX_LSTM)),
    Kind.GRU: tuple(int(i) for i in np.argsort(ONNX_GRU)),
    Kind.GRU_RESET_FIRST: tuple(int(i) for i in np.argsort(ONNX_GRU)),
}


@dataclass(frozen=True)
class StackLayer:
    """The directions of one layer, with their stored tensors."""

    ways: Sequence[DirectionForm]
    held: Sequence[Mapping[str, Tensor]]
    name: str

    @property
    def first(self) -> DirectionForm:
        """The directions differ in nothing but where they begin."""
        return self.ways[0]

    def shaped(self, part: str, c: ExportContext) -> ir.Value:
        """float32 [D, gates * hidden, inputs], from integers or 16-bit numbers behind it."""
        n, k = self.first.shapes[part]
        shape = c.emitter.vector([len(self.ways), n, k])
        rows = self._rows(part, c)
        return c.emitter.op("Reshape", [rows, shape], out=f"{self.name}.{part}")

    def _rows(self, part: str, c: ExportContext) -> ir.Value:
        name = f"{self.name}.weight_{part}"
        way = self.first
        if way.storage == "int8":
            w = c.of_tensors(
                f"rows {part}", self.stored(), lambda: self._integer_rows(part, c, name)
            )
            return dequantize(c.emitter, w, out=f"{name}_float32", axis=0)
        stored = c.of_tensors(f"floats {part}", self.stored(), lambda: self._floats(part, c, name))
        if way.storage == "float32":
            return stored
        return c.emitter.cast(stored, ir.DataType.FLOAT, f"{name}_float32")

    def biases(self) -> npt.NDArray[np.float32]:
        """Return the biases [D, 2, gates * hidden], x's and the state's in PyTorch's order.

        They are zeros for a layer without biases.
        """
        rows = self.first.kind.gates * self.first.hidden
        if not self.first.bias:
            return np.zeros((len(self.held), 2, rows), np.float32)
        both = ([held[f"bias_{part}"].numpy() for part in ("ih", "hh")] for held in self.held)
        return np.stack([np.stack(pair) for pair in both])

    def bias(self, c: ExportContext) -> ir.Value | None:
        """Return the bias [D, 2 * gates * hidden], that of the inputs before that of the state."""
        if not self.first.bias:
            return None

        def make() -> ir.Value:
            both = [
                np.concatenate([self._ordered(held[f"bias_{p}"].numpy(), p) for p in ("ih", "hh")])
                for held in self.held
            ]
            return c.hold(np.stack(both), f"{self.name}.bias")

        return c.of_tensors("bias", self.stored(), make)

    def projection(self) -> npt.NDArray[np.float32]:
        """float32 [D, output, hidden]: what `shaped` gives of "hr"."""
        return np.stack([way.weight(held, "hr").numpy() for way, held in self.each()])

    def stored(self) -> list[Tensor]:
        """Return all stored tensors of the layer."""
        return [tensor for held in self.held for tensor in held.values()]

    def _integer_rows(self, part: str, c: ExportContext, name: str) -> QuantizedWeightValues:
        found = [way.integers(held, part) for way, held in self.each()]
        q = self._stacked((q for q, _ in found), part)
        scale = self._stacked((scale for _, scale in found), part)
        zeros = np.zeros(scale.shape, np.int8)
        parts = ((q, "quantized"), (scale, "scale"), (zeros, "zero_point"))
        return QuantizedWeightValues(*(c.hold(a, f"{name}_{what}") for a, what in parts))

    def _floats(self, part: str, c: ExportContext, name: str) -> ir.Value:
        weights = [torch.as_tensor(way.weight(held, part)) for way, held in self.each()]
        rows = torch.from_numpy(self._stacked(iter(weights), part))
        return c.hold(rows.to(STORAGE[self.first.storage]), name)

    def _stacked(self, tensors: Iterator[Tensor], part: str) -> npt.NDArray[Any]:
        return np.concatenate([self._ordered(t.numpy(), part) for t in tensors])

    def each(self) -> Iterator[tuple[DirectionForm, Mapping[str, Tensor]]]:
        """Return an iterator over the directions, each with its tensors by name."""
        return zip(self.ways, self.held, strict=True)

    def _ordered(self, rows: npt.NDArray[Any], part: str) -> npt.NDArray[Any]:
        order = _ORDERS.get(self.first.kind)
        return rows if order is None or part == "hr" else permute_gates(rows, order)
