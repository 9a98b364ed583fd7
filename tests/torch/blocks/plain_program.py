"""A `Program` in PyTorch's own operators: what each of its steps means."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "min": torch.minimum,
    "max": torch.maximum,
    "and": torch.logical_and,
    "or": torch.logical_or,
    **{n: getattr(operator, n) for n in ("gt", "ge", "lt", "le", "eq", "ne")},
}
_UNARY: dict[str, Callable[..., Any]] = {
    "not": torch.logical_not,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "softplus": functional.softplus,
    "none": lambda x: x,
}
_SIZES = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


def unary(name: str) -> Callable[..., Any]:
    return _UNARY.get(name) or getattr(torch, name)


class PlainProgram:
    """As `octavo.core.program.Program`; quantized layers are given as callables."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Callable[[list[Any]], Any]]] = []
        self.tensors: list[int] = []
        self.ints: list[int] = []
        self.outputs: list[int] = []

    def _step(self, name: str, does: Callable[[list[Any]], Any]) -> Any:
        self.steps.append((name, does))
        return Value(len(self.steps) - 1)

    def input(self, rank: int, dtype: str) -> Any:
        made = self._step("input", lambda v: None)
        self.tensors.append(made.at)
        return made

    def input_int(self) -> Any:
        made = self._step("input_int", lambda v: None)
        self.ints.append(made.at)
        return made

    def constant(self, address: int, sizes: tuple[int, ...]) -> Any:
        import ctypes

        count = 1
        for s in sizes:
            count *= s
        held = (ctypes.c_float * count).from_address(address)
        value = torch.frombuffer(held, dtype=torch.float32).reshape(sizes)
        return self._step("constant", lambda v: value)

    def size(self, value: Any, axis: int) -> Any:
        return self._step("size", lambda v: v[value.at].shape[axis])

    def compute(self, word: str, a: Any, b: Any) -> Any:
        return self._step("compute", lambda v: _SIZES[word](_of(v, a), _of(v, b)))

    def reshape(self, x: Any, sizes: Any) -> Any:
        return self._step("reshape", lambda v: v[x.at].reshape([_of(v, s) for s in sizes]))

    def permute(self, x: Any, axes: Any) -> Any:
        return self._step("permute", lambda v: v[x.at].permute(axes))

    def slice(self, x: Any, axis: int, start: Any, stop: Any, step: int = 1) -> Any:
        def does(v: list[Any]) -> Any:
            index = (slice(None),) * axis + (slice(_of(v, start), _of(v, stop), step),)
            return v[x.at][index]

        return self._step("slice", does)

    def expand(self, x: Any, sizes: Any) -> Any:
        return self._step("expand", lambda v: v[x.at].expand([_of(v, s) for s in sizes]))

    def unsqueeze(self, x: Any, axis: int) -> Any:
        return self._step("unsqueeze", lambda v: v[x.at].unsqueeze(axis))

    def squeeze(self, x: Any, axis: int) -> Any:
        return self._step("squeeze", lambda v: v[x.at].squeeze(axis))

    def linear(
        self, x: Any, layers: Any, activations: Any, residual: Any = None, gate: str = ""
    ) -> Any:
        if gate:
            first, second = layers

            def gated(v: list[Any]) -> Any:
                return unary(gate)(first(v[x.at])) * second(v[x.at])

            return (self._step("gated", gated),)

        def one(layer: Any, word: str) -> Any:
            def does(v: list[Any]) -> Any:
                made = unary(word)(layer(v[x.at]))
                return made if residual is None else made + v[residual.at]

            return self._step("linear", does)

        return tuple(one(layer, w) for layer, w in zip(layers, activations, strict=True))

    def norm(self, x: Any, weight: Any, bias: Any, eps: float, kind: str) -> Any:
        def does(v: list[Any]) -> Any:
            w = None if weight is None else v[weight.at]
            b = None if bias is None else v[bias.at]
            if kind == "layer":
                return functional.layer_norm(v[x.at], v[x.at].shape[-1:], w, b, eps)
            return functional.rms_norm(v[x.at], v[x.at].shape[-1:], w, eps)

        return self._step("norm", does)

    def attention(
        self,
        q: Any,
        k: Any,
        v_: Any,
        scale: float,
        bias: Any = None,
        mask: Any = None,
        causal: bool = False,
        offset: Any = 0,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Any:
        def does(v: list[Any]) -> Any:
            queries, keys, values = v[q.at], v[k.at], v[v_.at]
            repeat = queries.shape[1] // keys.shape[1]
            keys, values = (t.repeat_interleave(repeat, 1) for t in (keys, values))
            scores = queries @ keys.mT * scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            if bias is not None:
                scores = scores + v[bias.at]
            if mask is not None:
                scores = scores.masked_fill(~v[mask.at], -torch.inf)
            if causal:
                seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(_of(v, offset))
                scores = scores.masked_fill(~seen, -torch.inf)
            weights = torch.softmax(scores, -1).nan_to_num(0.0)
            return (weights @ values).transpose(1, 2).contiguous().transpose(1, 2)

        return self._step("attention", does)

    def rotary(self, x: Any, cos: Any, sin: Any, interleaved: bool = False) -> Any:
        def does(v: list[Any]) -> Any:
            c, s = v[cos.at], v[sin.at]
            width = c.shape[-1]
            head, rest = v[x.at][..., :width], v[x.at][..., width:]
            if interleaved:
                turned = torch.stack([-head[..., 1::2], head[..., ::2]], -1).flatten(-2)
            else:
                turned = torch.cat([-head[..., width // 2 :], head[..., : width // 2]], -1)
            return torch.cat([head * c + turned * s, rest], -1)

        return self._step("rotary", does)

    def binary(self, word: str, a: Any, b: Any) -> Any:
        def does(v: list[Any]) -> Any:
            other = v[b.at] if isinstance(b, Value) else torch.tensor(b)
            return _BINARY[word](v[a.at], other)

        return self._step("binary", does)

    def unary(self, word: str, x: Any) -> Any:
        return self._step("unary", lambda v: unary(word)(v[x.at]))

    def power(self, x: Any, exponent: float) -> Any:
        return self._step("power", lambda v: v[x.at] ** exponent)

    def softmax(self, x: Any) -> Any:
        return self._step("softmax", lambda v: torch.softmax(v[x.at], -1))

    def mean(self, x: Any, keep: bool) -> Any:
        return self._step("mean", lambda v: v[x.at].mean(-1, keepdim=keep))

    def sum(self, x: Any, keep: bool) -> Any:
        return self._step("sum", lambda v: v[x.at].sum(-1, keepdim=keep))

    def matmul(self, a: Any, b: Any) -> Any:
        return self._step("matmul", lambda v: v[a.at] @ v[b.at])

    def cat(self, values: Any, axis: int) -> Any:
        return self._step("cat", lambda v: torch.cat([v[x.at] for x in values], axis))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        def does(v: list[Any]) -> Any:
            one, other = (v[n.at] if isinstance(n, Value) else torch.tensor(n) for n in (a, b))
            return torch.where(v[condition.at], one, other)

        return self._step("where", does)

    def embedding(self, table: Any, indices: Any) -> Any:
        return self._step("embedding", lambda v: v[table.at][v[indices.at]])

    def copy_to(self, x: Any, into: Any) -> None:
        self._step("copy_to", lambda v: v[into.at].copy_(v[x.at]))

    def output(self, value: Any) -> None:
        self.outputs.append(value.at)

    def finish(self, name: str) -> Callable[..., tuple[Tensor, ...]]:
        def run(
            tensors: tuple[Tensor, ...], ints: tuple[int, ...], threads: int
        ) -> tuple[Tensor, ...]:
            given = dict(zip(self.tensors, tensors, strict=True))
            given |= dict(zip(self.ints, ints, strict=True))
            values: list[Any] = []
            with torch.no_grad():
                for at, (_, does) in enumerate(self.steps):
                    values.append(given[at] if at in given else does(values))
                return tuple(values[at].contiguous() for at in self.outputs)

        return run


class Value:
    def __init__(self, at: int) -> None:
        self.at = at


def _of(values: list[Any], size: Any) -> int:
    found: int = values[size.at] if isinstance(size, Value) else size
    return found
