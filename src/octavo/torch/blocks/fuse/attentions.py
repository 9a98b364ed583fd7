"""Attention that is spelled out, as one step.

    softmax(q k^T * scale + bias, masked) v        ->        attention(q, k, v, bias, mask)

And what stands before it: heads of keys and values that are repeated for groups of queries.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from octavo.torch.blocks.nodes import Graph, Node, binary_of, either_way, is_op, unary_of

HIDDEN = -1e4
"""What a mask fills in is at most this."""
ABSORBS = -1e9
"""At most this swallows a score that it is added to: filling it in and adding it are the same."""


def fuse_attentions(graph: Graph) -> None:
    """Fuse all attentions in the graph, in place."""
    graph.rewrite(spelled_attention)
    graph.rewrite(grouped_heads)
    graph.rewrite(plain_reshape)


def spelled_attention(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse matmul(softmax(scores), v) over matmul(q, k^T); batch and heads may be one axis."""
    if not is_op(node, "matmul"):
        return None
    weights, v = node.args
    if uses.get(id(weights)) != 1:
        return None
    if is_op(weights, "reshape") and len(weights.shape) == 3:
        weights = weights.args[0]
    if not is_op(weights, "softmax") or len(weights.shape) != 4 or uses.get(id(weights)) != 1:
        return None
    scores = _Scores(weights.args[0], uses)
    if scores.product is None:
        return None
    heads = weights.shape[:2]
    keys, by_keys = _unscaled(scores.product.args[1], uses)
    q, by_queries = _unscaled(scores.product.args[0], uses)
    k = transposed_rows(keys)
    if not all(_has_heads(n, heads) for n in (q, k, v)):
        return None
    q, k, v = (_with_heads(n, heads) for n in (q, k, v))
    bias, mask = scores.added(weights.shape)
    scale = scores.scale * by_keys * by_queries
    attributes = {"scale": scale, "causal": False, "softcap": scores.softcap}
    shape = (*weights.shape[:3], v.shape[3])
    made = Node("attention", (q, k, v, bias, mask), shape, attributes=attributes)
    return made if shape == node.shape else Node("reshape", (made,), node.shape)


def plain_reshape(node: Node, uses: dict[int, int]) -> Node | None:
    """Merge a reshape of a reshape into one; where the second undoes the first, drop both."""
    if not is_op(node, "reshape") or not is_op(node.args[0], "reshape"):
        return None
    base: Node = node.args[0].args[0]
    return base if base.shape == node.shape else node.with_args((base,))


def _unscaled(value: Node, uses: dict[int, int]) -> tuple[Node, float]:
    """Return `value` without factors that are numbers, and the product of these factors."""
    scale = 1.0
    while isinstance(pair := binary_of(value, "mul") or binary_of(value, "div"), tuple):
        if not isinstance(pair[1], float) or uses.get(id(value)) != 1:
            break
        scale = scale * pair[1] if value.args[0] == "mul" else scale / pair[1]
        value = pair[0]
    return value, scale


def _has_heads(value: Node, heads: tuple[Any, ...]) -> bool:
    """Tell whether `value` has four axes, or three of which the first is batch and heads."""
    rank = len(value.shape)
    return rank == 4 or (rank == 3 and value.shape[0] == heads[0] * heads[1])


def _with_heads(value: Node, heads: tuple[Any, ...]) -> Node:
    """Reshape [B * H, S, D] to [B, H, S, D]; a reshape of such a node becomes that node."""
    if len(value.shape) == 4:
        return value
    shape = (*heads, *value.shape[1:])
    base = value.args[0] if value.op == "reshape" else value
    return base if base.shape == shape else Node("reshape", (base,), shape, value.dtype)


def transposed_rows(keys: Node) -> Node:
    """Transpose the last two axes of `keys`; a transposed view becomes the original again."""
    if keys.op == "permute":
        axes = (*keys.args[1][:-2], keys.args[1][-1], keys.args[1][-2])
        if axes == tuple(range(len(axes))):
            found: Node = keys.args[0]
            return found
        base = keys.args[0]
    else:
        base, axes = keys, (*range(len(keys.shape) - 2), len(keys.shape) - 1, len(keys.shape) - 2)
    return Node("permute", (base, axes), tuple(base.shape[a] for a in axes))


