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
    """Registers what makes steps of nodes of these ops."""

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
        """The next tensor that a call gives is `node`; symbols among its sizes are known then."""
        dtype = DTYPES.get(node.dtype)
        if dtype is None:
            raise UnknownStep(f"an input of {str(node.dtype).removeprefix('torch.')}")
        value = self.program.input(len(node.shape), dtype)
        self.give(node, value)
        for axis, size in enumerate(node.shape):
            if isinstance(size, sympy.Symbol) and size not in self._sizes:
                self._sizes[size] = self.program.size(value, axis)

    def number(self, size: Any) -> bool:
        """The next number that a call gives is `size`, where that is a symbol; whether it is."""
        if isinstance(size, int):
            return False
        given = self.program.input_int()
        if isinstance(size, sympy.Symbol):
            self._sizes.setdefault(size, given)
        return True

    def give(self, node: Node, value: Any) -> None:
        """Says which value `node` is."""
        self._values[id(node)] = value
        self._kept.append(node)

    def value(self, node: Node) -> Any:
        """The value of a node, whose steps are added where they are not yet."""
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
        """The program's Size of an expression, an int of an int."""
        if isinstance(size, int):
            return size
        if size.is_Integer:
            return int(size)
        if size not in self._sizes:
            self._sizes[size] = self._computed(size)
        return self._sizes[size]

    def sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Each of them."""
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
        """Of an argument that may be a number, or a size beside integers."""
        if isinstance(value, Node):
            return self.value(value)
        if beside is torch.int64:
            return self.program.integer(self.size(value))
        return self.program.scalar(float(value))

    def optional(self, node: Node | None) -> Any:
        """None for None."""
        return None if node is None else self.value(node)

    def vector(self, node: Node | None) -> Any:
        """A constant as a vector."""
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
        """A constant in memory as programs read it."""
        found = self._constant(node)
        if found.dtype is not torch.float32:
            raise UnknownStep(f"a constant of {str(found.dtype).removeprefix('torch.')}")
        found = found.contiguous()
        self.constants.append(found)
        return found


@emits("constant")
def _constant(e: Emission, node: Node) -> Any:
    made = e.weights.constant(node)
    return e.program.constant(made.data_ptr(), tuple(made.shape))


@emits("reshape")
def _reshape(e: Emission, node: Node) -> Any:
    return e.program.reshape(e.value(node.args[0]), e.sizes(node.shape))


@emits("permute")
def _permute(e: Emission, node: Node) -> Any:
    return e.program.permute(e.value(node.args[0]), node.args[1])


@emits("unsqueeze", "squeeze")
def _one_axis(e: Emission, node: Node) -> Any:
    return getattr(e.program, node.op)(e.value(node.args[0]), node.args[1])


@emits("expand")
def _expand(e: Emission, node: Node) -> Any:
    return e.program.expand(e.value(node.args[0]), e.sizes(node.shape))


@emits("slice")
def _slice(e: Emission, node: Node) -> Any:
    x, axis, start, stop, step = node.args
    return e.program.slice(e.value(x), axis, e.size(start), e.size(stop), step)


@emits("cat")
def _cat(e: Emission, node: Node) -> Any:
    return e.program.cat([e.value(n) for n in node.args[0]], node.args[1])


@emits("unary")
def _unary(e: Emission, node: Node) -> Any:
    return e.program.unary(node.args[0], e.value(node.args[1]))


@emits("binary")
def _binary(e: Emission, node: Node) -> Any:
    word, a, b = node.args
    return e.program.binary(word, e.value(a), e.operand(b, a.dtype))


@emits("power")
def _power(e: Emission, node: Node) -> Any:
    return e.program.power(e.value(node.args[0]), node.args[1])


@emits("where")
def _where(e: Emission, node: Node) -> Any:
    condition, a, b = node.args
    one, other = (e.operand(value, node.dtype) for value in (a, b))
    return e.program.where(e.value(condition), one, other)


@emits("cast")
def _cast(e: Emission, node: Node) -> Any:
    return e.program.cast(e.value(node.args[0]), DTYPES[node.dtype])


@emits("filled")
def _filled(e: Emission, node: Node) -> Any:
    return e.operand(node.args[0], node.dtype)


@emits("arange")
def _arange(e: Emission, node: Node) -> Any:
    return e.program.arange(e.size(node.shape[0]))


@emits("softmax")
def _softmax(e: Emission, node: Node) -> Any:
    return e.program.softmax(e.value(node.args[0]))


@emits("mean", "sum")
def _reduce(e: Emission, node: Node) -> Any:
    return getattr(e.program, node.op)(e.value(node.args[0]), node.args[1])


@emits("matmul")
def _matmul(e: Emission, node: Node) -> Any:
    return e.program.matmul(e.value(node.args[0]), e.value(node.args[1]))


@emits("embedding")
def _embedding(e: Emission, node: Node) -> Any:
    return e.program.embedding(e.value(node.args[0]), e.value(node.args[1]))


@emits("gather")
def _gather(e: Emission, node: Node) -> Any:
    x, axis, index = node.args
    return e.program.gather(e.value(x), axis, e.value(index))


@emits("gathered")
def _gathered(e: Emission, node: Node) -> Any:
    a, table, index = (e.value(n) for n in node.args)
    return e.program.gathered_product(a, table, index, node.attributes["turned"])


@emits("norm")
def _norm(e: Emission, node: Node) -> Any:
    x, weight, bias = node.args
    how = node.attributes
    weight, bias = e.vector(weight), e.vector(bias)
    return e.program.norm(e.value(x), weight, bias, how["eps"], how["kind"])


@emits("rotary")
def _rotary(e: Emission, node: Node) -> Any:
    x, cos, sin = (e.value(n) for n in node.args)
    return e.program.rotary(x, cos, sin, interleaved=node.attributes["pairs"])


@emits("attention")
def _attention(e: Emission, node: Node) -> Any:
    q, k, v, bias, mask = node.args
    how = node.attributes
    return e.program.attention(
        *(e.value(q), e.value(k), e.value(v)),
        how["scale"],
        bias=_four(e, bias),
        mask=_four(e, mask),
        causal=how["causal"],
        softcap=how.get("softcap", 0.0),
        bfloat16=how.get("bfloat16", False),
    )


def _four(e: Emission, node: Node | None) -> Any:
    """A bias or a mask with four axes."""
    if node is None:
        return None
    value = e.value(node)
    for _ in range(4 - len(node.shape)):
        value = e.program.unsqueeze(value, 0)
    return value


@emits("linear")
def _linear(e: Emission, node: Node) -> Any:
    x, residual = node.args
    how = node.attributes
    (made,) = e.program.linear(
        e.value(x),
        [e.weights.linear(how["layer"])],
        [how["activation"]],
        residual=e.optional(residual),
    )
    return made


@emits("linears")
def _linears(e: Emission, node: Node) -> Any:
    how = node.attributes
    layers = [e.weights.linear(name) for name in how["layers"]]
    return e.program.linear(e.value(node.args[0]), layers, list(how["activations"]))


@emits("spanned")
def _spanned(e: Emission, node: Node) -> Any:
    how = node.attributes
    layers = [e.weights.linear(name) for name in how["layers"]]
    x, *indices = (e.value(n) for n in node.args)
    return e.program.linear(x, layers, list(how["activations"]), span=indices)


@emits("item")
def _item(e: Emission, node: Node) -> Any:
    return e.value(node.args[0])[node.args[1]]


@emits("gated")
def _gated(e: Emission, node: Node) -> Any:
    how = node.attributes
    layers = [e.weights.linear(name) for name in how["layers"]]
    (made,) = e.program.linear(e.value(node.args[0]), layers, ["none", "none"], gate=how["gate"])
    return made
