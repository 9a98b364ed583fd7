"""com.microsoft.Attention: its Q, K, V projection is a linear layer inside a fused operator.

    Attention(x, W, b, mask)  ->  per row:     linear_rows, Split, MultiHeadAttention
                                  per tensor:  DynamicQuantizeLinear, QAttention

MultiHeadAttention takes the same mask only as [B, S]; with a past, another mask or the causal
flag, the projection cannot be taken out, and the per-tensor form is written with a note.
The standard Attention of opset 23 holds no weights and is another operator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from octavo.graph.lower.products import attention_per_tensor
from octavo.ir import MS
from octavo.ir.linear import Linear
from octavo.onnx.constants import Constants
from octavo.onnx.operators.operands import Operands
from octavo.onnx.operators.reader import (
    Drawn,
    ReadContext,
    Reader,
    attribute_int,
    attributes_of,
    exact_inputs,
    float_weight,
    input_at,
)
from octavo.onnx.operators.stock_linear import shared_matrix
from octavo.onnx.read.normalize import FIRST_WITH_DYNAMIC
from octavo.recipe import Granularity, Kind, Scheme, WeightScheme


class AttentionReader(Reader):
    """x [B, S, K], W [K, Q + K + V], b [Q + K + V]."""

    op = "com.microsoft.Attention"
    kind = Kind.ATTENTION

    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        return float_weight(node, constants)

    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        w, x = node.inputs[1], node.inputs[0]
        assert w is not None and x is not None
        if c.qdq or scheme.activation is None:
            return "a fused Attention is held with int8 activations or not at all"
        if c.constants.dtype(w) is not ir.DataType.FLOAT:
            return "the fused Attention in 16 bits has no CPU form to compare with"
        shape = c.constants.shape(w)
        if len(shape) != 2 or shape[0] > exact_inputs(scheme):
            return f"its weight has shape {list(shape)}"
        if scheme.activation.granularity is Granularity.TENSOR or _why_fused(node, c):
            return _fused_refused(node, c)
        return None

    def announce(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> None:
        w = node.inputs[1]
        assert w is not None
        weight = _held(scheme, c)
        if weight.qtype.is_integer:
            root = c.constants.root(w)
            axis = 0 if root.transposed else 1
            c.weights.announce(root, axis, weight, transposed=root.transposed)

    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        x, w_value = node.inputs[0], node.inputs[1]
        assert x is not None and w_value is not None and scheme.weight is not None
        assert scheme.activation is not None
        notes = []
        per_row = scheme.activation.granularity is not Granularity.TENSOR
        if per_row and _why_fused(node, c):
            notes.append(f"activations per tensor in QAttention: {_why_fused(node, c)}")
            per_row = False
            tensor = replace(scheme.activation, granularity=Granularity.TENSOR, group=None)
            scheme = replace(scheme, activation=tensor)
        root = c.constants.root(w_value)
        axis = 0 if root.transposed else 1
        notes += c.weights.compromise(root, _held(scheme, c))
        bias, mask = input_at(node, 2), input_at(node, 3)
        outs = [o.name or f"{name}_{i}" for i, o in enumerate(node.outputs)]
        if not per_row:
            w, account = c.weights.matrix(root, axis, transposed=root.transposed)
            rows = c.per_tensor(x, node)
            past = input_at(node, 4)
            attributes = attributes_of(node, without=("qkv_hidden_sizes",))
            results = attention_per_tensor(
                c.emitter, rows, w, bias, mask, past, attributes, name=name, outs=outs
            )
            return Drawn(list(results), [account], notes)
        kept = {
            k: a
            for k, a in node.attributes.items()
            if k in ("num_heads", "scale", "mask_filter_value")
        }
        weight, account, _ = shared_matrix(Operands(x, w_value), scheme, c)
        (projected,) = c.put(Linear(x, weight), name=f"{name}_projection", outs=[f"{outs[0]}_qkv"])
        sizes, parts = _sizes(node, c), [f"{outs[0]}_{part}" for part in "qkv"]
        q, k, v = c.emitter.split(projected, -1, sizes, parts)
        inputs = [q, k, v, bias, mask]
        y = c.emitter.op("MultiHeadAttention", inputs, out=outs[0], domain=MS, name=name, **kept)
        return Drawn([y], [account], notes)


def _held(scheme: Scheme, c: ReadContext) -> WeightScheme:
    weight = c.weight_scheme_for_cpu(scheme).weight
    assert weight is not None
    return weight


def _sizes(node: ir.Node, c: ReadContext) -> list[int]:
    stated = node.attributes.get("qkv_hidden_sizes")
    if stated is not None:
        return [int(i) for i in stated.as_ints()]
    w = node.inputs[1]
    assert w is not None
    return [c.constants.shape(w)[1] // 3] * 3


# docs/notes/onnxruntime.md: "Fused attention is taken apart where its mask allows"
def _fused_refused(node: ir.Node, c: ReadContext) -> str | None:
    """Return why QAttention cannot take the operator's place either, or None where it can."""
    if c.opset < FIRST_WITH_DYNAMIC:
        return f"its form here needs DynamicQuantizeLinear, which opset {c.opset} has not"
    if "qkv_hidden_sizes" in node.attributes:
        return "Q, K and V of sizes of their own: QAttention has no such form"
    if input_at(node, 2) is None:
        return "it has no bias: QAttention needs one"
    if input_at(node, 5) is not None or input_at(node, 6) is not None:
        return "an attention bias or past length: QAttention has no such input"
    return None


def _why_fused(node: ir.Node, c: ReadContext) -> str:
    """Return why the projection cannot be taken out of the operator, or "" where it can."""
    mask = input_at(node, 3)
    if mask is not None and (mask.shape is None or len(mask.shape) != 2):
        return "its mask is not stated to be [batch, sequence]"
    read = [o.uses() or o.is_graph_output() for o in node.outputs]
    if input_at(node, 4) is not None or any(read[1:]):
        return "it keeps a past"
    if input_at(node, 5) is not None or input_at(node, 6) is not None:
        return "it has an attention bias"
    if attribute_int(node, "unidirectional", 0):
        return "it is causal"
    if attribute_int(node, "do_rotary", 0):
        return "it rotates positions"
    if np.any([s <= 0 for s in _sizes(node, c)]):
        return "its sizes are not stated"
    return ""
