"""Attention that a file names  ->  an Attention node of ours.

    ai.onnx.Attention (opset 23 on)        with a mask, causal, with past and present
    com.microsoft.MultiHeadAttention       with biases, a mask of keys or an added one, and the same

Keys and values of a cache are put in front of the new ones by Concat, which also is the present.
What has no form here stays as it is, and the report says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.attention_operands import Operand
from octavo.graph.analysis.attention_results import Result
from octavo.graph.analysis.attention_scores import ABSORBS, NotTakenError
from octavo.graph.analysis.attention_search import AttentionSearch, heads_of
from octavo.graph.analysis.element_types import element_type, is_float32
from octavo.graph.analysis.heads import is_standard
from octavo.graph.analysis.kept_axes import known_size, same_size
from octavo.graph.context import Context
from octavo.graph.rewrite.attention import FUSED, put_attention
from octavo.ir import MS
from octavo.ir.activation_products import HEADS_FIRST, Attention, Causal, Guard, Hidden, Layout

LEFT = "left to ONNX Runtime"
FOUR_AXES, THREE_AXES = 4, 3


class LeftError(Exception):
    """Why a named attention stays as it is."""


@dataclass
class Named:
    """What a node of either operator says, as ours has it."""

    q: Operand
    k: Operand
    v: Operand
    groups: int
    scale: float
    bias: ir.Value | None = None
    mask: ir.Value | None = None
    causal: Causal = Causal.NO
    softcap: float = 0.0
    window: int = 0
    hidden: Hidden = Hidden.ZERO
    """With the lowest number added to the scores of hidden keys."""
    guard: Guard = Guard.NO
    presents: list[ir.Value] = field(default_factory=list)
    """New values in the places of the outputs after the first."""
    rows: bool = False
    """Its inputs and its output have three axes."""


def fuse_standard(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every Attention of ONNX itself in `graph`; count them."""
    return _fuse_each([n for n in graph if is_standard(n, "Attention")], _standard, c)


