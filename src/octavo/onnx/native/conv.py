"""Conv with constant filters over one or two axes, as ai.octavo.Conv.

Conv(x, W, b)  ->  Conv(x, W packed, scale, b)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.core.qtype import QType
from octavo.graph.native.conv import FilterValues, conv, filters_tensor
from octavo.onnx.native.form import NativeForm, without_blocks
from octavo.onnx.rule import Context, Drawn, attribute_int, attributes_of, input_at
from octavo.onnx.weights import Stats
from octavo.recipe import ActivationScheme, Granularity, Scheme

AXES = (1, 2)
LEAST_INPUTS, LEAST_OUTPUTS, LEAST_POINTWISE = 64, 16, 64
SIGNAL_TAPS = 64  # of a filter over one channel, from which on it is no picture that it sees


def reference(
    x: npt.NDArray[Any],
    q: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    pads: Sequence[int] | None = None,
) -> npt.NDArray[np.float64]:
    """What the operator computes with stride 1, one group and no activation, in float64.

    x [B, C, ...], q int8 [M, C, ...], scale and bias [M] -> [B, M, ...]. Each image becomes uint8
    over a range widened to 0; `pads`, all begins and then all ends, add its zero. An image that
    holds NaN or infinity gives NaN.
    """
    x64 = np.asarray(x, np.float64)
    axes = x64.ndim - 2
    every = tuple(range(1, x64.ndim))
    with np.errstate(invalid="ignore"):
        low = np.minimum(x64.min(axis=every, keepdims=True), 0.0)
        high = np.maximum(x64.max(axis=every, keepdims=True), 0.0)
        step = (high - low) / 255.0
        step = np.where(step < 1e-30, 1.0, step)
        zero = np.clip(np.rint(-low / step), 0, 255)
        held = (np.clip(np.rint(x64 / step) + zero, 0, 255) - zero) * step
    around = pads or [0] * (2 * axes)
    held = np.pad(held, [(0, 0), (0, 0), *zip(around[:axes], around[axes:], strict=True)])
    w = q * np.asarray(scale, np.float64).reshape(-1, *[1] * (q.ndim - 1))
    spatial = tuple(range(2, x64.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(held, q.shape[2:], spatial)
    kernel_axes = tuple(range(x64.ndim, x64.ndim + axes))
    y = np.tensordot(windows, w, ((1, *kernel_axes), (1, *spatial)))
    y = np.moveaxis(y, -1, 1) + np.asarray(bias, np.float64).reshape(-1, *[1] * axes)
    finite = np.isfinite(x64).all(axis=every, keepdims=True)
    return np.where(finite, y, np.nan)


def worth(shape: Sequence[int], group: int) -> str | None:
    """Why filters of `shape` [M, C / group, ...] stay float unless asked for, or None.

    Where they win was measured on one thread with AMX, against ONNX Runtime's float convolution
    over images of 7 x 7 to 112 x 112 and rows of 4 to 2048: from 64 inputs a sum and 16 outputs a
    group on (pointwise ones from 64 of each) as fast to six times as fast, below and for filters
    over one channel 0.4 to 1.6 times.
    """
    outputs, channels, taps = shape[0] // group, shape[1], prod(shape[2:])
    ask = "is float by default, as integers gain it nothing; ask for it with --ops Conv"
    if len(shape) - 2 not in AXES:
        return f"a convolution over {len(shape) - 2} axes {ask}"
    if channels == 1 and group == 1 and taps >= SIGNAL_TAPS:
        return f"a convolution over one raw signal ({taps} taps, as of a Fourier transform) {ask}"
    if channels == 1:
        return f"a convolution whose filters see one channel each {ask}"
    inputs = channels * taps
    if inputs < LEAST_INPUTS or outputs < (LEAST_POINTWISE if taps == 1 else LEAST_OUTPUTS):
        plural = "" if outputs == 1 else "s"
        return f"a convolution of {outputs} output{plural}, each a sum of {inputs} products, {ask}"
    return None


class ConvForm(NativeForm):
    """W [M, C / group, k] or [M, C / group, kh, kw]."""

    def takes(self, node: ir.Node, scheme: Scheme, context: Context) -> bool:
        w = node.inputs[1]
        assert w is not None
        return self.holds(scheme) and len(context.constants.shape(w)) - 2 in AXES

    def holds(self, scheme: Scheme) -> bool:
        """Whether filters may be held as `scheme` says: integer ones, but for weights alone."""
        w = scheme.weight
        blocks = w is not None and w.granularity is Granularity.BLOCK
        return scheme.activation is not None or blocks

    def held(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        scheme, notes = without_blocks(scheme, "convolutions")
        w, a = scheme.weight, scheme.activation
        assert w is not None and a is not None
        if not w.symmetric:
            notes.append("symmetric weights: filters of target native have no zero points")
            w = replace(w, symmetric=True)
        if a.granularity is not Granularity.ROW:
            notes.append("activations per image: convolutions of target native have no others")
            a = ActivationScheme()
        return replace(scheme, weight=replace(w, qtype=QType.INT8), activation=a), notes

    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        w = node.inputs[1]
        assert w is not None
        shape = context.constants.shape(w)
        if 0 in shape:
            return f"its weight has no elements: shape {list(shape)}"
        bias = input_at(node, 2)
        if bias is not None and not context.constants.is_constant(bias):
            return "its bias is computed"
        return None

    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        x, w = node.inputs[0], node.inputs[1]
        assert x is not None and w is not None
        dtype = context.constants.dtype(w) or ir.DataType.FLOAT
        out = node.outputs[0].name or name
        filters, stats = _filters(node, w, scheme, context)
        bias = context.emitter.constant(
            _bias(node, filters.shape[0], context), f"{name}_bias", node.graph
        )
        y = conv(
            context.emitter,
            context.as_float32(x, node, dtype),
            filters,
            bias,
            _window(node),
            name=name,
            out=out if dtype is ir.DataType.FLOAT else f"{out}_float32",
        )
        if dtype is not ir.DataType.FLOAT:
            y = context.from_float32(y, dtype, out)
        return Drawn([y], [stats])


def _filters(
    node: ir.Node, w: ir.Value, scheme: Scheme, context: Context
) -> tuple[FilterValues, Stats | None]:
    assert scheme.weight is not None
    constants, store = context.constants, context.weights
    group, shape = attribute_int(node, "group", 1), constants.shape(w)
    per_channel = scheme.weight.granularity is Granularity.CHANNEL
    key = ("packed filters", constants.root(w).key, group, scheme.weight, node.graph)

    def make() -> tuple[npt.NDArray[np.float32], int | None]:
        array = store.float32(w)
        constants.release(w)
        return array, 0 if per_channel else None

    def finish(found: QuantizedWeight) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        packed, context.checksums[key] = filters_tensor(found.q, group)
        return packed, np.broadcast_to(found.qparams.scale, shape[0]).astype(np.float32)

    name = w.name or "weight"
    q, scale, stats = store.symmetric(key, name, make, finish, scheme.weight, node.graph)
    return FilterValues(q, scale, shape, group, context.checksums[key]), stats


def _bias(node: ir.Node, outputs: int, context: Context) -> npt.NDArray[np.float32]:
    bias = input_at(node, 2)
    if bias is None:
        return np.zeros(outputs, np.float32)
    return context.weights.float32(bias)


def _window(node: ir.Node) -> dict[str, Any]:
    """The attributes of the window. Padding by auto_pad leaves no room for pads."""
    window = attributes_of(node, without=("kernel_shape", "group"))
    auto_pad = node.attributes.get("auto_pad")
    if auto_pad is not None and auto_pad.as_string() != "NOTSET":
        window.pop("pads", None)
    return window
