"""Rotary positions that a file names  ->  a Rotary node of ours.

ai.onnx.RotaryEmbedding (opset 23 on)    tables by positions, or a row for each of X's
com.microsoft.RotaryEmbedding            tables by positions, or from a first one on
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.errors import ModelError
from octavo.graph.analysis.element_types import is_float32
from octavo.graph.analysis.heads import is_standard
from octavo.graph.context import Context
from octavo.graph.rewrite.named_attention import LEFT, LeftError, read_integer
from octavo.ir import MS
from octavo.ir.rotary import Rotary

OPERATOR = "RotaryEmbedding"
FOUR_AXES = 4


def fuse_named_rotary(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every RotaryEmbedding of `graph`. Raises ModelError for one that lacks an input."""
    for node in [n for n in graph if is_standard(n, OPERATOR) or _is_stock(n)]:
        try:
            found = _rotary(node, c)
        except LeftError as why:
            c.note(node.name, f"{node.op_type} {LEFT}: {why}")
            continue
        out = node.outputs[0].name or "rotary"
        c.replace(node, c.put(found, name=f"{out}/Rotary", outs=[out]))
    return {}


def _is_stock(node: ir.Node) -> bool:
    return node.op_type == OPERATOR and node.domain == MS


def _rotary(node: ir.Node, c: Context) -> Rotary:
    stock = _is_stock(node)
    names = ("input", "position_ids", "cos_cache", "sin_cache")
    places = (0, 1, 2, 3) if stock else (0, 3, 1, 2)
    values = [node.inputs[i] if i < len(node.inputs) else None for i in places]
    for name, place, value in zip(names, places, values, strict=True):
        if value is None and (stock or name != "position_ids"):
            raise ModelError(
                f"node {node.name!r} ({node.domain or 'ai.onnx'}.{OPERATOR}) has no input {name} "
                f"(number {place}); it has to have one: export the model again"
            )
    x, positions, cos, sin = values
    assert x is not None and cos is not None and sin is not None
    if read_integer(node, "is_packed_batching", 0):
        raise LeftError("its items lie in one row, of different lengths")
    scale = node.attributes.get("scale")
    if scale is not None and scale.as_float() != 1.0:
        raise LeftError("it has a scale")
    if not all(is_float32(v, c.constants) for v in (x, cos, sin)):
        raise LeftError("its values are not known to be float32")
    turned, heads = (read_integer(node, n, 0) for n in ("rotary_embedding_dim", "num_heads"))
    if turned and not heads:
        heads = _stated_heads(x)
    interleaved = bool(read_integer(node, "interleaved", 0))
    return Rotary(x, cos, sin, positions, turned, interleaved, paired=True, heads=heads)


def _stated_heads(x: ir.Value) -> int:
    """Return the heads of X [B, heads, S, D]. Raises LeftError where they are not stated."""
    heads = None if x.shape is None or len(x.shape) != FOUR_AXES else x.shape[1]
    if not isinstance(heads, int):
        raise LeftError("how many heads it has is not stated")
    return heads
