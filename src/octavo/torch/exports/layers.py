"""Linear layers, convolutions and lookups of `torch.ops.octavo` as operators of ai.octavo.

    linear(x, packed, scale, zero_point, bias, ...)  ->  Linear
    conv(x, packed, scale, bias, ...)                ->  Conv
    embedding(indices, table, scale, zero_point)     ->  Embedding
    packed_embedding(indices, packed, scale, ...)    ->  Embedding over the weight of a Linear
    half_linear(x, packed, bias)  ->  Cast(w float16 [K, N]) ─ MatMul(x, .) ─ Add(bias)

ONNX Runtime folds the Cast when it loads the file. Tables of 16-bit floats, and those whose zero
points are floats, are gathered with stock operators for either target.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from octavo.core.convolution import unpack_filters
from octavo.core.half_linear import HalfLinear
from octavo.core.kernels import GroupedWeight, WeightFormat, unpack
from octavo.graph.lower.activation_nodes import GELUS, activate, feeds_gelu
from octavo.graph.lower.embedding import lookup_rows
from octavo.ir.conv import Conv
from octavo.ir.embedding import Embedding
from octavo.ir.linear import Linear, packed_shape
from octavo.ir.weight import Weight, WeightIntegers
from octavo.torch.exports.program import call_of
from octavo.torch.exports.reading import ExportContext, Outputs, layer_of
from octavo.torch.layers.table import in_kernel
from octavo.torch.memory import array

STOCK_FORM = "in the form of target portable: target native has no operator for it"


def read_linear(node: ir.Node, c: ExportContext) -> Outputs:
    """Build the nodes of a quantized linear layer; return the layer's output."""
    call = call_of(node)
    layer = layer_of(call["packed"])
    out = node.outputs[0].name or layer
    operator = Linear(
        c.float32(call["x"], node),
        _matrix(call, layer, c),
        call["bias"],
        group_size=call["group"],
        activation=call["activation"],
    )
    (y,) = c.put(operator, name=node.name or layer, outs=[f"{out}_float32"], layer=layer)
    return [c.in_kind(y, call["x"], out)]


def _matrix(call: dict[str, Any], layer: str, c: ExportContext) -> Weight:
    packed, scale = c.tensor(call["packed"]), c.tensor(call["scale"])
    n, k, held = call["n"], call["k"], WeightFormat.parse(call.get("format", "int8"))
    zero = None
    if call["zero_point"] is not None:
        zero = array(c.tensor(call["zero_point"]).to(torch.int8))

    def make() -> WeightIntegers | GroupedWeight:
        if held.group:
            return GroupedWeight.unpack(array(packed), n, k, array(scale), held)
        return WeightIntegers(unpack(array(packed), n, k), array(scale), zero)

    def stored() -> tuple[Any, Any, Any]:
        zeros = np.zeros(n, np.int8) if zero is None else zero
        return packed.view(torch.int8).reshape(packed_shape(n, k, held)), scale, zeros

    tensors = [packed, scale]
    return c.weight(f"{layer}.weight", (n, k), tensors, make, stored, weight_format=held)


def read_half_linear(node: ir.Node, c: ExportContext) -> Outputs:
    """Build a linear layer of a 16-bit weight behind a Cast, in float32; return the output."""
    call, e = call_of(node), c.emitter
    layer = layer_of(call["packed"])
    out = node.outputs[0].name or layer
    packed = c.tensor(call["packed"])

    def held() -> ir.Value:
        kind = str(packed.dtype).removeprefix("torch.")
        core = HalfLinear(array(packed), call["n"], call["k"], kind)
        w = torch.from_numpy(core.weights()).to(packed.dtype)  # exact: it came from there
        return c.hold(w.t(), f"{layer}.weight_{kind}")

    if c.native:
        c.note(layer, STOCK_FORM)
    w = c.of_tensors("half_linear", [packed], held)
    wide = e.cast(w, ir.DataType.FLOAT, f"{out}_weight")
    x = c.float32(call["x"], node)
    y = e.op("MatMul", [x, wide], out=f"{out}_product", name=node.name)
    activation = call.get("activation", "none")
    if call["bias"] is not None:
        # As a Sum, ONNX Runtime leaves it apart from a GELU; see `activation_nodes`.
        apart = activation in GELUS or feeds_gelu(node.outputs[0])
        y = e.op("Sum" if apart else "Add", [y, call["bias"]], out=f"{out}_biased")
    y = activate(e, y, activation, out=f"{out}_{activation}")
    return [c.in_kind(y, call["x"], out)]


