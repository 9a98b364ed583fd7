"""Conv with constant filters.

    Conv(x, W, b)  ->  Conv(x, W, b) of ai.octavo, with one scale for each image
    Conv(x, W, b)  ->  DynamicQuantizeLinear, ConvInteger, ..., where it has one scale for all

For stock operators filters are uint8, the int8 ones plus 128, because ONNX Runtime's ConvInteger
with int8 ones runs at a quarter of the float speed, and not at all before 1.24.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import QuantizedWeight
from octavo.core.qparams import QType
from octavo.graph.lower.products import conv_integer
from octavo.ir.conv import Conv
from octavo.ir.weight import Account, QuantizedWeightValues, Weight, WeightIntegers
from octavo.onnx.blocks import is_in_blocks, without_blocks
from octavo.onnx.constants import Constants
from octavo.onnx.operators.operands import quantized_rows
from octavo.onnx.operators.reader import (
    Drawn,
    ReadContext,
    Reader,
    attribute_int,
    attributes_of,
    by_channels,
    exact_inputs,
    float_weight,
    input_at,
)
from octavo.recipe import ActivationScheme, Granularity, Kind, Scheme, WeightScheme
from octavo.recipe.convolutions import AXES


class ConvReader(Reader):
    """W [M, C / group, k...]."""

    op = "Conv"
    kind = Kind.CONV

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        return float_weight(node, constants)

    def takes_native(self, node: ir.Node, scheme: Scheme, c: ReadContext) -> bool:
        return holds(scheme) and len(c.constants.shape(_filters_of(node))) - 2 in AXES

    def held_native(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        scheme, notes = by_channels(scheme, "convolutions")
        w, a = scheme.weight, scheme.activation
        assert w is not None and a is not None
        if not w.symmetric:
            notes.append("symmetric weights: filters of target native have no zero points")
            w = replace(w, symmetric=True)
        if a.granularity is not Granularity.ROW:
            notes.append("activations per image: convolutions of target native have no others")
            a = ActivationScheme()
        return replace(scheme, weight=replace(w, qtype=QType.INT8), activation=a), notes

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        shape = c.constants.shape(_filters_of(node))
        if not native and (c.qdq or scheme.activation is None):
            return "a convolution is held with int8 activations or not at all"
        if 0 in shape:
            return f"its weight has no elements: shape {list(shape)}"
        bias = input_at(node, 2)
        if native:
            return None if bias is None or c.constants.is_constant(bias) else "its bias is computed"
        inputs, most = int(np.prod(shape[1:])), exact_inputs(scheme)
        if inputs > most:
            return f"each output is a sum of {inputs} products: int32 would overflow above {most}"
        return None

    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        w, x = _filters_of(node), node.inputs[0]
        assert x is not None and scheme.activation is not None
        dtype = c.constants.dtype(w) or ir.DataType.FLOAT
        out = node.outputs[0].name or name
        x32 = c.as_float32(x, node, dtype)
        per_image = native or scheme.activation.granularity is not Granularity.TENSOR
        if per_image:
            y, account, notes = _layer(node, x32, dtype, scheme, c, name, native=native)
        else:
            y, account, notes = _per_tensor(node, x32, dtype, scheme, c, name)
        return Drawn([c.from_float32(y, dtype, out)], [account], notes)

    def macs_per_row(self, weights: Any) -> int | None:
        return None  # depends on the image's size


Read = tuple[ir.Value, "Account | None", list[str]]


def _layer(
    node: ir.Node,
    x: ir.Value,
    dtype: ir.DataType,
    scheme: Scheme,
    c: ReadContext,
    name: str,
    *,
    native: bool,
) -> Read:
    notes: list[str] = []
    out = node.outputs[0].name or name
    if native:
        weight: Weight = _native_filters(node, scheme, c)
        account: Account | None = weight.account
    else:
        weight, account, notes = _stock_filters(node, scheme, c)
    bias, group = input_at(node, 2), attribute_int(node, "group", 1)
    held = _row(node, bias, c)
    (y,) = c.put(Conv(x, weight, group, _window(node), held), name=name, outs=[f"{out}_image"])
    if bias is not None and held is None:
        y = c.emitter.op("Add", [y, _column(node, bias, dtype, c)], out=f"{out}_biased")
    return y, account, notes


def _per_tensor(
    node: ir.Node, x: ir.Value, dtype: ir.DataType, scheme: Scheme, c: ReadContext, name: str
) -> Read:
    """Build the layer as ONNX Runtime's quantize_dynamic does, node for node."""
    weight, account, notes = _stock_filters(node, scheme, c)
    assert weight.matrix is not None
    bias, out = input_at(node, 2), node.outputs[0].name or name
    column = None if bias is None else _column(node, bias, dtype, c)
    images, attributes = c.per_tensor(x, node), attributes_of(node)
    wide = out if dtype is ir.DataType.FLOAT else f"{out}_float32"
    y = conv_integer(c.emitter, images, weight.matrix(), column, attributes, name=name, out=wide)
    return y, account, notes


