"""Attention with stock operators: what `rewrite.attention` makes one node of, heads apart.

    Attention  ->  MatMul ─ Mul(scale) ─ [Tanh] ─ [Add(bias)] ─ [Where(mask)] ─ Softmax ─ MatMul

MultiHeadAttention would take no mask that broadcasts along queries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir import MS
from octavo.ir.activation_products import (
    AS_IT_IS,
    HEADS_FIRST,
    REST,
    SIZE_OF_Q,
    Attention,
    Causal,
    Guard,
    Hidden,
    Layout,
)

KEYS = (0, 2, 3, 1)
LOWEST = float(np.finfo(np.float32).min)


def lower_attention(found: Attention, node: ir.Node, c: Context) -> list[ir.Value]:
    """Lower an attention; return its result in the layout that `found` states for it."""
    e, out = c.emitter, node.outputs[0].name or "attention"
    q_layout, k_layout, v_layout, y_layout = found.layouts
    q = _heads(found.q, q_layout, found.heads, "q", out, c)
    if k_layout is Layout.HEADS_OUTSIDE or found.groups > 1:
        k = _heads(found.k, k_layout, found.kv_heads, "k", out, c)
        k = _repeated(k, found.groups, f"{out}_k", c)
        scores = e.op("FusedMatMul", [q, k], out=f"{out}_products", domain=MS, transB=1)
    else:
        k = _heads(found.k, k_layout, found.kv_heads, "k", out, c, KEYS)
        scores = e.op("MatMul", [q, k], out=f"{out}_products")
    scores = e.op("Mul", [scores, _scale(found, q, out, c)], out=f"{out}_scores")
    if found.softcap:
        cap = e.scalar(found.softcap, np.float32)
        scores = e.op("Div", [scores, cap], out=f"{out}_capped")
        scores = e.op("Mul", [e.op("Tanh", [scores], out=f"{out}_tanh"), cap], out=f"{out}_capped")
    bias = None if found.bias is None else _bias(found, found.bias, out, c)
    if bias is not None:
        scores = e.op("Add", [scores, bias], out=f"{out}_masked")
    weights = _weights(found, scores, bias, out, c)
    v = _heads(found.v, v_layout, found.kv_heads, "v", out, c)
    v = _repeated(v, found.groups, f"{out}_v", c)
    mixed = e.op("MatMul", [weights, v], out=f"{out}_mixed")
    if y_layout is Layout.HEADS_OUTSIDE:
        return [mixed]
    turned = e.transpose(mixed, HEADS_FIRST, f"{out}_turned")
    if y_layout is Layout.HEADS_INSIDE:
        return [turned]
    return [e.op("Reshape", [turned, _shape(found, out, c)], out=f"{out}_joined")]


def _heads(
    value: ir.Value,
    layout: Layout,
    heads: int,
    what: str,
    out: str,
    c: Context,
    perm: Sequence[int] = HEADS_FIRST,
) -> ir.Value:
    """Return `value` with its heads before its length, or with its axes as `perm` orders them."""
    if layout is Layout.HEADS_OUTSIDE:
        return value
    e = c.emitter
    if layout is Layout.ROWS:
        value = e.op("Reshape", [value, e.vector([0, 0, heads, -1])], out=f"{out}_{what}")
    return e.transpose(value, perm, f"{out}_{what}_heads")


def _repeated(value: ir.Value, groups: int, out: str, c: Context) -> ir.Value:
    """Repeat heads [B, K, T, D] to [B, K * groups, T, D], each several times in a row."""
    if groups == 1:
        return value
    e = c.emitter
    apart = e.unsqueeze(value, [2], f"{out}_apart")
    wide = e.op("Expand", [apart, e.vector([1, 1, groups, 1, 1])], out=f"{out}_repeated")
    sizes = e.op("Shape", [value], out=f"{out}_sizes")
    parts = [
        e.op("Gather", [sizes, e.vector([axis])], out=f"{out}_size", axis=0) for axis in (0, 2, 3)
    ]
    shape = e.op("Concat", [parts[0], e.vector([-1]), *parts[1:]], out=f"{out}_shape", axis=0)
    return e.op("Reshape", [wide, shape], out=f"{out}_grouped")


def _scale(found: Attention, q: ir.Value, out: str, c: Context) -> ir.Value:
    """Return the factor of the products; without one, that of the depth of `q`."""
    e = c.emitter
    if found.scale:
        return e.scalar(found.scale, np.float32)
    sizes = e.op("Shape", [q], out=f"{out}_sizes")
    depth = e.op("Gather", [sizes, e.scalar(-1, np.int64)], out=f"{out}_depth", axis=0)
    depth = e.cast(depth, ir.DataType.FLOAT, f"{out}_depth_float")
    return e.op("Reciprocal", [e.op("Sqrt", [depth], out=f"{out}_root")], out=f"{out}_scale")


def _bias(found: Attention, bias: ir.Value, out: str, c: Context) -> ir.Value:
    """Return the bias that is added to the scores, [B, heads, S, T]."""
    if not found.joined_bias:
        return bias
    e = c.emitter
    sizes = e.op("Shape", [bias], out=f"{out}_bias_sizes")
    inner = e.op("Gather", [sizes, e.vector([1, 2])], out=f"{out}_bias_inner", axis=0)
    shape = e.op("Concat", [e.vector([-1, found.heads]), inner], out=f"{out}_bias_shape", axis=0)
    return e.op("Reshape", [bias, shape], out=f"{out}_bias")


def _weights(
    found: Attention, scores: ir.Value, bias: ir.Value | None, out: str, c: Context
) -> ir.Value:
    e = c.emitter
    fill = found.fill or LOWEST if found.hidden is Hidden.MEAN else -np.inf
    masks = [] if found.mask is None else [found.mask]
    if found.causal is not Causal.NO:
        masks.append(_causal(found, scores, out, c))
    for mask in masks:
        hidden = e.scalar(fill, np.float32)
        if bias is not None and found.hidden is Hidden.MEAN and not found.replaces:
            hidden = e.op("Add", [hidden, bias], out=f"{out}_fill")
        scores = e.op("Where", [mask, scores, hidden], out=f"{out}_hidden")
    if found.sinks is not None:
        return _without_sinks(found.sinks, scores, out, c)
    weights = e.op("Softmax", [scores], out=f"{out}_weights", axis=-1)
    if found.guard is Guard.WEIGHTS:
        lost = e.op("IsNaN", [weights], out=f"{out}_lost")
    elif found.guard is Guard.BIAS or (masks and found.hidden is Hidden.ZERO):
        most = e.reduce_last("ReduceMax", scores, f"{out}_most")
        if found.guard is Guard.BIAS:
            lowest = e.scalar(LOWEST, np.float32)
            lost = e.op("LessOrEqual", [most, lowest], out=f"{out}_lost")
        else:
            lost = e.op("IsInf", [most], out=f"{out}_lost", detect_positive=0)
    else:
        return weights
    return e.op("Where", [lost, e.scalar(0.0, np.float32), weights], out=f"{out}_numbers")


def _without_sinks(sinks: ir.Value, scores: ir.Value, out: str, c: Context) -> ir.Value:
    """Weights of scores beside a sink, which has them all where every key is hidden."""
    e = c.emitter
    first = e.op("Slice", [scores, *map(e.vector, ([0], [1], [-1]))], out=f"{out}_first")
    heads = e.op("Reshape", [sinks, e.vector([-1, 1, 1])], out=f"{out}_sinks")
    sizes = e.op("Shape", [first], out=f"{out}_first_sizes")
    wide = e.op("Expand", [heads, sizes], out=f"{out}_sinks_wide")
    both = e.op("Concat", [scores, wide], out=f"{out}_beside_sinks", axis=-1)
    weights = e.op("Softmax", [both], out=f"{out}_weights", axis=-1)
    return e.op("Slice", [weights, *map(e.vector, ([0], [-1], [-1]))], out=f"{out}_numbers")


def _causal(found: Attention, scores: ir.Value, out: str, c: Context) -> ir.Value:
    """Tell which keys a query has come to, as conditions [S, T]."""
    e = c.emitter
    sizes = e.op("Shape", [scores], out=f"{out}_sizes")
    rows, columns = (
        e.op("Gather", [sizes, e.scalar(axis, np.int64)], out=f"{out}_size", axis=0)
        for axis in (-2, -1)
    )
    zero, one = e.scalar(0, np.int64), e.scalar(1, np.int64)
    query = e.op("Range", [zero, rows, one], out=f"{out}_queries")
    key = e.op("Range", [zero, columns, one], out=f"{out}_keys")
    if found.causal is Causal.LAST:
        offset = e.op("Sub", [columns, rows], out=f"{out}_offset")
        query = e.op("Add", [query, offset], out=f"{out}_last_keys")
    query = e.unsqueeze(query, [1], f"{out}_last")
    late = e.op("Greater", [key, query], out=f"{out}_late")
    counts = e.op("Not", [late], out=f"{out}_counts")
    if not found.window:
        return counts
    first = e.op("Sub", [query, e.scalar(found.window, np.int64)], out=f"{out}_first")
    near = e.op("Greater", [key, first], out=f"{out}_near")
    return e.op("And", [counts, near], out=f"{out}_window")


def _shape(found: Attention, out: str, c: Context) -> ir.Value:
    """Build the result's shape, with sizes of Q only where a larger mask would run otherwise."""
    e = c.emitter
    shape = [AS_IT_IS if size == SIZE_OF_Q else size for size in found.shape]
    if SIZE_OF_Q not in found.shape or REST not in found.shape:
        return e.vector(shape)
    places = (0, 2) if found.layouts[0] is Layout.HEADS_OUTSIDE else (0, 1)
    sizes = e.op("Shape", [found.q], out=f"{out}_sizes")
    parts = [
        e.op("Gather", [sizes, e.vector([places[axis]])], out=f"{out}_size", axis=0)
        if size == SIZE_OF_Q
        else e.vector([size])
        for axis, size in enumerate(found.shape)
    ]
    return e.op("Concat", parts, out=f"{out}_shape", axis=0)