def read_conv(node: ir.Node, c: ExportContext) -> Outputs:
    """Build a convolution; return the images [batch, channels, ...], or one without a batch."""
    call, e = call_of(node), c.emitter
    layer, shape = layer_of(call["packed"]), tuple(call["shape"])
    out = node.outputs[0].name or layer
    x = c.float32(call["x"], node)
    single = _rank(call["x"]) == len(shape) - 1
    if single:
        x = e.op("Unsqueeze", [x, e.vector([0])], out=f"{out}_batch")
    window = {"strides": call["stride"], "pads": call["pads"], "dilations": call["dilation"]}
    operator = Conv(x, _filters(call, layer, c), call["groups"], window, call["bias"])
    (y,) = c.put(operator, name=node.name or layer, outs=[f"{out}_image"], layer=layer)
    if single:
        y = e.op("Squeeze", [y, e.vector([0])], out=f"{out}_single")
    return [c.in_kind(y, call["x"], out)]


def _rank(x: ir.Value) -> int:
    assert x.shape is not None  # PyTorch's exporter states the shape of every tensor
    return len(x.shape)


def _filters(call: dict[str, Any], layer: str, c: ExportContext) -> Weight:
    packed, scale = c.tensor(call["packed"]), c.tensor(call["scale"])
    shape = tuple(call["shape"])

    def make() -> WeightIntegers:
        return WeightIntegers(unpack_filters(array(packed), shape, call["groups"]), array(scale))

    return c.weight(
        f"{layer}.weight",
        shape,
        [packed, scale],
        make,
        lambda: (packed.view(torch.int8), scale, None),
    )


def read_embedding(node: ir.Node, c: ExportContext) -> Outputs:
    """Build the lookup in a table; return the rows, float32 [..., embedding_dim]."""
    call = call_of(node)
    layer, out = layer_of(call["table"]), node.outputs[0].name or "rows"
    table = c.tensor(call["table"])
    zero = None if call["zero_point"] is None else c.tensor(call["zero_point"])
    if not in_kernel(table, zero):
        if c.native:
            c.note(layer, STOCK_FORM)
        return [look_up(call, call["indices"], c, name=node.name or out, out=out)]
    scale = c.tensor(call["scale"])

    def make() -> WeightIntegers:
        moved = torch.zeros(len(table), dtype=torch.int8) if zero is None else zero.to(torch.int8)
        q = table
        if table.dtype is torch.uint8:  # integers and zero points lie 128 higher
            q, moved = (table ^ 128).view(torch.int8), moved ^ -128
        return WeightIntegers(array(q), array(scale), array(moved))

    def stored() -> tuple[Any, Any, Any]:
        found = make()
        return found.q, found.scale, found.zeros

    parts = {"quantized": "table", "scale": "scale", "zero_point": "zero_point"}
    names = {part: f"{layer}.{name}" for part, name in parts.items()}
    weight = c.weight(
        f"{layer}.table", tuple(table.shape), [table, scale], make, stored, part_names=names
    )
    operator = Embedding(call["indices"], weight, (table.shape[1],))
    return c.put(operator, name=node.name or out, outs=[out], layer=layer)


def read_packed_embedding(node: ir.Node, c: ExportContext) -> Outputs:
    """Build the lookup in a packed table; return the rows, float32 [..., embedding_dim].

    The table may be a linear layer's weight too.
    """
    call = call_of(node)
    layer, out = layer_of(call["packed"]), node.outputs[0].name or "rows"
    operator = Embedding(call["indices"], _matrix(call, layer, c), (call["k"],), packed=True)
    return c.put(operator, name=node.name or out, outs=[out], layer=layer)


def look_up(
    call: dict[str, Any], indices: ir.Value, c: ExportContext, *, name: str, out: str
) -> ir.Value:
    """Look `indices` up in the table of `call`, as it is stored, with stock operators.

    integers    Mul(Sub(Cast(Gather(table, i)), Gather(zero, i)), Gather(scale, i))
    16 bits     Cast(Gather(table, i))
    """
    layer = layer_of(call["table"])

    def column(key: str) -> ir.Value | None:
        """Return the tensor of `key` as [num_embeddings, 1]: one number a row."""
        value = call[key]
        if value is None:
            return None
        stored = c.tensor(value)
        name = f"{layer}.{key}_column"
        return c.of_tensors("column", [stored], lambda: c.hold(stored[:, None], name))

    scale = column("scale")
    if scale is None:
        held = c.emitter.op("Gather", [call["table"], indices], out=f"{out}_stored", name=name)
        return c.emitter.cast(held, ir.DataType.FLOAT, out)
    return lookup_rows(
        c.emitter,
        call["table"],
        scale,
        indices,
        name=name,
        out=out,
        zero_point=column("zero_point") or 0,
    )
