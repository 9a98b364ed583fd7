"""What a block computes, as a graph of nodes: each is one step of a `Program`, or a part of one.

Sizes are ints or sympy expressions over the symbols of the inputs' sizes, so that two of them are
equal where they always are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Size = Any
"""An int, or a sympy expression."""


class UnknownStep(Exception):  # noqa: N818  # nobody outside sees it
    """Something that a block computes and no step of a program does; the text says what."""


@dataclass(eq=False, slots=True)
class Node:
    """One value: `op` of `args` (nodes, sizes, numbers, tuples of those), and what it is."""

    op: str
    args: tuple[Any, ...]
    shape: tuple[Size, ...]
    dtype: torch.dtype = torch.float32
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> Iterator[Node]:
        """The nodes among the arguments."""
        for argument in self.args:
            if isinstance(argument, Node):
                yield argument
            elif isinstance(argument, tuple):
                yield from (part for part in argument if isinstance(part, Node))

    def with_args(self, args: tuple[Any, ...]) -> Node:
        """Return the same node with other arguments."""
        return Node(self.op, args, self.shape, self.dtype, self.attributes)


@dataclass(eq=False)
class Graph:
    """Nodes reached from `outputs`; `inputs` are those that each call gives."""

    inputs: list[Node]
    outputs: list[Node]

    def nodes(self) -> list[Node]:
        """Return all nodes, each after what it reads."""
        order: list[Node] = []
        seen: set[int] = set()
        stack: list[tuple[Node, Iterator[Node]]] = []
        for root in [*self.inputs, *self.outputs]:
            if id(root) in seen:
                continue
            seen.add(id(root))
            stack.append((root, root.inputs))
            while stack:
                node, rest = stack[-1]
                found = next((n for n in rest if id(n) not in seen), None)
                if found is None:
                    order.append(node)
                    stack.pop()
                else:
                    seen.add(id(found))
                    stack.append((found, found.inputs))
        return order

    def uses(self) -> dict[int, int]:
        """Count how often each node is read, by its identity; being an output counts."""
        counts: dict[int, int] = {}
        for node in self.nodes():
            for read in node.inputs:
                counts[id(read)] = counts.get(id(read), 0) + 1
        for node in self.outputs:
            counts[id(node)] = counts.get(id(node), 0) + 1
        return counts

    def rewrite(self, rule: Rule) -> None:
        """Replace each node by what `rule` makes of it; its arguments are rewritten already.

        A rule returns None to leave a node. It is told how often a node was read before.
        """
        before = self.uses()
        made: dict[int, Node] = {}
        counts: dict[int, int] = {}
        for node in self.nodes():
            args = tuple(_replaced(argument, made) for argument in node.args)
            same = all(a is b for a, b in zip(args, node.args, strict=True))
            new = node if same else node.with_args(args)
            counts[id(new)] = before.get(id(node), 0)
            found = rule(new, counts)
            if found is not None:
                counts[id(found)] = before.get(id(node), 0)
                new = found
            made[id(node)] = new
        self.outputs = [made[id(node)] for node in self.outputs]
        self.inputs = [made[id(node)] for node in self.inputs]


Rule = Callable[[Node, dict[int, int]], "Node | None"]


def _replaced(argument: Any, made: dict[int, Node]) -> Any:
    if isinstance(argument, Node):
        return made[id(argument)]
    if isinstance(argument, tuple) and any(isinstance(part, Node) for part in argument):
        return tuple(_replaced(part, made) for part in argument)
    return argument


def is_op(value: Any, *ops: str) -> bool:
    """Tell whether `value` is a node with one of these operators."""
    return isinstance(value, Node) and value.op in ops


def unary_of(value: Any, name: str) -> Node | None:
    """Return the argument of `value` if it is the node `unary` with that name, else None."""
    if is_op(value, "unary") and value.args[0] == name:
        return value.args[1]  # type: ignore[no-any-return]
    return None


def binary_of(value: Any, name: str) -> tuple[Any, Any] | None:
    """Return both arguments of `value` if it is the node `binary` with that name, else None."""
    if is_op(value, "binary") and value.args[0] == name:
        return value.args[1], value.args[2]
    return None


def either_way(pair: tuple[Any, Any] | None) -> Sequence[tuple[Any, Any]]:
    """Return both orders of the arguments of a commutative operator; nothing for None."""
    return () if pair is None else (pair, pair[::-1])


def is_constant(value: Any) -> bool:
    """Tell whether `value` is the same in each call."""
    return is_op(value, "constant") or isinstance(value, (int, float))