def holds(scheme: Scheme) -> bool:
    """Tell whether target native may hold filters so: in integers, but for weights alone."""
    w = scheme.weight
    return scheme.activation is not None or is_in_blocks(w)


def _filters_of(node: ir.Node) -> ir.Value:
    w = node.inputs[1]
    assert w is not None
    return w


def _row(node: ir.Node, bias: ir.Value | None, c: ReadContext) -> ir.Value | None:
    """Return the bias [M] as a constant of the node's graph, None where there is none such."""
    if bias is None or not c.constants.is_constant(bias):
        return None
    if bias.is_initializer() and bias.graph is node.graph and bias.dtype is ir.DataType.FLOAT:
        return bias
    return c.emitter.constant(c.weights.float32(bias), f"{node.name}_bias", node.graph)


def _column(node: ir.Node, bias: ir.Value, dtype: ir.DataType, c: ReadContext) -> ir.Value:
    """Reshape the bias [M] to [1, M, 1, ...]."""
    rank, out = len(c.constants.shape(_filters_of(node))), node.outputs[0].name
    shape = c.emitter.vector([1, -1] + [1] * (rank - 2))
    bias = c.as_float32(bias, node, dtype)
    return c.emitter.op("Reshape", [bias, shape], out=f"{out}_bias_reshape_output")


def _native_filters(node: ir.Node, scheme: Scheme, c: ReadContext) -> Weight:
    w = _filters_of(node)
    assert scheme.weight is not None

    key = ("filters", c.constants.root(w).key, scheme.weight, node.graph)
    shape = c.constants.shape(w)
    return quantized_rows(c, key, w.name or "weight", shape, np.asarray, scheme.weight, w)


def _stock_filters(
    node: ir.Node, scheme: Scheme, c: ReadContext
) -> tuple[Weight, Account | None, list[str]]:
    """Return filters held in one uint8 tensor, with scales [M, 1, 1, ...] for the outputs."""
    value, notes = _filters_of(node), []
    w_scheme = scheme.weight
    assert w_scheme is not None
    if not w_scheme.symmetric and w_scheme.granularity is not Granularity.TENSOR:
        w_scheme = replace(w_scheme, symmetric=True)
        notes.append("symmetric weights: ConvInteger has one zero point for all channels")
    w_scheme = replace(w_scheme, qtype=QType.UINT8)
    if is_in_blocks(w_scheme):
        w_scheme = without_blocks(w_scheme)
        notes.append("weights per channel: ConvInteger has no blocks")
    account, shape = Account(), c.constants.shape(value)

    def matrix() -> QuantizedWeightValues:
        held, new = _hold(value, w_scheme, shape, c)
        if new is not None:
            account.add(new)
        return held

    def make() -> WeightIntegers:
        raise AssertionError("an operator that is lowered reads the filters as they are stored")

    key = ("stored filters", c.constants.root(value).key)
    name = value.name or "weight"
    weight = Weight(key, name, shape, make, matrix=c.blaming(matrix), source=value, account=account)
    return weight, account, notes


def _hold(
    value: ir.Value, scheme: WeightScheme, shape: tuple[int, ...], c: ReadContext
) -> tuple[QuantizedWeightValues, Account | None]:
    per_channel = scheme.granularity is Granularity.CHANNEL

    def make() -> tuple[npt.NDArray[np.float32], int | None]:
        array = c.weights.float32(value)
        c.constants.release(value)
        return array, 0 if per_channel else None

    def finish(w: QuantizedWeight) -> tuple[npt.NDArray[Any], ...]:
        scale, zero = w.qparams.scale, w.qparams.zero_point.astype(w.q.dtype)
        column = (shape[0],) + (1,) * (len(shape) - 2) if per_channel else ()
        return w.q, scale.reshape(column), zero[:1].reshape(())

    key = ("filters", c.constants.root(value).key)
    return c.weights.custom(key, value.name or "weight", make, finish, scheme)


def _window(node: ir.Node) -> dict[str, Any]:
    """Return the window's attributes. Padding by auto_pad leaves no room for pads."""
    window = attributes_of(node, without=("kernel_shape", "group"))
    auto_pad = node.attributes.get("auto_pad")
    if auto_pad is not None and auto_pad.as_string() != "NOTSET":
        window.pop("pads", None)
    return window
