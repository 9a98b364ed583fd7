"""Recurrent layers over int8 weights as ai.octavo.LSTM, GRU and RNN.

DynamicQuantizeLSTM(x, W, R, B, ...)                      ->  LSTM
GRU(x, Reshape(DequantizeLinear(W)), ..., B, ...)         ->  GRU; RNN likewise
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.recurrent_weights import MOST_INPUTS, permute_gates
from octavo.core.stored_integers import as_int8
from octavo.graph.lower.recurrent import GATES
from octavo.ir import MS
from octavo.ir.recurrent import OPTIONAL, Recurrent, RecurrentCell
from octavo.ir.weight import Weight, WeightIntegers
from octavo.onnx.from_portable.context import RecognitionContext
from octavo.onnx.from_portable.quantized_rows import made_by
from octavo.onnx.operators.reader import attribute_float, attribute_int, input_at
from octavo.onnx.operators.recurrent_nodes import (
    activations_of,
    direction_of,
    kind_of,
    ways_of,
)

PER_ROW = "activations per row: the operator had one scale a step for the whole batch, or none"


@dataclass(frozen=True)
class _Weight:
    """W or R: int8 [D, gates * H, inputs], gates in ONNX's order, and a scale for each row."""

    q: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]
    value: ir.Value


def recognize(node: ir.Node, t: RecognitionContext) -> bool:
    """Whether `node` was such a layer; it is drawn anew then."""
    op = node.op_type.removeprefix("DynamicQuantize")
    dynamic = op != node.op_type
    if op not in GATES or node.domain not in ((MS,) if dynamic else ("", "ai.onnx")):
        return False
    found = _dynamic(node, t) if dynamic else [_dequantized(node, i, t) for i in (1, 2)]
    w, r = found
    bias, peepholes = input_at(node, 3), input_at(node, 7)
    if w is None or r is None or activations_of(node, op) is None:
        return False
    if attribute_int(node, "input_forget", 0) or (bias and not t.constants.is_constant(bias)):
        return False
    if peepholes is not None and (
        not t.constants.is_constant(peepholes) or np.any(t.numbers(peepholes))
    ):
        return False
    if max(w.q.shape[2], r.q.shape[2]) > MOST_INPUTS:
        return False
    _draw(node, op, w, r, t)
    return True


def _draw(node: ir.Node, op: str, w: _Weight, r: _Weight, t: RecognitionContext) -> None:
    clip = attribute_float(node, "clip", 0.0)
    cell = RecurrentCell(
        kind_of(node, op),
        inputs=w.q.shape[2],
        hidden=r.q.shape[2],
        direction=direction_of(node),
        layout=attribute_int(node, "layout", 0),
        clip=clip if np.isfinite(clip) else 0.0,
    )
    name = (node.name or op).removesuffix("_quant")
    t.names.nodes.free(node.name)
    given = [input_at(node, 4 + i) for i in range(len(OPTIONAL))]
    outs = [(o.name or "") if o.uses() or o.is_graph_output() else "" for o in node.outputs]
    while len(outs) > 1 and not outs[-1]:
        outs.pop()
    x = node.inputs[0]
    assert x is not None
    layer = Recurrent(
        cell,
        x,
        _weight(op, cell, w, t),
        _weight(op, cell, r, t),
        _biases(node, op, cell, t),
        sequence_lens=given[0],
        initial_h=given[1],
        initial_c=given[2],
        count=len(outs),
    )
    results = t.put(layer, name=name, outs=outs)
    t.note(name, PER_ROW)
    t.replace(node, [y if out else None for y, out in zip(results, outs, strict=True)], op)


def _weight(op: str, cell: RecurrentCell, found: _Weight, t: RecognitionContext) -> Weight:
    def make() -> WeightIntegers:
        q, scale = (
            np.stack([permute_gates(way, GATES[op]) for way in rows])
            for rows in (found.q, found.scale)
        )
        return WeightIntegers(q, scale)

    key = ("gates", found.value, cell.kind, found.scale.tobytes())
    name = (found.value.name or "weight").removesuffix("_quantized")
    return t.once(key, lambda: Weight(key, name, found.q.shape, make))


def _dynamic(node: ir.Node, t: RecognitionContext) -> list[_Weight | None]:
    """W [D, I, 4H] and R of a DynamicQuantizeLSTM."""
    found: list[_Weight | None] = []
    for index, first in ((1, 8), (2, 10)):
        value, scale, zero = (input_at(node, i) for i in (index, first, first + 1))
        found.append(_rows(value, scale, zero, t, turned=True))
    return found


def _dequantized(node: ir.Node, index: int, t: RecognitionContext) -> _Weight | None:
    """W or R behind Reshape and DequantizeLinear."""
    shaped = made_by(input_at(node, index), "Reshape")
    rows = None if shaped is None else made_by(shaped.inputs[0], "DequantizeLinear")
    if rows is None or attribute_int(rows, "axis", 1) != 0:
        return None
    found = _rows(rows.inputs[0], rows.inputs[1], input_at(rows, 2), t, turned=False)
    if found is None:
        return None
    q = found.q.reshape(ways_of(node), -1, found.q.shape[-1])
    return _Weight(q, found.scale.reshape(q.shape[:2]), found.value)


def _rows(
    value: ir.Value | None,
    scale: ir.Value | None,
    zero: ir.Value | None,
    t: RecognitionContext,
    *,
    turned: bool,
) -> _Weight | None:
    """Constant integers without zero points, and a scale for each row."""
    if value is None or scale is None:
        return None
    if not all(v is None or t.constants.is_constant(v) for v in (value, scale, zero)):
        return None
    stored = t.numbers(value)
    zeros = np.zeros(1, stored.dtype) if zero is None else t.numbers(zero)
    q, moved = as_int8(stored, zeros)
    if stored.dtype not in (np.int8, np.uint8) or np.any(moved):
        return None
    q = np.ascontiguousarray(q.swapaxes(-1, -2)) if turned else q
    scales = t.numbers(scale)
    if scales.ndim == q.ndim - 2:  # one for each direction
        scales = scales[..., None]
    return _Weight(q, np.broadcast_to(scales, q.shape[:-1]).astype(np.float32), value)


def _biases(
    node: ir.Node, op: str, cell: RecurrentCell, t: RecognitionContext
) -> npt.NDArray[np.float32]:
    """B [D, 2 * gates * H] of the node, with gates in PyTorch's order."""
    value = input_at(node, 3)
    rows = cell.kind.gates * cell.hidden
    held = np.zeros((ways_of(node), 2 * rows), np.float32) if value is None else t.numbers(value)
    return np.stack(
        [np.stack([permute_gates(b, GATES[op]) for b in np.split(way, 2)]) for way in held]
    )
