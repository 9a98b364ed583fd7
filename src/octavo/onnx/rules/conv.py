"""Conv with constant weights, when asked for: it is float by default, because it does not win.

    Conv(x, W, b)  ->  quantize per image, ConvInteger (uint8 weights around 128), Cast,
                       Mul(scales), Mul(image scale), Add(b)

uint8 weights, the int8 ones plus 128, because ONNX Runtime's ConvInteger with int8 ones runs at a
quarter of the float speed, and not at all before 1.24.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.core.qtype import QType
from octavo.graph.conv import conv_integer
from octavo.graph.linear import QuantizedWeightValues
from octavo.onnx.constants import Constants
from octavo.onnx.rule import (
    Context,
    Drawn,
    Rule,
    attributes_of,
    exact_inputs,
    input_at,
    is_float_type,
)
from octavo.onnx.weights import Stats
from octavo.recipe import Granularity, Kind, Scheme


def reference(
    x: npt.NDArray[Any], q: npt.NDArray[Any], scale: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """1x1 convolution as drawn, float64: x [B, C, P], q [M, C] around 0, scale [M] -> [B, M, P]."""
    x64 = np.asarray(x, np.float64)
    r = np.abs(x64).max(axis=(1, 2), keepdims=True)
    steps = np.where(r > 0, np.rint(127 * x64 / np.where(r > 0, r, 1)), 0)
    y: npt.NDArray[np.float64] = np.einsum("mc,bcp->bmp", q.astype(np.float64), steps)
    held: npt.NDArray[np.float64] = y * np.asarray(scale, np.float64)[None, :, None] * (r / 127)
    return held


class ConvRule(Rule):
    """W [M, C/group, k...]."""

    op = "Conv"
    kind = Kind.CONV

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        w = node.inputs[1]
        if w is None or not constants.is_constant(w) or not is_float_type(constants.dtype(w)):
            return None
        return (w,)

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        w = node.inputs[1]
        assert w is not None
        if context.qdq or scheme.activation is None:
            return "a convolution is held with int8 activations or not at all"
        shape = context.constants.shape(w)
        if 0 in shape:
            return f"its weight has no elements: shape {list(shape)}"
        inputs, most = int(np.prod(shape[1:])), exact_inputs(scheme)
        if inputs > most:
            return f"each output is a sum of {inputs} products: int32 would overflow above {most}"
        return None

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        e = context.emitter
        x, w_value = node.inputs[0], node.inputs[1]
        assert x is not None and w_value is not None and scheme.weight is not None
        assert scheme.activation is not None
        dtype = context.constants.dtype(w_value) or ir.DataType.FLOAT
        rank = len(context.constants.shape(w_value))
        per_image = scheme.activation.granularity is not Granularity.TENSOR
        w, stats, notes = _weight(w_value, scheme, context)
        x32 = context.as_float32(x, node, dtype)
        activations = context.activations
        image = (
            activations.per_image(x32, rank, node)
            if per_image
            else activations.per_tensor(x32, node)
        )
        bias, out = input_at(node, 2), node.outputs[0].name or name
        if bias is not None:
            bias = context.as_float32(bias, node, dtype)
            shape = e.vector([1, -1] + [1] * (rank - 2))
            bias = e.op("Reshape", [bias, shape], out=f"{out}_bias_reshape_output")
        wide = out if dtype is ir.DataType.FLOAT else f"{out}_float32"
        y = conv_integer(e, image, w, bias, attributes_of(node), name=name, out=wide)
        if dtype is not ir.DataType.FLOAT:
            y = context.from_float32(y, dtype, out)
        return Drawn([y], [stats], notes)

    def macs_per_row(self, weights: Any) -> int | None:
        return None  # depends on the image's size


def _weight(
    value: ir.Value, scheme: Scheme, context: Context
) -> tuple[QuantizedWeightValues, Stats | None, list[str]]:
    """The filters in one integer tensor; scale [M, 1, 1, ...] beside the output [B, M, ...]."""
    assert scheme.weight is not None
    notes: list[str] = []
    w_scheme = scheme.weight
    if not w_scheme.symmetric and w_scheme.granularity is not Granularity.TENSOR:
        w_scheme = replace(w_scheme, symmetric=True)
        notes.append("symmetric weights: ConvInteger has one zero point for all channels")
    w_scheme = replace(w_scheme, qtype=QType.UINT8)
    if w_scheme.granularity is Granularity.BLOCK:
        w_scheme = replace(w_scheme, granularity=Granularity.CHANNEL, block=None)
        notes.append("weights per channel: ConvInteger has no blocks")
    per_channel = w_scheme.granularity is Granularity.CHANNEL
    shape = context.constants.shape(value)

    def make() -> tuple[npt.NDArray[np.float32], int | None]:
        array = context.weights.float32(value)
        context.constants.release(value)
        return array, 0 if per_channel else None

    def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
        scale, zero = w.qparams.scale, w.qparams.zero_point.astype(w.q.dtype)
        column = (shape[0],) + (1,) * (len(shape) - 2) if per_channel else ()
        return w.q, scale.reshape(column), zero[:1].reshape(())

    key = ("filters", context.constants.root(value).key)
    w, stats = context.weights.custom(key, value.name or "weight", make, finish, w_scheme)
    return w, stats, notes
