"""Attention as exporters write it, twenty nodes and more  ->  one Attention node.

    q, k ─ MatMul ─ Mul(scale) ─ Add(mask) ─ Softmax ─┐
    v ────────────────────────────────────────────────┴ MatMul ─ Transpose ─ Reshape
                             ->  Attention(q, k, v, mask)

`octavo.graph.analysis.attention_search` shows what is looked for. What is computed stays float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.attention_operands import Operand
from octavo.graph.analysis.attention_results import Result
from octavo.graph.analysis.attention_scores import Condition, NotTakenError, Term, Why
from octavo.graph.analysis.attention_search import (
    AttentionSearch,
    Refused,
    SpelledAttention,
    heads_of,
)
from octavo.graph.analysis.heads import is_standard
from octavo.graph.analysis.kept_axes import known_size
from octavo.graph.context import Context
from octavo.ir.activation_products import (
    HEADS_FIRST,
    REST,
    SIZE_OF_Q,
    Attention,
    Guard,
    Hidden,
)
from octavo.ir.linear import GroupedLinear, Linear
from octavo.ir.weight import Weight

FUSED = "attentions became one node each, in float32"
LEFT = "a softmax between two products that is no one node, because"


def reference(
    q: npt.NDArray[Any],
    k: npt.NDArray[Any],
    v: npt.NDArray[Any],
    heads: int,
    scale: float,
    bias: npt.NDArray[Any] | None = None,
) -> npt.NDArray[np.float64]:
    """Compute attention in float64: q [B, S, H*D], k [B, T, H*D], v [B, T, H*E] -> [B, S, H*E]."""

    def split(x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        parted = np.asarray(x, np.float64).reshape(*x.shape[:2], heads, -1)
        turned: npt.NDArray[np.float64] = parted.transpose(HEADS_FIRST)
        return turned

    scores = split(q) @ split(k).swapaxes(-1, -2) * scale
    if bias is not None:
        scores = scores + np.asarray(bias, np.float64)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    held: npt.NDArray[np.float64] = (weights @ split(v)).transpose(HEADS_FIRST)
    return held.reshape(*held.shape[:2], -1)


# docs/notes/native_target.md: "Attention is one node in float32"
def fuse_attention(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every attention of `graph` that has the form above; count them.

    What looks like one and is none is noted with its reason.
    """
    if not any(is_standard(node, "Softmax") for node in graph):
        return {}
    count = 0
    for found in AttentionSearch(c.model, c.constants, c.opset)(graph):
        if isinstance(found, Refused):
            c.note(found.softmax.name, f"{LEFT} {found.reason}")
            continue
        try:
            _fuse(found, c)
        except NotTakenError as why:
            c.note(found.softmax.name, f"{LEFT} {why}")
        else:
            count += 1
    return {FUSED: count}


def _fuse(found: SpelledAttention, c: Context) -> None:
    out = found.result.value.name or "attention"
    operands = found.q, found.k, found.v
    put_attention(_operator(found, out, c), found.product, found.result, operands, c)


def put_attention(
    operator: Attention,
    node: ir.Node,
    result: Result,
    operands: Sequence[Operand],
    c: Context,
) -> None:
    """Replace the node that gives `result` by `operator`, whose inputs are there before `node`.

    Nodes that are not read any more are removed.
    """
    last, e, out = result.value.producer(), c.emitter, result.value.name or "attention"
    assert last is not None
    values = c.put(operator, name=f"{out}/Attention", outs=[out])
    listed = {axes for _, axes in result.sizes if axes is not None}
    whole = e.op("Shape", values, out=f"{out}_sizes") if listed else None
    sizes = {
        axes: e.op("Gather", [whole, e.vector(axes)], out=f"{out}_sizes_turned", axis=0)
        for axes in listed
    }
    e.flush_before(node)
    for shape, axes in result.sizes:
        if axes is not None:
            c.sweeper.replace(shape, [sizes[axes]])
    c.sweeper.replace(last, values)
    for operand in operands:
        for passed in operand.passed:
            _read_sizes_before(passed, c)


