"""The readers of ATen operators that work element by element, and of those that compute nothing."""

from __future__ import annotations

from typing import Any

import torch

from octavo.torch.blocks.emit.emission import DTYPES
from octavo.torch.blocks.nodes import Node, UnknownStep
from octavo.torch.blocks.trace.reading import Reading, reads

_BOOL = torch.bool
_UNARY = {
    "neg": "neg",
    "exp": "exp",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "relu": "relu",
    "silu": "silu",
    "rsqrt": "rsqrt",
    "sqrt": "sqrt",
    "reciprocal": "reciprocal",
    "abs": "abs",
    "sin": "sin",
    "cos": "cos",
    "erf": "erf",
    "log": "log",
    "logical_not": "not",
    "bitwise_not": "not",
}
_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "maximum": "max",
    "minimum": "min",
    "gt": "gt",
    "ge": "ge",
    "lt": "lt",
    "le": "le",
    "eq": "eq",
    "ne": "ne",
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_or": "or",
    "bitwise_or": "or",
    "__and__": "and",
    "__or__": "or",
}


# --- nothing to compute ---


@reads("contiguous", "clone", "detach", "alias", "lift_fresh_copy", "lift_fresh", "view_as")
def _same(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    return x


@reads("dropout", "native_dropout", "alpha_dropout", "feature_dropout")
def _dropout(r: Reading, value: Any, x: Node, p: float, train: bool, *args: Any) -> Node:
    if train and p:
        raise UnknownStep("dropout acts")
    return x


@reads("to", "_to_copy", "type_as", "float")
def _to(r: Reading, value: Any, x: Node, *args: Any, **kwargs: Any) -> Node:
    if value.dtype == x.dtype:
        return x
    if x.dtype in DTYPES and value.dtype in DTYPES:
        return r.make("cast", (x,), x.shape, value.dtype)
    raise UnknownStep(f"a cast from {short_name(x.dtype)} to {short_name(value.dtype)}")


def short_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without `torch.`."""
    return str(dtype).removeprefix("torch.")


# --- element by element ---


def _unary(name: str) -> Any:
    def read(r: Reading, value: Any, x: Node) -> Node:
        if x.dtype == torch.int64 and name in ("neg", "abs"):
            below = r.make("binary", ("mul", x, -1), x.shape, x.dtype)
            return below if name == "neg" else r.make("binary", ("max", x, below), x.shape, x.dtype)
        return r.make("unary", (name, x), r.sizes(value), value.dtype)

    return read


for _name, _word in _UNARY.items():
    reads(_name)(_unary(_word))


@reads("gelu")
def _gelu(r: Reading, value: Any, x: Node, approximate: str = "none") -> Node:
    word = "gelu" if approximate == "none" else "gelu_tanh"
    return r.make("unary", (word, x), x.shape)


@reads("softplus")
def _softplus(r: Reading, value: Any, x: Node, beta: float = 1, threshold: float = 20) -> Node:
    if (beta, threshold) != (1, 20):
        raise UnknownStep(f"softplus with beta {beta}")
    return r.make("unary", ("softplus", x), x.shape)


def binary(r: Reading, name: str, a: Any, b: Any, value: Any) -> Node:
    """Make a node `binary` of nodes and numbers."""
    if isinstance(a, (int, float)) and isinstance(b, Node):
        if name in ("add", "mul", "max", "min", "and", "or", "eq", "ne"):
            a, b = b, a
        elif name == "sub":
            return binary(r, "add", r.make("unary", ("neg", b), b.shape), a, value)
        elif name == "div":
            inverse = r.make("unary", ("reciprocal", b), b.shape)
            return inverse if a == 1 else binary(r, "mul", inverse, a, value)
        else:
            raise UnknownStep(f"{name} of a number and a tensor")
    integers = isinstance(a, Node) and a.dtype == torch.int64
    if not isinstance(a, Node) or not (integers or isinstance(b, (Node, int, float))):
        raise UnknownStep(f"{name} with a number that sizes make")
    if isinstance(b, Node) and a.dtype != b.dtype:
        raise UnknownStep(f"{name} of {short_name(a.dtype)} and {short_name(b.dtype)}")
    if (not isinstance(b, Node) and a.dtype == _BOOL) or (integers and isinstance(b, float)):
        raise UnknownStep(f"{name} of {short_name(a.dtype)} and a number")
    if not isinstance(b, Node) and not integers:
        b = float(b)
        if (name, b) in (("add", 0.0), ("sub", 0.0), ("mul", 1.0), ("div", 1.0)):
            return a
    return r.make("binary", (name, a, b), r.sizes(value), value.dtype)


def _binary(name: str) -> Any:
    def read(r: Reading, value: Any, a: Any, b: Any, alpha: Any = 1, **kwargs: Any) -> Node:
        if alpha != 1 or kwargs.get("rounding_mode") is not None:
            raise UnknownStep(f"{name} with alpha or rounding")
        return binary(r, name, a, b, value)

    return read


for _name, _word in _BINARY.items():
    reads(_name)(_binary(_word))


@reads("rsub")
def _rsub(r: Reading, value: Any, a: Any, b: Any, alpha: Any = 1) -> Node:
    if alpha != 1:
        raise UnknownStep("sub with alpha")
    return binary(r, "sub", b, a, value)


def _least_or_most(name: str) -> Any:
    def read(r: Reading, value: Any, a: Node, *args: Any, **kwargs: Any) -> Node:
        if len(args) != 1 or not isinstance(args[0], Node):
            raise UnknownStep(f"{name} of one tensor")
        return binary(r, name, a, args[0], value)

    return read


reads("min")(_least_or_most("min"))
reads("max")(_least_or_most("max"))


@reads("pow")
def _pow(r: Reading, value: Any, x: Any, exponent: Any) -> Node:
    if not isinstance(x, Node) or not isinstance(exponent, (int, float)):
        raise UnknownStep("a power of two tensors")
    return r.make("power", (x, float(exponent)), x.shape)


@reads("square")
def _square(r: Reading, value: Any, x: Node) -> Node:
    return r.make("power", (x, 2.0), x.shape)


@reads("clamp", "clamp_min", "clamp_max")
def _clamp(r: Reading, value: Any, x: Node, *ends: Any, **kwargs: Any) -> Node:
    low, high = (*ends, None, None)[:2]
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    made = x if low is None else binary(r, "max", x, low, value)
    return made if high is None else binary(r, "min", made, high, value)


@reads("where")
def _where(r: Reading, value: Any, condition: Node, a: Any, b: Any) -> Node:
    return r.make("where", (condition, a, b), r.sizes(value), value.dtype)


@reads("masked_fill")
def _masked_fill(r: Reading, value: Any, x: Node, mask: Node, filled: Any) -> Node:
    return r.make("where", (mask, filled, x), r.sizes(value), value.dtype)