def fuse_multi_head(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every MultiHeadAttention in `graph`; count them.

    Their biases go to the layers before them, which take them in afterwards.
    """
    nodes = [n for n in graph if n.op_type == "MultiHeadAttention" and n.domain == MS]
    return _fuse_each(nodes, _multi_head, c)


Read = Callable[[ir.Node, AttentionSearch, Context], Named]


def _fuse_each(nodes: Sequence[ir.Node], read: Read, c: Context) -> dict[str, int]:
    search = AttentionSearch(c.model, c.constants, c.opset) if nodes else None
    count = 0
    for node in nodes:
        assert search is not None
        try:
            _take(node, read(node, search, c), search, c)
            count += 1
        except LeftError as why:
            c.note(node.name, f"{node.op_type} {LEFT}: {why}")
    return {FUSED: count}


def _take(node: ir.Node, named: Named, search: AttentionSearch, c: Context) -> None:
    q, k, v = named.q, named.k, named.v
    whole = Result(node.outputs[0], Layout.ROWS)
    result = whole if named.rows else search.results.result(node, q, v)
    operator = Attention(
        q.value,
        k.value,
        v.value,
        named.bias,
        heads_of(q, k, v),
        named.scale,
        result.shape,
        named.mask,
        (q.layout, k.layout, v.layout, result.layout),
        named.softcap,
        named.causal,
        named.window,
        named.groups,
        hidden=named.hidden,
        guard=named.guard,
        fits=result.fits,
    )
    for old, new in zip(node.outputs[1:], named.presents, strict=False):
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if old.name:
            name, old.name = old.name, None
            new.name = name
    put_attention(operator, node, result, (q, k, v), c)


def _standard(node: ir.Node, search: AttentionSearch, c: Context) -> Named:
    inputs = [*node.inputs, *[None] * 7][:7]
    query, key, value, mask, past_k, past_v, lengths = inputs
    if _is_read(node, 3):
        raise LeftError("its scores are an output")
    if lengths is not None:
        raise LeftError("each item of the batch has a number of keys of its own")
    precision = read_integer(node, "softmax_precision", int(ir.DataType.FLOAT))
    if precision != int(ir.DataType.FLOAT):
        raise LeftError("its softmax is computed in another type")
    if not all(is_float32(x, c.constants) for x in (query, key, value)):
        raise LeftError("its values are not known to be float32")
    q_heads, kv_heads = read_integer(node, "q_num_heads", 0), read_integer(node, "kv_num_heads", 0)
    causal = bool(read_integer(node, "is_causal", 0))
    left, right = (read_integer(node, f"{side}_window_size", -1) for side in ("left", "right"))
    if right > 0 or (left >= 0 and not causal):
        raise LeftError("it has a window that is not causal")
    _check_mask(mask, c)
    _check_axes((query, key, value), bool(q_heads), search)
    if causal and past_k is not None:
        _check_lengths(query, key, 1 if q_heads else 2, c)
    keys, values, presents = _with_past(node, (key, value), (past_k, past_v), kv_heads, c)
    q, k, v = _operands(query, keys, values, q_heads, kv_heads, bool(presents), search)
    named = Named(
        q, k, v, k.groups, read_number(node, "scale"), presents=presents, rows=bool(q_heads)
    )
    named.softcap = read_number(node, "softcap")
    if causal:
        named.causal = Causal.FIRST if past_k is None else Causal.LAST
        named.window = left + 1
    if element_type(mask, c.constants) is ir.DataType.BOOL:
        named.mask = mask
    elif mask is not None:
        named.bias, named.guard = mask, Guard.BIAS
    return named


def _multi_head(node: ir.Node, search: AttentionSearch, c: Context) -> Named:
    inputs = [*node.inputs, *[None] * 10][:10]
    query, key, value, bias, padding, added, past_k, past_v, *others = inputs
    if key is None or value is None or any(x is not None for x in others):
        raise LeftError("its keys and values are packed, or lie in a buffer")
    _check_axes((query, key, value), True, search)
    if not all(is_float32(x, c.constants) for x in (query, key, value)):
        raise LeftError("its values are not known to be float32")
    if _is_read(node, 3):
        raise LeftError("its scores are an output")
    if padding is not None and search.ranks(padding) != 2:
        raise LeftError("its mask is not [batch, keys]")
    causal = bool(read_integer(node, "unidirectional", 0))
    if causal:
        _check_lengths(query, key, 1, c)
    fill = read_number(node, "mask_filter_value") or -10000.0
    if padding is not None and causal and fill <= ABSORBS:
        raise LeftError("it hides padding as it does keys that come too late")
    heads = read_integer(node, "num_heads", 0)
    assert query is not None
    biases = _parts(bias, (query, key, value), c)
    query, key, value = (
        _biased(x, part, c) for x, part in zip((query, key, value), biases, strict=True)
    )
    keys, values, presents = _with_past(node, (key, value), (past_k, past_v), heads, c)
    q, k, v = _operands(query, keys, values, heads, heads, bool(presents), search)
    named = Named(q, k, v, 1, read_number(node, "scale"), added, presents=presents, rows=True)
    if causal:
        named.causal = Causal.FIRST if past_k is None else Causal.LAST
        # It adds the lowest number to the scores of keys that come too late.
        named.hidden = Hidden.ZERO if added is None else Hidden.MEAN
    if padding is not None:
        counts = c.emitter.cast(padding, ir.DataType.BOOL, f"{padding.name}_counts")
        counts = c.emitter.unsqueeze(counts, [1, 2], f"{padding.name}_keys")
        sides = [c.emitter.scalar(x, np.float32) for x in (0.0, fill)]
        filled = c.emitter.op("Where", [counts, *sides], out=f"{padding.name}_added")
        both = [filled] if added is None else [filled, added]
        named.bias = both[0] if len(both) == 1 else c.emitter.op("Add", both, out="bias_of_keys")
    return named


def _check_lengths(query: ir.Value | None, key: ir.Value | None, axis: int, c: Context) -> None:
    """Raise LeftError where they may differ: ONNX Runtime shows the last query every key then."""
    alike = query is not None and key is not None and same_size(query, axis, key, axis, c.constants)
    if not alike:
        raise LeftError("its queries and new keys are not known to be as many")


def _check_axes(values: Sequence[ir.Value | None], rows: bool, search: AttentionSearch) -> None:
    wanted = THREE_AXES if rows else FOUR_AXES
    if any(search.ranks(x) != wanted for x in values):
        raise LeftError(f"its values are not known to have {wanted} axes")


def _check_mask(mask: ir.Value | None, c: Context) -> None:
    known = (ir.DataType.BOOL, ir.DataType.FLOAT)
    if mask is not None and element_type(mask, c.constants) not in known:
        raise LeftError("the type of its mask is not known")


def _operands(
    query: ir.Value | None,
    key: ir.Value | None,
    value: ir.Value | None,
    q_heads: int,
    kv_heads: int,
    joined: bool,
    search: AttentionSearch,
) -> tuple[Operand, Operand, Operand]:
    """Q, K and V as they lie: as rows where heads are stated, or with four axes.

    Keys and values that were `joined` to those of a past have four.
    """
    assert query is not None and key is not None and value is not None
    if q_heads:
        layout = Layout.HEADS_OUTSIDE if joined else Layout.ROWS
        k, v = (
            Operand(x, layout, heads=kv_heads, groups=q_heads // kv_heads) for x in (key, value)
        )
        return Operand(query, Layout.ROWS, heads=q_heads), k, v
    q, k, v = (Operand(x, Layout.HEADS_OUTSIDE) for x in (query, key, value))
    try:
        found = search.placed(query, key, value, swapped=False)
    except NotTakenError:
        return q, k, v
    if any(x.factor != 1.0 or x.groups != 1 for x in found):
        return q, k, v
    q, k, v = found
    if q.heads and k.heads == v.heads and k.heads:
        groups = max(1, q.heads // k.heads)
        return q, replace(k, groups=groups), replace(v, groups=groups)
    return q, k.parted or k, v.parted or v


def _with_past(
    node: ir.Node,
    new: tuple[ir.Value | None, ir.Value | None],
    past: tuple[ir.Value | None, ir.Value | None],
    heads: int,
    c: Context,
) -> tuple[ir.Value | None, ir.Value | None, list[ir.Value]]:
    """Return all keys, all values, and the presents [B, H, T, D] if there is a past or a reader."""
    if past == (None, None) and not any(_is_read(node, i) for i in (1, 2)):
        return *new, []
    e, found = c.emitter, []
    for before, value, what in zip(past, new, ("keys", "values"), strict=True):
        name = f"{node.outputs[0].name}_{what}"
        last = value
        if heads:
            parted = e.op("Reshape", [value, e.vector([0, 0, heads, -1])], out=f"{name}_parted")
            last = e.transpose(parted, HEADS_FIRST, f"{name}_new")
        if before is not None:
            found.append(e.op("Concat", [before, last], out=name, axis=2))
        else:
            found.append(e.op("Identity", [last], out=name))
    return found[0], found[1], found


def _parts(bias: ir.Value | None, values: Sequence[ir.Value], c: Context) -> list[Any]:
    """Split a stored bias into those of queries, keys and values; None where they are 0."""
    if bias is None:
        return [None] * 3
    array = c.array(bias)
    if array is None:
        raise LeftError("its bias is not stored")
    widths = [known_size(x.shape[-1]) if x.shape is not None else None for x in values]
    known = [w for w in widths if isinstance(w, int)]
    if len(known) < 3 or sum(known) != array.size:
        raise LeftError("its bias is not known to be as wide as its queries, keys and values")
    parts = np.split(array.reshape(-1), np.cumsum(known[:2]))
    return [part if part.any() else None for part in parts]


def _biased(value: ir.Value, part: Any, c: Context) -> ir.Value:
    if part is None:
        return value
    name = f"{value.name}_biased"
    return c.emitter.op("Add", [value, c.emitter.constant(part, f"{name}_by")], out=name)


def _is_read(node: ir.Node, index: int) -> bool:
    if index >= len(node.outputs):
        return False
    return bool(node.outputs[index].uses()) or node.outputs[index].is_graph_output()


def read_integer(node: ir.Node, name: str, default: int) -> int:
    """Return the attribute `name`, or `default` where `node` does not have it."""
    given = node.attributes.get(name)
    return default if given is None else int(given.as_int())


def read_number(node: ir.Node, name: str) -> float:
    """Return the attribute `name`, or 0 where `node` does not have it."""
    given = node.attributes.get(name)
    return 0.0 if given is None else float(given.as_float())