def _operator(found: SpelledAttention, out: str, c: Context) -> Attention:
    scores, result = found.scores, found.result
    hiding = _hiding(found, c)
    masks = hiding.masks
    terms = [*scores.terms, *(_filled(fill, out, c) for fill in hiding.added)]
    shape = result.shape
    width = found.q.heads * found.v.depth
    if shape[2] == REST and SIZE_OF_Q in shape and _is_read_as(result.value, width):
        shape = (*shape[:2], width)
    finite = all(np.isfinite(m.fill) for m in masks) and found.zeroed is None
    mean = bool(masks) and finite and found.sinks is None  # else a sink has all the weight
    return Attention(
        found.q.value,
        found.k.value,
        found.v.value,
        _sum(terms, found, out, c),
        heads_of(found.q, found.k, found.v),
        found.scale if scores.outer is None else found.scale * scores.outer,
        shape,
        _all(masks, found, out, c),
        (found.q.layout, found.k.layout, found.v.layout, result.layout),
        scores.outer or 0.0,
        groups=found.k.groups,
        hidden=Hidden.MEAN if mean else Hidden.ZERO,
        fill=masks[0].fill if mean else 0.0,
        replaces=mean and hiding.replaces,
        guard=Guard.WEIGHTS if found.guarded else Guard.NO,
        fits=result.fits,
        joined_bias=any(term.joined for term in scores.terms),
        sinks=None if found.sinks is None else _sinks(found.sinks, out, c),
    )


def _sinks(sinks: ir.Value, out: str, c: Context) -> ir.Value:
    """Reshape sinks [1, heads, 1, 1] to [heads]."""
    stored = c.array(sinks)
    if stored is not None:
        return c.emitter.constant(np.asarray(stored, np.float32).reshape(-1), f"{out}_sinks")
    return c.emitter.op("Reshape", [sinks, c.emitter.vector([-1])], out=f"{out}_sinks")


@dataclass(frozen=True)
class _Hiding:
    """Conditions that are a mask, and those that are added."""

    masks: list[Condition]
    added: list[Condition]
    replaces: bool = False
    """The number that hides a key replaces the terms added before it, too."""


def _hiding(found: SpelledAttention, c: Context) -> _Hiding:
    """Tell how keys are hidden. Raises NotTakenError.

    Where one condition fills in a finite number it is the mask, because a query of which every key
    is hidden gets weights of what is filled in.
    """
    conditions = [m for m in found.scores.conditions if not _hides_nothing(m, found, c)]
    finite = [m for m in conditions if np.isfinite(m.fill)]
    if not finite or found.zeroed is not None or found.sinks is not None:
        return _Hiding(conditions, [])
    masks = [m for m in finite if not m.added]
    if not masks:
        return _Hiding(finite[:1], [m for m in conditions if m is not finite[0]])
    places = [conditions.index(m) for m in masks]
    inside = conditions[places[0] : places[-1] + 1]
    if len({(m.fill, m.behind) for m in masks}) > 1 or len(inside) > len(masks):
        raise NotTakenError(Why.BETWEEN, "two numbers that hide keys")
    before = bool(masks[0].behind) or places[0] > 0
    after = len(found.scores.terms) > masks[0].behind or places[-1] + 1 < len(conditions)
    if before and after:
        raise NotTakenError(Why.BETWEEN, "Where between two sums")
    return _Hiding(masks, [m for m in conditions if m not in masks], replaces=before)


