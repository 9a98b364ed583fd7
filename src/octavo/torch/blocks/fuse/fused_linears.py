"""Linear layers with what stands before and behind them, as one step.

act(linear(x)), act(first(x)) * second(x), linear(x) + residual, linear(norm(x))
"""

from __future__ import annotations

from typing import Any

from octavo.torch.blocks.fuse.relative_position import span_linears
from octavo.torch.blocks.nodes import Graph, Node, binary_of, either_way, is_op

ACTIVATIONS = frozenset("relu gelu gelu_tanh silu tanh sigmoid".split())
"""Those that linear layers compute in their pass."""


def fuse_linears(graph: Graph) -> None:
    """Fuse linear layers with what comes before and after them, in place."""
    for rule in (activated_linear, gated_linear, added_linear):
        graph.rewrite(rule)
    join_linears(graph)
    span_linears(graph)
    normed_linears(graph)


def activated_linear(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse act(linear(x))."""
    if not is_op(node, "unary") or node.args[0] not in ACTIVATIONS:
        return None
    linear = node.args[1]
    if not _plain(linear, uses) or linear.attributes["activation"] != "none":
        return None
    attributes = {**linear.attributes, "activation": node.args[0]}
    return Node("linear", linear.args, linear.shape, linear.dtype, attributes)


def _plain(value: Any, uses: dict[int, int]) -> bool:
    """Tell whether `value` is a linear layer that is read once and has no residual yet."""
    return is_op(value, "linear") and value.args[1] is None and uses.get(id(value)) == 1


def gated_linear(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse act(first(x)) * second(x)."""
    for first, second in either_way(binary_of(node, "mul")):
        if not _plain(first, uses) or not _plain(second, uses) or first is second:
            continue
        a, b = first.attributes, second.attributes
        if a["quantizes"] != b["quantizes"] or b["activation"] != "none":
            continue
        if first.args[0] is not second.args[0] or a["activation"] == "tanh":
            continue
        made = {"layers": (a["layer"], b["layer"]), "gate": a["activation"]}
        return Node("gated", (first.args[0],), node.shape, node.dtype, made)
    return None


def added_linear(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse linear(x) + residual."""
    for linear, other in either_way(binary_of(node, "add")):
        if not _plain(linear, uses) or not isinstance(other, Node):
            continue
        if other.shape != linear.shape or other.dtype != linear.dtype:
            continue
        return Node("linear", (linear.args[0], other), linear.shape, attributes=linear.attributes)
    return None


def join_linears(graph: Graph) -> None:
    """Join linear layers over one input, which is then quantized once for all of them."""
    sets: dict[tuple[int, Any], list[Node]] = {}
    for node in graph.nodes():
        if node.op == "linear" and node.args[1] is None:
            key = id(node.args[0]), node.attributes["quantizes"]
            sets.setdefault(key, []).append(node)
    for nodes in sets.values():
        if len(nodes) == 1:
            continue
        made = {
            "layers": tuple(n.attributes["layer"] for n in nodes),
            "activations": tuple(n.attributes["activation"] for n in nodes),
        }
        together = Node("linears", (nodes[0].args[0],), (), attributes=made)
        for place, node in enumerate(nodes):
            node.op, node.args, node.attributes = "item", (together, place), {}


def normed_linears(graph: Graph) -> None:
    """Fuse a norm into the layers that read it: its rows are quantized where they are made.

    The norm's own result is one of the layers' results where something else reads it.
    """
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes():
        for read in node.inputs:
            readers.setdefault(id(read), []).append(node)
    outputs = {id(node) for node in graph.outputs}
    for norm in graph.nodes():
        if not is_op(norm, "norm"):
            continue
        found = readers.get(id(norm), [])
        layers = [n for n in found if is_op(n, "linear", "linears", "gated") and n.args[0] is norm]
        if len(layers) != 1 or (layers[0].op == "linear" and layers[0].args[1] is not None):
            continue
        kept = len(found) > 1 or id(norm) in outputs
        _take_norm(norm, layers[0], kept)


def _take_norm(norm: Node, node: Node, kept: bool) -> None:
    how = {"layers": (), "activations": (), "gate": "", **node.attributes}
    if node.op == "linear":
        how |= {"layers": (how["layer"],), "activations": (how["activation"],)}
    how |= {"norm": norm.attributes, "kept": kept}
    together = node
    if node.op == "linears":
        node.op, node.args, node.attributes = "normed", norm.args, how
    else:
        together = Node("normed", norm.args, (), attributes=how)
        node.op, node.args, node.attributes = "item", (together, 0), {}
    if kept:
        norm.op, norm.args, norm.attributes = "item", (together, -1), {}
