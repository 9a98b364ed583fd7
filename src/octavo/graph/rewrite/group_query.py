"""com.microsoft.GroupQueryAttention  ->  a CachedAttention node of ours.

ONNX Runtime GenAI writes every decoder with it: queries, keys and values as rows or in one, a cache
that grows or lies in a buffer, rotary positions inside. Ours computes the same; what it has no form
for stays as it is, and the report says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from octavo.errors import ModelError
from octavo.graph.analysis.element_types import is_float32
from octavo.graph.context import Context
from octavo.graph.rewrite.attention import FUSED
from octavo.graph.rewrite.named_attention import LEFT, LeftError, read_integer, read_number
from octavo.ir import MS
from octavo.ir.cached_attention import CachedAttention

INPUTS = (
    *("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"),
    *("cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale"),
    *("v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens"),
)
REQUIRED = ("query", "seqlens_k", "total_sequence_length")
PAIRS = (("key", "value"), ("past_key", "past_value"), ("cos_cache", "sin_cache"))
OTHERS = {
    "k_scale": "its cache is quantized",
    "v_scale": "its cache is quantized",
    "q_norm_weight": "it normalizes queries and keys, which ONNX Runtime does not on a CPU",
    "k_norm_weight": "it normalizes queries and keys, which ONNX Runtime does not on a CPU",
    "query_seqlens": "each item of the batch has a number of queries of its own",
}
"""Inputs for which there is no form."""


# docs/notes/native_target.md: "A cache is appended inside the attention"
def fuse_group_query(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every GroupQueryAttention of `graph`; count them.

    Raises ModelError for one that lacks what no run can do without.
    """
    count = 0
    for node in [n for n in graph if n.op_type == "GroupQueryAttention" and n.domain == MS]:
        try:
            operator = _operator(node, c)
        except LeftError as why:
            c.note(node.name, f"{node.op_type} {LEFT}: {why}")
            continue
        _put(operator, node, c)
        count += 1
    return {FUSED: count}


def _operator(node: ir.Node, c: Context) -> CachedAttention:
    values = dict(zip(INPUTS, node.inputs, strict=False))
    heads, kv_heads = _checked(node, values)
    for name, why in OTHERS.items():
        if values.get(name) is not None:
            raise LeftError(why)
    evicts = bool(read_integer(node, "sliding_window_cache", 0))
    if evicts and values.get("attention_bias") is not None:
        raise LeftError("its cache holds no more than the window, and it has a bias")
    if read_integer(node, "causal", 1) != 1:
        raise LeftError("it is not causal")
    if len(node.outputs) > 3 and (node.outputs[3].uses() or node.outputs[3].is_graph_output()):
        raise LeftError("its scores are an output")
    floats = ("query", "key", "value", "past_key", "past_value", "cos_cache")
    if not all(is_float32(v, c.constants) for v in map(values.get, floats) if v is not None):
        raise LeftError("its values are not known to be float32")
    turns = bool(read_integer(node, "do_rotary", 0))
    if not turns:
        values |= dict.fromkeys(("cos_cache", "sin_cache", "position_ids"))
    sinks = values.get("head_sink")
    if sinks is None and read_integer(node, "smooth_softmax", 0) == 1:
        sinks = c.emitter.constant(np.zeros(heads, np.float32), f"{node.name}_sinks", node.graph)
    query, lengths, total = (values[name] for name in REQUIRED)
    assert query is not None and lengths is not None and total is not None
    return CachedAttention(
        query,
        lengths,
        total,
        heads,
        kv_heads,
        key=values.get("key"),
        value=values.get("value"),
        past_key=values.get("past_key"),
        past_value=values.get("past_value"),
        cos=values.get("cos_cache"),
        sin=values.get("sin_cache"),
        positions=values.get("position_ids"),
        bias=values.get("attention_bias"),
        sinks=sinks,
        scale=read_number(node, "scale"),
        softcap=read_number(node, "softcap"),
        window=max(0, read_integer(node, "local_window_size", -1)),
        evicts=evicts,
        interleaved=bool(read_integer(node, "rotary_interleaved", 0)),
        count=min(3, len(node.outputs)),
    )


def _checked(node: ir.Node, values: dict[str, ir.Value | None]) -> tuple[int, int]:
    """Return the numbers of heads of queries, and of keys and values. Raises ModelError."""
    label = f"node {node.name!r} (com.microsoft.GroupQueryAttention)"
    if len(node.inputs) > len(INPUTS):
        raise ModelError(
            f"{label} has {len(node.inputs)} inputs; it may have {len(INPUTS)}, the last of them "
            f"{INPUTS[-1]}: export the model again"
        )
    for name in REQUIRED:
        if values.get(name) is None:
            raise ModelError(
                f"{label} has no input {name} (number {INPUTS.index(name)}), without which no "
                "ONNX Runtime runs it: export the model again"
            )
    heads, kv_heads = (read_integer(node, name, 0) for name in ("num_heads", "kv_num_heads"))
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise ModelError(
            f"{label} has num_heads {heads} and kv_num_heads {kv_heads}; both have to be 1 or "
            "more, and the second has to divide the first: export the model again"
        )
    turns = bool(read_integer(node, "do_rotary", 0))
    for pair in PAIRS:
        given = [name for name in pair if values.get(name) is not None]
        if len(given) == 1:
            (missing,) = set(pair) - set(given)
            raise ModelError(
                f"{label} has an input {given[0]} and no {missing}; it has to have both or none: "
                "export the model again"
            )
        if pair[0] == "cos_cache" and turns and not given:
            raise ModelError(
                f"{label} has do_rotary 1 and no inputs cos_cache and sin_cache; give both, or "
                "set do_rotary to 0"
            )
    return heads, kv_heads


def _put(operator: CachedAttention, node: ir.Node, c: Context) -> None:
    old: Sequence[ir.Value] = node.outputs[: operator.count]
    out = node.outputs[0].name or "attention"
    outs = [value.name or "" for value in old]
    c.replace(node, c.put(operator, name=f"{out}/Attention", outs=outs))