def _hides_nothing(condition: Condition, found: SpelledAttention, c: Context) -> bool:
    """Tell whether every key counts by `condition`, as in a mask of a model without padding.

    The condition has to be no larger than the products.
    """
    value = condition.value
    node = value.producer()
    if node is not None and is_standard(node, "Expand"):
        stored = c.array(node.inputs[0])
    else:
        stored = c.array(value)
    if stored is None or not stored.size or not (stored == condition.counts).all():
        return False
    shape = stored.shape if value.shape is None else [known_size(d) for d in value.shape]
    axes = list(zip((found.q, found.q, found.q, found.k), (0, 1, 2, 2), strict=True))
    wanted = axes[max(0, len(axes) - len(shape)) :]
    return len(shape) <= len(axes) and all(
        size == 1 or size in _stated(operand, axis)
        for size, (operand, axis) in zip(shape, wanted, strict=True)
    )


def _stated(operand: Operand, axis: int) -> set[int | str]:
    """Return the sizes and names that the model states for `axis` of [B, heads, L, D]."""
    found = (
        known_size(value.shape[places[axis]])
        for value, places in operand.axes.items()
        if value.shape is not None and 0 <= places[axis] < len(value.shape)
    )
    return {size for size in found if size is not None}


def _filled(condition: Condition, out: str, c: Context) -> Term:
    e = c.emitter
    sides = [e.scalar(0.0, np.float32), e.scalar(condition.fill, np.float32)]
    inputs = [condition.value, *(sides if condition.counts else reversed(sides))]
    return Term(e.op("Where", inputs, out=f"{out}_filled"))


def _sum(terms: Sequence[Term], found: SpelledAttention, out: str, c: Context) -> ir.Value | None:
    """Sum the terms up to one bias, made once for all attentions that add the same."""

    def make() -> ir.Value:
        parts = [
            term.value
            if term.factor == 1.0
            else c.emitter.op(
                "Mul", [term.value, c.emitter.scalar(term.factor, np.float32)], out=f"{out}_term"
            )
            for term in terms
        ]
        return reduce(lambda a, b: c.emitter.op("Add", [a, b], out=f"{out}_bias"), parts)

    key = "attention bias", found.product.graph, tuple((t.value, t.factor) for t in terms)
    return c.once(key, make) if terms else None


def _all(
    masks: Sequence[Condition], found: SpelledAttention, out: str, c: Context
) -> ir.Value | None:
    """Join the conditions into one mask, made once for all attentions that have the same."""

    def make() -> ir.Value:
        parts = [
            m.value if m.counts else c.emitter.op("Not", [m.value], out=f"{out}_counts")
            for m in masks
        ]
        return reduce(lambda a, b: c.emitter.op("And", [a, b], out=f"{out}_mask"), parts)

    key = "attention mask", found.product.graph, tuple((m.value, m.counts) for m in masks)
    return c.once(key, make) if masks else None


def _is_read_as(value: ir.Value, width: int) -> bool:
    """Tell whether a layer reads `value` that takes no other last size than `width`."""
    readers = [use.node for use in value.uses() if use.idx == 0]
    return any(w is not None and w.k == width for w in map(_weight, readers))


def _weight(node: ir.Node) -> Weight | None:
    """Return the weight of the first layer of a linear node; None for another node."""
    linear, group = Linear.of(node), GroupedLinear.of(node)
    if linear is not None:
        return linear.weight
    return None if group is None else group.parts[0].weight


def _read_sizes_before(node: ir.Node, c: Context) -> None:
    """Lets Shapes of what a Transpose gives list the sizes of what it reads."""
    source = node.inputs[0] if node.inputs else None
    if node.graph is None or source is None or not is_standard(node, "Transpose"):
        return
    uses = list(node.outputs[0].uses())
    if node.outputs[0].is_graph_output() or not all(
        is_standard(use.node, "Shape") and not use.node.attributes for use in uses
    ):
        return
    perm = node.attributes["perm"].as_ints()
    for use in uses:
        name = use.node.outputs[0].name or "sizes"
        own = c.emitter.op("Shape", [source], out=f"{name}_before")
        axes = c.emitter.vector(perm)
        turned = c.emitter.op("Gather", [own, axes], out=name, axis=0)
        c.emitter.flush_before(use.node)
        c.sweeper.replace(use.node, [turned])
    c.sweeper.unused(node.outputs[0])
