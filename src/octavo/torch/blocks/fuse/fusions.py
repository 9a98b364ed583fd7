"""Nodes that together are one step of a program: gelu, norms, rotary positions.

Attention (`attentions`), products that are gathered from (`gathered`) and linear layers
(`fused_linears`) have files of their own.
"""

from __future__ import annotations

import math
from typing import Any

from octavo.torch.blocks.fuse.attentions import fuse_attentions
from octavo.torch.blocks.fuse.fused_linears import fuse_linears
from octavo.torch.blocks.fuse.relative_position import fuse_gathered
from octavo.torch.blocks.nodes import (
    Graph,
    Node,
    binary_of,
    either_way,
    is_op,
    unary_of,
)


def fuse(graph: Graph) -> None:
    """Apply all fusions to the graph, in place, those that others build on first."""
    for rule in (spelled_gelu, rms_norm, weighted_norm, rotary, partial_rotary):
        graph.rewrite(rule)
    fuse_attentions(graph)
    fuse_gathered(graph)
    fuse_linears(graph)


def spelled_gelu(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse x (1 + erf(x / sqrt(2))) / 2, and the same with tanh."""
    pair = binary_of(node, "mul")
    if pair is None:
        return None
    for half, rest in either_way(pair):
        # (x / 2) * (1 + f), x * (0.5 * (1 + f)) and 0.5 * (x * (1 + f)) are all told by factors.
        found = _factors(half) + _factors(rest)
        numbers = math.prod(f for f in found if isinstance(f, float))
        nodes = [f for f in found if isinstance(f, Node)]
        if len(nodes) != 2 or not math.isclose(numbers, 0.5, rel_tol=1e-6):
            return None
        for x, curve in (nodes, nodes[::-1]):
            word = _gelu_curve(x, curve)
            if word:
                return Node("unary", (word, x), node.shape)
    return None


def _factors(value: Any) -> list[Any]:
    """Return the factors whose product is `value`: nodes and numbers."""
    if isinstance(value, (int, float)):
        return [float(value)]
    pair = binary_of(value, "mul")
    if pair is not None:
        return _factors(pair[0]) + _factors(pair[1])
    pair = binary_of(value, "div")
    if pair is not None and isinstance(pair[1], float) and pair[1]:
        return [*_factors(pair[0]), 1 / pair[1]]
    return [value]


def _gelu_curve(x: Node, curve: Node) -> str:
    """Return the gelu whose `curve` of x, 1 + erf or 1 + tanh, is given; "" for none."""
    pair = binary_of(curve, "add")
    if pair is None or pair[1] != 1.0:
        return ""
    inner = unary_of(pair[0], "erf")
    if inner is not None and _is_scaled(inner, x, math.sqrt(0.5)):
        return "gelu"
    inner = unary_of(pair[0], "tanh")
    if inner is None:
        return ""
    factors = _factors(inner)
    numbers = math.prod(f for f in factors if isinstance(f, float))
    sums = [f for f in factors if isinstance(f, Node)]
    if not math.isclose(numbers, math.sqrt(2 / math.pi), rel_tol=1e-4):
        return ""
    if len(sums) == 1:
        for first, cube in either_way(binary_of(sums[0], "add")):
            if first is x and _is_cube(cube, x):
                return "gelu_tanh"
    if len(sums) == 2 and x in sums:  # x (1 + 0.044715 x x)
        rest = sums[1] if sums[0] is x else sums[0]
        pair = binary_of(rest, "add")
        if pair is not None and pair[1] == 1.0 and _is_power(pair[0], x, 2):
            return "gelu_tanh"
    return ""


def _is_scaled(value: Any, x: Node, scale: float) -> bool:
    factors = _factors(value)
    numbers = math.prod(f for f in factors if isinstance(f, float))
    return [f for f in factors if isinstance(f, Node)] == [x] and math.isclose(
        numbers, scale, rel_tol=1e-4
    )


def _is_cube(value: Any, x: Node) -> bool:
    return _is_power(value, x, 3)


def _is_power(value: Any, x: Node, exponent: int) -> bool:
    """Tell whether `value` is 0.044715 x^exponent."""
    total, numbers = 0.0, 1.0
    for factor in _factors(value):
        if isinstance(factor, float):
            numbers *= factor
        elif factor is x:
            total += 1
        elif is_op(factor, "power") and factor.args[0] is x:
            total += factor.args[1]
        else:
            return False
    return total == exponent and math.isclose(numbers, 0.044715, rel_tol=1e-3)


# --- norms ---


def rms_norm(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse x * rsqrt(mean(x^2) + eps), and x / sqrt(the same)."""
    candidates: list[tuple[Any, Any]] = []
    for x, root in either_way(binary_of(node, "mul")):
        candidates.append((x, unary_of(root, "rsqrt") or _power_of(root, -0.5)))
    pair = binary_of(node, "div")
    if pair is not None:
        candidates.append((pair[0], unary_of(pair[1], "sqrt") or _power_of(pair[1], 0.5)))
    for x, inside in candidates:
        if not isinstance(x, Node) or inside is None:
            continue
        pair = binary_of(inside, "add")
        if pair is None or not isinstance(pair[1], float) or not is_op(pair[0], "mean"):
            continue
        if pair[0].args[1] and _square_of(pair[0].args[0]) is x:
            return Node("norm", (x, None, None), x.shape, x.dtype, {"kind": "rms", "eps": pair[1]})
    return None


def _power_of(value: Any, exponent: float) -> Any:
    return value.args[0] if is_op(value, "power") and value.args[1] == exponent else None


def _square_of(value: Any) -> Any:
    if is_op(value, "power") and value.args[1] == 2.0:
        return value.args[0]
    pair = binary_of(value, "mul")
    return pair[0] if pair is not None and pair[0] is pair[1] else None


def weighted_norm(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse a constant over the last axis into a norm, as the weight or bias that it lacks."""
    for normed, weight in either_way(binary_of(node, "mul")):
        if _takes(normed, weight, uses) and normed.args[1] is None and normed.args[2] is None:
            args = (normed.args[0], weight, None)
            return Node("norm", args, node.shape, node.dtype, normed.attributes)
    for normed, bias in either_way(binary_of(node, "add")):
        if _takes(normed, bias, uses) and normed.args[2] is None:
            if normed.attributes["kind"] != "layer":
                continue
            args = (*normed.args[:2], bias)
            return Node("norm", args, node.shape, node.dtype, normed.attributes)
    return None


def _takes(normed: Any, constant: Any, uses: dict[int, int]) -> bool:
    return (
        is_op(normed, "norm")
        and is_op(constant, "constant")
        and constant.shape == normed.shape[-1:]
        and uses.get(id(normed)) == 1
    )


# --- rotary positions ---


def rotary(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse x cos + rotate_half(x) sin."""
    pair = binary_of(node, "add")
    for first, second in either_way(pair):
        for x, cos in either_way(binary_of(first, "mul")):
            for turned, sin in either_way(binary_of(second, "mul")):
                if not all(isinstance(n, Node) for n in (x, cos, turned, sin)):
                    continue
                if len(x.shape) != 4 or x.shape != node.shape:
                    continue
                pairs = _pairs_turned(turned, x)
                if pairs or _is_turned(turned, x):
                    return _rotary_of(x, cos, sin, pairs)
    return None


def _rotary_of(x: Node, cos: Node, sin: Node, pairs: bool) -> Node | None:
    """Make the rotary node of x [B, H, S, D] or [B, S, H, D], whose axis S the tables follow."""
    how = {"pairs": pairs}
    if all(_follows(table.shape, x.shape, 2) for table in (cos, sin)):
        return Node("rotary", (x, cos, sin), x.shape, attributes=how)
    if not all(_follows(table.shape, x.shape, 1) for table in (cos, sin)):
        return None
    x, cos, sin = (_rows_last(node) for node in (x, cos, sin))
    return _rows_last(Node("rotary", (x, cos, sin), x.shape, attributes=how))


def _follows(table: tuple[Any, ...], x: tuple[Any, ...], axis: int) -> bool:
    """Tell whether a table is as long as `axis` of x, and 1 in the other of axes 1 and 2."""
    if len(table) > 4:
        return False
    table = (1,) * (4 - len(table)) + table
    return table[0] in (1, x[0]) and table[axis] == x[axis] and table[3 - axis] == 1


def _rows_last(node: Node) -> Node:
    """Permute [B, S, H, D] to [B, H, S, D], and the other way round."""
    for _ in range(4 - len(node.shape)):
        node = Node("unsqueeze", (node, 0), (1, *node.shape))
    order = (0, 2, 1, 3)
    return Node("permute", (node, order), tuple(node.shape[a] for a in order))


def _pairs_turned(value: Node, x: Node) -> bool:
    """Tell whether `value` is (-x[1], x[0], -x[3], x[2], ...) of the pairs of x."""
    if not is_op(value, "reshape") or value.shape != x.shape or not is_op(value.args[0], "cat"):
        return False
    parts, axis = value.args[0].args
    last, width = len(x.shape) - 1, x.shape[-1]
    if axis != last + 1 or not all(is_op(p, "unsqueeze") and p.args[1] == axis for p in parts):
        return False
    odd, even = unary_of(parts[0].args[0], "neg"), parts[1].args[0]
    if not (is_op(odd, "slice") and is_op(even, "slice")) or not isinstance(width, int):
        return False
    assert odd is not None
    return odd.args == (x, last, 1, width, 2) and even.args[:3] + even.args[4:] == (x, last, 0, 2)


def _is_turned(value: Node, x: Node) -> bool:
    """Tell whether `value` is cat(-x2, x1) of the halves of x."""
    width, last = x.shape[-1], len(x.shape) - 1
    if not is_op(value, "cat") or value.args[1] != last or len(value.args[0]) != 2:
        return False
    upper, lower = unary_of(value.args[0][0], "neg"), value.args[0][1]
    if not isinstance(width, int) or width % 2 or not is_op(upper, "slice"):
        return False
    assert upper is not None
    return (
        is_op(lower, "slice")
        and upper.args[:4] == (x, last, width // 2, width)
        and lower.args[:4] == (x, last, 0, width // 2)
    )


def partial_rotary(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse a rotation of the first elements of each head, the rest of which is unchanged."""
    if not is_op(node, "cat") or len(node.args[0]) != 2:
        return None
    turned, rest = node.args[0]
    if not is_op(turned, "rotary") or not is_op(rest, "slice") or node.args[1] != 3:
        return None
    head, width = turned.args[0], turned.shape[3]
    if not is_op(head, "slice") or head.args[0] is not rest.args[0]:
        return None
    x = head.args[0]
    if x.shape != node.shape or head.args[1:4] != (3, 0, width):
        return None
    if rest.args[1:4] != (3, width, x.shape[3]):
        return None
    return Node("rotary", (x, *turned.args[1:]), x.shape, attributes=turned.attributes)
