"""LSTM as ONNX Runtime's own operator.

    LSTM(X, W, R, B, ...)  ->  com.microsoft.DynamicQuantizeLSTM: int8 W and R, a scale a gate unit

It has peepholes and activations that the kernels of target native have not. It has no batch-first
layout, so `layout=1` gets Transposes around it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.core.qparams import QType
from octavo.graph.lower.products import dynamic_quantize_lstm
from octavo.graph.lower.recurrent import PER_STEP_NOTE
from octavo.ir.weight import Account, QuantizedWeightValues
from octavo.onnx.blocks import is_in_blocks, without_blocks
from octavo.onnx.operators.reader import Drawn, ReadContext, attribute_int, attributes_of, input_at
from octavo.recipe import Granularity, Scheme


def reference(w: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the weight the operator computes with: w [D, 4H, I], one scale a row, float64."""
    w64 = np.asarray(w, np.float64)
    scale = np.abs(w64).max(axis=-1, keepdims=True) / 127.0
    scale[scale == 0] = 1.0
    held: npt.NDArray[np.float64] = np.clip(np.rint(w64 / scale), -127, 127) * scale
    return held


# docs/notes/onnxruntime.md: "LSTM has one activation scale a step"
def draw(node: ir.Node, scheme: Scheme, c: ReadContext, name: str) -> Drawn:
    """Build the operator and the nodes around it."""
    scheme, notes = _operator_scheme(scheme, c)
    e = c.emitter
    x, w_value, r_value = node.inputs[0], node.inputs[1], node.inputs[2]
    assert x is not None and w_value is not None and r_value is not None
    dtype = c.constants.dtype(w_value) or ir.DataType.FLOAT
    batch_first = attribute_int(node, "layout", 0) == 1
    w, w_stats = _gates(w_value, scheme, c)
    r, r_stats = _gates(r_value, scheme, c)

    def fed(value: ir.Value | None, *, state: bool) -> ir.Value | None:
        if value is None:
            return None
        value = c.as_float32(value, node, dtype)
        return e.transpose(value, [1, 0, 2], f"{value.name}_time_first") if state else value

    sequence = fed(x, state=batch_first)
    rest = [
        fed(input_at(node, 3), state=False),
        input_at(node, 4),
        fed(input_at(node, 5), state=batch_first),
        fed(input_at(node, 6), state=batch_first),
        fed(input_at(node, 7), state=False),
    ]
    plain = dtype is ir.DataType.FLOAT and not batch_first
    names = [o.name or f"{name}_{i}" for i, o in enumerate(node.outputs)]
    outs = [n if plain else f"{n}_raw" for n in names]
    assert sequence is not None
    results: list[ir.Value | None] = list(
        dynamic_quantize_lstm(
            e,
            sequence,
            w,
            r,
            rest,
            attributes_of(node, without=("layout",)),
            name=name if scheme_keeps_name(scheme) else f"{name}_quant",
            outs=outs,
        )
    )
    if not plain:
        results = [
            _finished(c, y, n, i, dtype, batch_first)
            if y is not None and (node.outputs[i].uses() or node.outputs[i].is_graph_output())
            else None
            for i, (y, n) in enumerate(zip(results, names, strict=True))
        ]
    return Drawn(results, [w_stats, r_stats], notes)


def scheme_keeps_name(scheme: Scheme) -> bool:
    """Activations per tensor follow ONNX Runtime's quantize_dynamic, which renames the node."""
    return scheme.activation is None or scheme.activation.granularity is not Granularity.TENSOR


def _operator_scheme(scheme: Scheme, c: ReadContext) -> tuple[Scheme, list[str]]:
    """Return what the operator can hold of the scheme, and notes on what it cannot."""
    notes = []
    a, w = scheme.activation, scheme.weight
    assert w is not None
    if is_in_blocks(w):
        w = without_blocks(w)
        notes.append("weights per channel: the operator has no blocks")
    if w.granularity is Granularity.CHANNEL and not w.symmetric:
        w = replace(w, symmetric=True)
        notes.append("symmetric weights: the operator has no zero point a unit")
    if a is None or a.granularity is not Granularity.TENSOR:
        notes.append(PER_STEP_NOTE)
    elif w.qtype is QType.UINT8:
        w = replace(w, qtype=QType.INT8, symmetric=True)
        notes.append("int8 weights, as in ONNX Runtime's quantize_dynamic, which knows no other")
    held = c.weight_scheme_for_cpu(Scheme(w, a or Scheme().activation))
    return held, notes


def _gates(
    value: ir.Value, scheme: Scheme, c: ReadContext
) -> tuple[QuantizedWeightValues, Account | None]:
    """Quantize gates [D, 4H, I] per gate unit, stored as the operator wants them: [D, I, 4H]."""
    assert scheme.weight is not None
    per_channel = scheme.weight.granularity is Granularity.CHANNEL
    directions, gates, inputs = c.constants.shape(value)
    root = c.constants.root(value)

    def make() -> tuple[npt.NDArray[np.float32], int | None]:
        array = c.weights.float32(value).reshape(directions, gates, inputs)
        c.constants.release(value)
        if per_channel:
            return array.reshape(directions * gates, inputs), 0
        return array.reshape(directions, gates * inputs), 0

    def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
        q = w.q.reshape(directions, gates, inputs).transpose(0, 2, 1)
        shape = (directions, gates) if per_channel else (directions,)
        zero = w.qparams.zero_point.astype(w.q.dtype).reshape(shape)
        return np.ascontiguousarray(q), w.qparams.scale.reshape(shape), zero

    key = ("gates", root.key, root.transposed)
    return c.weights.custom(key, value.name or "weight", make, finish, scheme.weight)


def _finished(
    c: ReadContext, y: ir.Value, name: str, index: int, dtype: ir.DataType, batch_first: bool
) -> ir.Value:
    """Convert an output, Y [T, D, B, H], Y_h or Y_c [D, B, H], to the layer's layout and type."""
    half = dtype is not ir.DataType.FLOAT
    if batch_first:
        perm = [2, 0, 1, 3] if index == 0 else [1, 0, 2]
        y = c.emitter.transpose(y, perm, f"{name}_batch_first" if half else name)
    return c.from_float32(y, dtype, name) if half else y
