"""LSTM, GRU and RNN.

    LSTM(X, W, R, B, ...)  ->  LSTM(X, W, R, biases, ...) of ai.octavo, for target native
    LSTM(X, W, R, B, ...)  ->  DynamicQuantizeLSTM: `stock_lstm`

W and R have one scale for each row, symmetric; x and h are quantized row by row. Layouts,
directions, lengths and initial states are the operator's own. Stock ONNX Runtime has no int8
operator for GRU and RNN, so that they stay float in the portable target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.qparams import QType
from octavo.core.recurrent_weights import permute_gates
from octavo.graph.lower.recurrent import GATES
from octavo.ir.recurrent import OPTIONAL, Recurrent, RecurrentCell
from octavo.ir.weight import Weight
from octavo.onnx.constants import Constants
from octavo.onnx.operators import stock_lstm
from octavo.onnx.operators.operands import quantized_rows
from octavo.onnx.operators.reader import (
    Drawn,
    ReadContext,
    Reader,
    attribute_float,
    attribute_int,
    by_channels,
    input_at,
    is_float_type,
)
from octavo.onnx.operators.recurrent_nodes import direction_of, kind_of, refused, ways_of
from octavo.recipe import Granularity, Kind, Scheme


class RecurrentReader(Reader):
    """W [D, gates * H, I], R [D, gates * H, H]."""

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        found = tuple(v for v in node.inputs[1:3] if v is not None and constants.is_constant(v))
        if not found or not all(is_float_type(constants.dtype(v)) for v in found):
            return None
        return found

    def takes_native(self, node: ir.Node, scheme: Scheme, c: ReadContext) -> bool:
        # ONNX Runtime's own operators quantize activations too, or are not there at all.
        return True

    def held_native(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        weights_only = scheme.activation is None
        scheme, notes = by_channels(scheme, "recurrent layers")
        if weights_only and not notes:
            notes.append("activations per row: the kernels of recurrent layers take integers")
        scheme, more = super().held_native(scheme)
        notes += more
        a, w = scheme.activation, scheme.weight
        assert a is not None and w is not None
        if a.granularity is Granularity.GROUP:
            notes.append(f"activations per row: recurrent layers have no groups of {a.group}")
            a = replace(a, granularity=Granularity.ROW, group=None)
        if w.granularity is not Granularity.CHANNEL:
            notes.append("weights per channel: recurrent layers know no other")
            w = replace(w, granularity=Granularity.CHANNEL, observer="minmax", block=None)
        if w.qtype is not QType.INT8 or not w.symmetric:
            notes.append("symmetric int8 weights: recurrent layers know no other")
            w = replace(w, qtype=QType.INT8, symmetric=True)
        return Scheme(w, a), notes

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        if native:
            return refused(node, c)
        return f"stock ONNX Runtime has no int8 {self.op}; recipe float16 halves its file size"

    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        assert native, f"{self.op} has no stock form and check() says so"
        return _Layer(node, scheme, c, name).draw()


class GruReader(RecurrentReader):
    """Three gates."""

    op = "GRU"
    kind = Kind.GRU


class RnnReader(RecurrentReader):
    """One gate."""

    op = "RNN"
    kind = Kind.RNN


class LstmReader(RecurrentReader):
    """Four gates."""

    op = "LSTM"
    kind = Kind.LSTM

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        if native:
            return refused(node, c)
        for index, letter in ((1, "W"), (2, "R")):
            value = node.inputs[index]
            if value is None or not c.constants.is_constant(value):
                return f"its {letter} is computed while the model runs"
            if len(c.constants.shape(value)) != 3:
                return f"its {letter} has rank {len(c.constants.shape(value))}, not 3"
        if c.qdq:
            return "a DequantizeLinear in front of an LSTM would run at every step"
        return None

    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        if native:
            return super().read(node, scheme, c, name, native=native)
        return stock_lstm.draw(node, scheme, c, name)


class _Layer:
    """One node while it is read."""

    def __init__(self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str) -> None:
        self.node, self.scheme, self.c, self.name = node, scheme, c, name
        w, r = node.inputs[1], node.inputs[2]
        assert w is not None and r is not None
        self.dtype = c.constants.dtype(w) or ir.DataType.FLOAT
        self.order = GATES[node.op_type]
        self.coupled = node.op_type == "LSTM" and attribute_int(node, "input_forget", 0) != 0
        clip = attribute_float(node, "clip", 0.0)
        self.cell = RecurrentCell(
            kind_of(node),
            inputs=c.constants.shape(w)[2],
            hidden=c.constants.shape(r)[2],
            direction=direction_of(node),
            layout=attribute_int(node, "layout", 0),
            clip=clip if np.isfinite(clip) else 0.0,
        )

    def draw(self) -> Drawn:
        """Build the operator, with Casts around it where the model is not float32."""
        c, node = self.c, self.node
        x, rest = node.inputs[0], {n: input_at(node, 4 + i) for i, n in enumerate(OPTIONAL)}
        assert x is not None
        given = {
            n: v if n == "sequence_lens" else c.as_float32(v, node, self.dtype)
            for n, v in rest.items()
            if v is not None
        }
        w, r = self._weight(1), self._weight(2)
        names = self._wanted()
        x32 = c.as_float32(x, node, self.dtype)
        layer = Recurrent(self.cell, x32, w, r, self._biases(), **given, count=len(names))
        plain = self.dtype is ir.DataType.FLOAT
        outs = [n if plain or not n else f"{n}_raw" for n in names]
        results = c.put(layer, name=self.name, outs=outs)
        outputs = [
            c.from_float32(y, self.dtype, n) if n else None
            for y, n in zip(results, names, strict=True)
        ]
        return Drawn(outputs, [w.account, r.account])

    def _wanted(self) -> list[str]:
        """Return the outputs that something reads, "" for others: they are not computed."""
        names = [
            (o.name or self.name) if o.uses() or o.is_graph_output() else ""
            for o in self.node.outputs
        ]
        while len(names) > 1 and not names[-1]:
            names.pop()
        return names

    def _weight(self, index: int) -> Weight:
        """W (1) or R (2) [D, gates * H, inputs], quantized row by row."""
        c, value = self.c, self.node.inputs[index]
        assert value is not None and self.scheme.weight is not None
        shape = c.constants.shape(value)

        def rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([self._in_order(direction) for direction in array.reshape(shape)])

        root = c.constants.root(value)
        graph, kind = self.node.graph, self.cell.kind
        key = ("gates", root.key, root.transposed, kind, self.coupled, graph)
        name = value.name or "weight"
        return quantized_rows(c, key, name, shape, rows, self.scheme.weight, value, axes=2)

    def _in_order(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Rows of one direction with their gates in PyTorch's order: i f n o, r z n.

        With input_forget, f is 1 - i: the sigmoid of the opposite sum.
        """
        ordered = permute_gates(rows, self.order)
        if self.coupled:
            hidden = self.cell.hidden
            ordered[hidden : 2 * hidden] = -ordered[:hidden]
        return ordered

    def _biases(self) -> npt.NDArray[np.float32]:
        """B [D, 2 * gates * H] of the node as [D, 2, gates * H]."""
        value = input_at(self.node, 3)
        rows = self.cell.kind.gates * self.cell.hidden
        stored = np.zeros((ways_of(self.node), 2 * rows), np.float32)
        if value is not None:
            stored = self.c.weights.float32(value)
        return np.stack([np.stack([self._in_order(b) for b in np.split(way, 2)]) for way in stored])