class _Scores:
    """What a softmax is taken of: `softcap(q k^T * scale) + bias`, hidden by a mask."""

    def __init__(self, value: Node, uses: dict[int, int]) -> None:
        self.product: Node | None = None
        self.scale, self.softcap = 1.0, 0.0
        self.bias: Node | None = None
        self.mask: Node | None = None
        self._hidden = -math.inf
        self._uses = uses
        self._read(value)

    def _read(self, value: Node) -> None:
        while self._uses.get(id(value), 1) == 1 or value.op == "matmul":
            if value.op == "matmul":
                if len(value.shape) in (3, 4):
                    self.product = value
                return
            if value.op == "reshape" and value.shape[2:] == value.args[0].shape[1:]:
                value = value.args[0]
                continue
            inner = self._masked(value) or self._biased(value)
            if inner is not None:
                value = inner
                continue
            pair = binary_of(value, "mul") or binary_of(value, "div")
            if pair is None or not isinstance(pair[1], float):
                return
            factor = pair[1] if value.args[0] == "mul" else 1 / pair[1]
            tanh = unary_of(pair[0], "tanh")
            if tanh is not None and not self.softcap and self.scale == 1.0:
                self.softcap = factor
                pair = binary_of(tanh, "mul") or binary_of(tanh, "div")
                if pair is None or not isinstance(pair[1], float):
                    return
                inside = pair[1] if tanh.args[0] == "div" else 1 / pair[1]
                if not math.isclose(inside, factor, rel_tol=1e-5):
                    return
                value = pair[0]
                continue
            self.scale *= factor
            value = pair[0]

    def _biased(self, value: Node) -> Node | None:
        pair = binary_of(value, "add")
        if pair is None or self.scale != 1.0 or self.softcap:
            return None
        for scores, added in either_way(pair):
            if not isinstance(added, Node) or not self._leads_to_product(scores):
                continue
            if added.dtype != torch.float32 or scores.shape != value.shape:
                continue
            both = self.bias and Node("binary", ("add", self.bias, added), _wider(self.bias, added))
            self.bias = both or added
            return scores  # type: ignore[no-any-return]
        return None

    def _masked(self, value: Node) -> Node | None:
        if not is_op(value, "where") or self.mask is not None or self.scale != 1.0:
            return None
        condition, a, b = value.args
        if isinstance(a, Node) and isinstance(b, (int, float)) and b <= HIDDEN:
            scores, mask, hidden = a, condition, b
        elif isinstance(b, Node) and isinstance(a, (int, float)) and a <= HIDDEN:
            inner = unary_of(condition, "not")
            mask = inner or Node("unary", ("not", condition), condition.shape, torch.bool)
            scores, hidden = b, a
        else:
            return None
        if scores.shape != value.shape or not self._leads_to_product(scores):
            return None
        if hidden > ABSORBS:  # where every key is hidden, filling and adding give other weights
            return None
        self.mask, self._hidden = mask, float(hidden)
        return scores

    def added(self, shape: tuple[Any, ...]) -> tuple[Node | None, Node | None]:
        """Return bias and mask of scores of this shape [B, H, S, T]."""
        bias, mask = self.bias, self.mask
        if bias is not None and len(bias.shape) == 3 and bias.shape[0] == shape[0] * shape[1]:
            bias = Node("reshape", (bias,), shape)
        if bias is None and mask is not None and math.isfinite(self._hidden):
            return Node("where", (mask, 0.0, self._hidden), tuple(mask.shape)), None
        if bias is not None and mask is not None and math.isfinite(self._hidden):
            # The same number in all places of a row counts all keys, other than a mask does.
            bias = Node("where", (mask, bias, self._hidden), _wider(bias, mask))
            mask = None
        return bias, mask

    def _leads_to_product(self, value: Any) -> bool:
        """Tell whether `value` comes from a matrix product, through steps that are read here."""
        for _ in range(8):
            if not isinstance(value, Node):
                return False
            if value.op == "matmul":
                return True
            if value.op == "binary" and value.args[0] in ("add", "mul", "div"):
                a, b = value.args[1:]
                if value.args[0] == "add" and isinstance(b, Node) and self._leads_to_product(b):
                    return True
                value = a
            elif value.op == "reshape":
                value = value.args[0]
            elif value.op == "where":
                value = value.args[1] if isinstance(value.args[1], Node) else value.args[2]
            elif value.op == "unary" and value.args[0] == "tanh":
                value = value.args[1]
            else:
                return False
        return False


def _wider(a: Node, b: Node) -> tuple[Any, ...]:
    """Return the broadcast shape of the sum of two nodes."""
    rank = max(len(a.shape), len(b.shape))
    one, other = ((1,) * (rank - len(n.shape)) + n.shape for n in (a, b))
    return tuple(y if x == 1 else x for x, y in zip(one, other, strict=True))


def grouped_heads(node: Node, uses: dict[int, int]) -> Node | None:
    """Drop repeated heads of keys and values: attention runs over the heads that there are."""
    if not is_op(node, "attention"):
        return None
    q, k, v, bias, mask = node.args
    keys, values = _repeated(k), _repeated(v)
    if keys is None or values is None or keys.shape[1] != values.shape[1]:
        return None
    return node.with_args((q, keys, values, bias, mask))


def _repeated(heads: Node) -> Node | None:
    """Return the [B, Hkv, T, D] behind unsqueeze, expand and reshape to more heads, or None."""
    if not is_op(heads, "reshape") or not is_op(heads.args[0], "expand"):
        return None
    wide = heads.args[0]
    if not is_op(wide.args[0], "unsqueeze") or wide.args[0].args[1] != 2:
        return None
    found: Node = wide.args[0].args[0]
    kept = (found.shape[0], *found.shape[2:])
    return found if len(found.shape) == 4 and (heads.shape[0], *heads.shape[2:]) == kept else None
