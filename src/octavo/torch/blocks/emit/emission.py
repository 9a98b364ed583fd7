"""Nodes as steps of a `Program`, for the weights of one block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.utils._sympy import functions

from octavo.torch.blocks.nodes import Node, UnknownStep

DTYPES = {torch.float32: "float32", torch.bool: "bool", torch.int64: "int64"}

Emitter = Callable[["Emission", Node], Any]
EMITTERS: dict[str, Emitter] = {}


def emits(*ops: str) -> Callable[[Emitter], Emitter]:
    """Register the decorated function as what makes steps of nodes with these ops."""

    def register(emitter: Emitter) -> Emitter:
        EMITTERS.update(dict.fromkeys(ops, emitter))
        return emitter

    return register


class Emission:
    """The steps of one program. `weights` has what the block holds."""

    def __init__(self, program: Any, weights: Weights) -> None:
        self.program, self.weights = program, weights
        self._values: dict[int, Any] = {}
        self._sizes: dict[Any, Any] = {}
        self._kept: list[Node] = []

    def input(self, node: Node) -> None:
        """Make `node` the program's next input tensor; symbols among its sizes become known."""
        dtype = DTYPES.get(node.dtype)
        if dtype is None:
            raise UnknownStep(f"an input of {str(node.dtype).removeprefix('torch.')}")
        value = self.program.input(len(node.shape), dtype)
        self.give(node, value)
        for axis, size in enumerate(node.shape):
            if isinstance(size, sympy.Symbol) and size not in self._sizes:
                self._sizes[size] = self.program.size(value, axis)

    def number(self, size: Any) -> bool:
        """Make `size` the program's next input number; return False, without that, for an int."""
        if isinstance(size, int):
            return False
        given = self.program.input_int()
        if isinstance(size, sympy.Symbol):
            self._sizes.setdefault(size, given)
        return True

    def give(self, node: Node, value: Any) -> None:
        """Set the program's value of `node`."""
        self._values[id(node)] = value
        self._kept.append(node)

    def value(self, node: Node) -> Any:
        """Return the program's value of a node; its steps are added where they are missing."""
        if id(node) not in self._values:
            stack = [node]
            while stack:
                last = stack[-1]
                rest = [n for n in last.inputs if id(n) not in self._values]
                if rest:
                    stack.extend(rest)
                    continue
                stack.pop()
                if id(last) not in self._values:
                    self.give(last, EMITTERS[last.op](self, last))
        return self._values[id(node)]

    def size(self, size: Any) -> Any:
        """Return the program's Size of an expression; an int stays an int."""
        if isinstance(size, int):
            return size
        if size.is_Integer:
            return int(size)
        if size not in self._sizes:
            self._sizes[size] = self._computed(size)
        return self._sizes[size]

    def sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the program's Size of each size in a shape; ints stay ints."""
        return tuple(self.size(s) for s in shape)

    def _computed(self, size: Any) -> Any:
        args = size.args
        if isinstance(size, sympy.Add):
            return self._chained("add", args)
        if isinstance(size, sympy.Mul):
            return self._chained("mul", args)
        if isinstance(size, (functions.FloorDiv, functions.CleanDiv)):
            return self._chained("floordiv", args)
        if isinstance(size, (functions.Mod, functions.PythonMod)):
            return self._chained("mod", args)
        if isinstance(size, functions.Max):
            return self._chained("max", args)
        if isinstance(size, functions.Min):
            return self._chained("min", args)
        raise UnknownStep(f"the size {size}")

    def _chained(self, word: str, args: Sequence[Any]) -> Any:
        first, *rest = args
        made = self.size(first)
        for other in rest:
            made = self.program.compute(word, made, self.size(other))
        return made

    def operand(self, value: Any, beside: torch.dtype) -> Any:
        """Return the value of an argument: a node, a number or, beside integers, a size."""
        if isinstance(value, Node):
            return self.value(value)
        if beside is torch.int64:
            return self.program.integer(self.size(value))
        return self.program.scalar(float(value))

    def optional(self, node: Node | None) -> Any:
        """Return the value of a node; None for None."""
        return None if node is None else self.value(node)

    def vector(self, node: Node | None) -> Any:
        """Return the value of a norm's weight or bias. Raises UnknownStep if it is no constant."""
        if node is not None and node.op != "constant":
            raise UnknownStep("a norm whose weight is computed")
        return self.optional(node)


class Weights:
    """What programs read of a block: bound linear layers, and constants by name."""

    def __init__(
        self,
        linear: Callable[[str], Any],
        constant: Callable[[Node], Tensor],
    ) -> None:
        self.linear, self._constant = linear, constant
        self.constants: list[Tensor] = []
        """Those that programs refer to: who keeps a program keeps these."""

    def constant(self, node: Node) -> Tensor:
        """Return a constant's memory as programs read it: contiguous float32."""
        found = self._constant(node)
        if found.dtype is not torch.float32:
            raise UnknownStep(f"a constant of {str(found.dtype).removeprefix('torch.')}")
        found = found.contiguous()
        self.constants.append(found)
        return found
