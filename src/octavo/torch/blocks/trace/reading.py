"""From traced ATen operators to nodes: one function for each operator, by its name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from octavo.torch.blocks.nodes import Graph, Node, UnknownStep
from octavo.torch.blocks.trace.tracing import Trace

Reader = Callable[..., Any]
"""`reader(reading, fx node, *args, **kwargs)`: the node or nodes of an operator."""

READERS: dict[str, Reader] = {}
FRESH = frozenset("binary unary power matmul linear softmax where norm attention cat".split())
"""Nodes whose values are memory of their own."""
_PLAIN = (bool, int, float)


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Register the reader of operators, by name without overload, and without `aten::`."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(names, reader))
        return reader

    return register


class Reading:
    """A trace on its way to nodes. `names` has the block's parameters and buffers by identity."""

    def __init__(self, trace: Trace, names: Mapping[int, str]) -> None:
        self.trace, self.names = trace, names
        self._made: dict[fx.Node, Any] = {}
        self._known: dict[Any, Node] = {}

    def graph(self) -> tuple[Graph, list[Any]]:
        """Return the graph, and the outputs in order: nodes, numbers and None."""
        inputs: list[Node] = []
        outputs: list[Any] = []
        for node in self.trace.graph.graph.nodes:
            if node.op == "placeholder":
                sizes = self.trace.inputs[len(inputs)]
                made = Node("input", (len(inputs),), sizes, node.meta["val"].dtype)
                inputs.append(made)
                self._made[node] = made
            elif node.op == "get_attr":
                self._made[node] = self._constant(getattr(self.trace.graph, node.target))
            elif node.op == "call_function":
                self._made[node] = self._call(node)
            elif node.op == "output":
                outputs = list(self._arguments(node.args[0]))
            else:
                raise UnknownStep(f"{node.op} {node.target}")
        return Graph(inputs, [n for n in outputs if isinstance(n, Node)]), outputs

    def make(
        self,
        op: str,
        args: tuple[Any, ...],
        shape: tuple[Any, ...],
        dtype: torch.dtype = torch.float32,
        **attributes: Any,
    ) -> Node:
        """Return the node with this operator, arguments and shape; an equal one is reused."""
        key = (
            op,
            tuple(_key(a) for a in args),
            shape,
            dtype,
            tuple((n, _key(a)) for n, a in attributes.items()),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Node(op, args, shape, dtype, attributes)
        return found

    def sizes(self, value: Any) -> tuple[Any, ...]:
        """Return the sizes of a traced tensor."""
        return tuple(self.trace.size(s) for s in value.shape)

    def _constant(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            raise UnknownStep(f"a constant of type {type(value).__name__}")
        name = self.names.get(id(value))
        if name is not None:
            return self.make("constant", (name,), tuple(value.shape), value.dtype)
        if value.numel() == 1 and value.dim() == 0:
            return value.item()
        raise UnknownStep("a tensor that is no parameter or buffer of it")

    def _arguments(self, value: Any) -> Any:
        """Return a traced operator's arguments as nodes, with sizes for what computes sizes."""
        if isinstance(value, fx.Node):
            known = value.meta.get("val")
            if isinstance(known, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return self._number(known)
            return self._made[value]
        if isinstance(value, (list, tuple)):
            return tuple(self._arguments(part) for part in value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(value)
        return value

    def _number(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return self.trace.size(value)
        found = self.trace.shapes.replace(value.node.expr)
        if found.is_number:
            return float(found)
        return found

    def _call(self, node: fx.Node) -> Any:
        known = node.meta.get("val")
        if not isinstance(known, (Tensor, tuple, list)):
            return None  # a size: read where it is used
        target: Any = node.target
        if target is operator.getitem:
            return self._made[node.args[0]][node.args[1]]
        schema = getattr(target, "_schema", None)
        name = str(target) if schema is None else schema.name.removeprefix("aten::")
        if schema is not None and schema.is_mutable:
            name = self._functional(node, name)
        number = self._computed_number(node)
        if number is not None:
            return number
        args = self._arguments(node.args)
        kwargs = {key: self._arguments(value) for key, value in node.kwargs.items()}
        folded = self._folded(node, args, kwargs)
        if folded is not None:
            return folded
        reader = READERS.get(name)
        if reader is None:
            raise UnknownStep(f"{name} is no step of a program")
        return reader(self, known, *args, **kwargs)

    def _functional(self, node: fx.Node, name: str) -> str:
        """Return the out-of-place form of an in-place operator.

        Raises UnknownStep where something else reads the value that it writes over.
        """
        if name == "detach_":
            return "detach"
        target: Any = node.args[0]
        known = self._made.get(target)
        fresh = isinstance(known, Node) and (known.op in FRESH or _is_filled(known))
        alone = fresh and len(target.users) == 1
        if not alone or target.meta["val"].shape != node.meta["val"].shape:
            raise UnknownStep(f"{name} writes over what else is read")
        return name.removesuffix("_")

    def _computed_number(self, node: fx.Node) -> Any:
        """Return a scalar computed only from numbers that a forward made tensors of; else None."""
        value = node.meta["val"]
        made = [self._made[n] for n in node.all_input_nodes if isinstance(self._made[n], _PLAIN)]
        if not made or len(made) < len(node.all_input_nodes) or not isinstance(value, Tensor):
            return None
        if value.dim():
            return None

        def tensor(of: fx.Node) -> Tensor:
            held = of.meta["val"] if of.op != "get_attr" else getattr(self.trace.graph, of.target)
            return torch.tensor(self._made[of], dtype=held.dtype)

        target: Any = node.target
        args = fx.node.map_arg(node.args, tensor)
        return target(*args, **fx.node.map_arg(node.kwargs, tensor)).item()

    def _folded(self, node: fx.Node, args: Any, kwargs: Any) -> Node | None:
        """Return the constant node of what is computed from constants alone; else None."""
        flat, _ = pytree.tree_flatten((args, kwargs))
        nodes = [a for a in flat if isinstance(a, Node)]
        value = node.meta["val"]
        if (
            not nodes
            or any(n.op != "constant" for n in nodes)
            or not isinstance(value, Tensor)
            or not all(
                isinstance(a, (Node, int, float, str, torch.dtype, torch.layout, torch.device))
                or a is None
                for a in flat
            )
            or not all(isinstance(s, int) for s in self.sizes(value))
            or "octavo" in str(node.target)
        ):
            return None
        made = Folded(node.target, args, tuple(kwargs.items()))
        return self.make("constant", (made,), self.sizes(value), value.dtype)


def _is_filled(node: Node) -> bool:
    """Tell whether a node is a new tensor filled with one number."""
    return node.op == "filled" or (node.op == "expand" and node.args[0].op == "filled")


def _key(value: Any) -> Any:
    if isinstance(value, (Node, Tensor)):
        return id(value)
    if isinstance(value, (tuple, list)):
        return tuple(_key(part) for part in value)
    return (type(value), value) if isinstance(value, (bool, int, float)) else value


@dataclass(frozen=True, eq=False)
class Folded:
    """An operator over constants, which is computed once for each block."""

    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]


def evaluated(node: Node, tensor: Callable[[str], Tensor]) -> Tensor:
    """Compute a constant of a graph; `tensor` finds parameters and buffers by name."""
    held = node.args[0]
    if isinstance(held, str):
        return tensor(held)

    def value(argument: Any) -> Any:
        if isinstance(argument, Node):
            return evaluated(argument, tensor)
        if isinstance(argument, tuple):
            return [value(part) for part in argument]
        return argument

    args = (value(a) for a in held.args)
    found: Tensor = held.target(*args, **{k: value(v) for k, v in held.kwargs})
    return found


def names_read(node: Node) -> list[str]:
    """Return the names of the parameters and buffers that a constant is computed from."""
    held = node.args[0]
    if isinstance(held, str):
        return [held]
    flat, _ = pytree.tree_flatten((held.args, [value for _, value in held.kwargs]))
    return [name for part in flat if isinstance(part, Node) for name in names_read(part)]
