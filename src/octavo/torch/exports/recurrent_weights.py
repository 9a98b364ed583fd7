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
from octavo.graph.linear import QuantizedWeightValues
from octavo.torch.exports.drawing import Drawing
from octavo.torch.modules._recurrent_weights import STORAGE, Way

# In which order of PyTorch's gates ONNX has its own; the constants are the way back.
_ORDERS = {
    Kind.LSTM: tuple(int(i) for i in np.argsort(ONNX_LSTM)),
    Kind.GRU: tuple(int(i) for i in np.argsort(ONNX_GRU)),
    Kind.GRU_RESET_FIRST: tuple(int(i) for i in np.argsort(ONNX_GRU)),
}


@dataclass(frozen=True)
class Layer:
    """The directions of one layer, with their stored tensors."""

    ways: Sequence[Way]
    held: Sequence[Mapping[str, Tensor]]
    name: str

    @property
    def first(self) -> Way:
        """The directions differ in nothing but where they begin."""
        return self.ways[0]

    def shaped(self, part: str, d: Drawing) -> ir.Value:
        """float32 [D, gates * hidden, inputs], from integers or 16-bit numbers behind it."""
        n, k = self.first.shapes[part]
        shape = d.emitter.vector([len(self.ways), n, k])
        rows = self._rows(part, d)
        return d.emitter.op("Reshape", [rows, shape], out=f"{self.name}.{part}")

    def _rows(self, part: str, d: Drawing) -> ir.Value:
        name = f"{self.name}.weight_{part}"
        way = self.first
        if way.storage == "int8":
            w = d.once(f"rows {part}", self.stored(), lambda: self._integer_rows(part, d, name))
            return d.dequantized(w, None, 0, f"{name}_float32")
        stored = d.once(f"floats {part}", self.stored(), lambda: self._floats(part, d, name))
        if way.storage == "float32":
            return stored
        return d.emitter.cast(stored, ir.DataType.FLOAT, f"{name}_float32")

    def columns(self, part: str, d: Drawing) -> QuantizedWeightValues:
        """Integers as DynamicQuantizeLSTM has them: [D, inputs, gates * hidden]."""
        (n, k), ways = self.first.shapes[part], len(self.ways)

        def make() -> QuantizedWeightValues:
            q, scale = self._integers(part)
            turned = np.ascontiguousarray(q.reshape(ways, n, k).transpose(0, 2, 1))
            return d.integers(turned, scale.reshape(ways, n), None, f"{self.name}.weight_{part}")

        return d.once(f"columns {part}", self.stored(), make)

    def bias(self, d: Drawing) -> ir.Value | None:
        """[D, 2 * gates * hidden], that of the inputs before that of the state."""
        if not self.first.bias:
            return None

        def make() -> ir.Value:
            both = [
                np.concatenate([self._ordered(held[f"bias_{p}"].numpy(), p) for p in ("ih", "hh")])
                for held in self.held
            ]
            return d.constant(np.stack(both), f"{self.name}.bias")

        return d.once("bias", self.stored(), make)

    def projection(self) -> npt.NDArray[np.float32]:
        """float32 [D, output, hidden]: what `shaped` gives of "hr"."""
        return np.stack([way.weight(held, "hr").numpy() for way, held in self.each()])

    def stored(self) -> list[Tensor]:
        """All its tensors."""
        return [tensor for held in self.held for tensor in held.values()]

    def _integer_rows(self, part: str, d: Drawing, name: str) -> QuantizedWeightValues:
        q, scale = self._integers(part)
        return d.integers(q, scale, None, name, unsigned=False)

    def _floats(self, part: str, d: Drawing, name: str) -> ir.Value:
        weights = [torch.as_tensor(way.weight(held, part)) for way, held in self.each()]
        rows = torch.from_numpy(self._stacked(iter(weights), part))
        return d.constant(rows.to(STORAGE[self.first.storage]), name)

    def _integers(self, part: str) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
        found = [way.integers(held, part) for way, held in self.each()]
        q = self._stacked((q for q, _ in found), part)
        return q, self._stacked((scale for _, scale in found), part)

    def _stacked(self, tensors: Iterator[Tensor], part: str) -> npt.NDArray[Any]:
        return np.concatenate([self._ordered(t.numpy(), part) for t in tensors])

    def each(self) -> Iterator[tuple[Way, Mapping[str, Tensor]]]:
        """The directions, each with its tensors by name."""
        return zip(self.ways, self.held, strict=True)

    def _ordered(self, rows: npt.NDArray[Any], part: str) -> npt.NDArray[Any]:
        order = _ORDERS.get(self.first.kind)
        return rows if order is None or part == "hr" else permute_gates(rows, order)
