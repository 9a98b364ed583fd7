"""Products that are gathered from, as relative positions are: of what indices name alone.

gather(matmul(a, table^T), -1, index)      ->     gathered(a, table, index)
linear(x), read as such tables alone       ->     of the rows of x that the indices name
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from octavo.torch.blocks.fuse.attentions import transposed_rows
from octavo.torch.blocks.nodes import Graph, Node, is_op


def fuse_gathered(graph: Graph) -> None:
    """Fuse all gathers from matrix products in the graph, in place."""
    graph.rewrite(gathered_product)
    graph.rewrite(turned)


def gathered_product(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse gather(matmul(a, b), -1, index), where nothing else reads the product."""
    if not is_op(node, "gather") or node.args[1] != len(node.shape) - 1:
        return None
    product, _, index = node.args
    if not is_op(product, "matmul") or uses.get(id(product)) != 1 or len(node.shape) not in (3, 4):
        return None
    a, table = product.args[0], transposed_rows(product.args[1])
    while is_op(index, "expand") and len(index.args[0].shape) == len(index.shape):
        index = index.args[0]
    heads = _with_heads(a, table, index)
    a, table, index = heads or (a, table, index)
    lead = a.shape[:-2]
    if any(len(n.shape) != len(a.shape) or not _fits(n.shape, lead) for n in (table, index)):
        return None
    if index.shape[-2] != a.shape[-2]:
        return None
    shape = (*lead, *index.shape[-2:])
    made = Node("gathered", (a, table, index), shape, attributes={"turned": False})
    return made if shape == node.shape else Node("reshape", (made,), node.shape)


def _fits(shape: Sequence[Any], lead: Sequence[Any]) -> bool:
    """Tell whether the axes of `shape` before the last two are those of `lead`, or 1."""
    return all(size in (1, wanted) for size, wanted in zip(shape[:-2], lead, strict=True))


def _with_heads(a: Node, table: Node, index: Node) -> tuple[Node, Node, Node] | None:
    """Return the nodes with batch and heads as two axes; None where no reshape had merged them."""
    if len(a.shape) != 3 or not is_op(a, "reshape") or len(a.args[0].shape) != 4:
        return None
    if index.shape[0] != 1 or not is_op(table, "reshape"):
        return None
    found, rows = a.args[0], table.args[0]
    if is_op(rows, "expand"):
        rows = rows.args[0]
    if is_op(rows, "unsqueeze") and rows.args[1] == 0 and is_op(rows.args[0], "reshape"):
        before = rows.args[0].args[0]
        rows = before if before.shape == rows.shape else rows
    heads = found.shape[:2]
    alike = len(rows.shape) == 4 and rows.shape[1:] == (heads[1], *table.shape[1:])
    if found.shape[2:] != a.shape[1:] or not alike or rows.shape[0] not in (1, heads[0]):
        return None
    return found, rows, Node("unsqueeze", (index, 0), (1, *index.shape), index.dtype)


def turned(node: Node, uses: dict[int, int]) -> Node | None:
    """Fuse a node `gathered` with a transposition of its last two axes: written so."""
    if not is_op(node, "permute"):
        return None
    inner, order = node.args
    last = len(order) - 1
    if order != (*range(last - 1), last, last - 1) or uses.get(id(inner)) != 1:
        return None
    found = inner
    while is_op(found, "reshape") and found.shape[-2:] == found.args[0].shape[-2:]:
        found = found.args[0]
        if uses.get(id(found)) != 1:
            return None
    if not is_op(found, "gathered") or found.attributes["turned"]:
        return None
    shape = (*found.shape[:-2], found.shape[-1], found.shape[-2])
    made = Node("gathered", found.args, shape, attributes={"turned": True})
    return made if shape == node.shape else Node("reshape", (made,), node.shape)


def span_linears(graph: Graph) -> None:
    """Make linear layers that yield nothing but tables compute only what the indices name."""
    nodes = graph.nodes()
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for read in {id(n): n for n in node.inputs}.values():
            readers.setdefault(id(read), []).append(node)
    outputs = {id(node) for node in graph.outputs}
    for node in nodes:
        if not is_op(node, "linears", "linear") or (node.op == "linear" and node.args[1]):
            continue
        x = node.args[0]
        rows = x.shape[-2] if len(x.shape) > 1 else None
        if not isinstance(rows, int) or any(size != 1 for size in x.shape[:-2]):
            continue
        indices = _indices(node, len(x.shape) - 2, rows, readers, outputs)
        if indices:
            _span(node, indices)


def _span(node: Node, indices: list[Node]) -> None:
    how = node.attributes
    if node.op == "linears":
        node.op, node.args = "spanned", (node.args[0], *indices)
        return
    made = {"layers": (how["layer"],), "activations": (how["activation"],)}
    together = Node("spanned", (node.args[0], *indices), (), attributes=made)
    node.op, node.args, node.attributes = "item", (together, 0), {}


def _indices(
    node: Node, axis: int, rows: int, readers: dict[int, list[Node]], outputs: set[int]
) -> list[Node]:
    """Return the indices into tables that are views of `node`, with its axis `axis` as rows.

    None are returned where `node` is read otherwise too.
    """
    found: list[Node] = []
    stack = [(node, axis)]
    while stack:
        value, axis = stack.pop()
        if id(value) in outputs:
            return []
        for reader in readers.get(id(value), ()):
            if is_op(reader, "gathered"):
                is_table = reader.args[1] is value and reader.args[0] is not value
                if not is_table or axis != len(value.shape) - 2:
                    return []
                found.append(reader.args[2])
                continue
            there = _axis_behind(reader, value, axis, rows)
            if there is None:
                return []
            stack.append((reader, there))
    return found


def _axis_behind(view: Node, value: Node, axis: int, rows: int) -> int | None:
    """Return the axis of `view` that is `axis` of `value`; None where there is none."""
    if view.op == "item":
        return axis
    if view.op == "permute":
        return int(view.args[1].index(axis))
    if view.op == "unsqueeze":
        return axis + int(view.args[1] <= axis)
    if view.op == "squeeze" and view.args[1] != axis:
        return axis - int(view.args[1] < axis)
    if view.op == "expand" and len(view.shape) == len(value.shape):
        return axis
    if view.op == "reshape":
        before = math.prod(value.shape[:axis])
        for there, size in enumerate(view.shape):
            if size == rows and math.prod(view.shape[:there]) == before:
                return there
    return None
