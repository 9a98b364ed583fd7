"""The readers of ATen operators over rows, of products, and of Octavo's own operators."""

from __future__ import annotations

import math
from typing import Any

import torch

from octavo.core.kernels import WeightFormat
from octavo.torch.blocks.emit.aten_elements import binary
from octavo.torch.blocks.emit.aten_views import axis_of
from octavo.torch.blocks.nodes import Node, UnknownStep
from octavo.torch.blocks.trace.reading import Reading, reads

# --- rows ---


@reads("softmax", "_softmax")
def _softmax(r: Reading, value: Any, x: Node, axis: int, *args: Any) -> Node:
    _last(x, axis, "softmax")
    return r.make("softmax", (x,), x.shape)


def _last(x: Node, axes: Any, what: str) -> None:
    axes = axes if isinstance(axes, tuple) else (axes,)
    if [axis_of(x, a) for a in axes] != [len(x.shape) - 1]:
        raise UnknownStep(f"{what} along another axis than the last")


def _reduce(name: str) -> Any:
    def read(r: Reading, value: Any, x: Node, axes: Any, keep: bool = False, **kw: Any) -> Node:
        _last(x, axes, name)
        return r.make(name, (x, keep), r.sizes(value))

    return read


reads("mean")(_reduce("mean"))
reads("sum")(_reduce("sum"))


@reads("layer_norm")
def _layer_norm(
    r: Reading,
    value: Any,
    x: Node,
    shape: tuple[int, ...],
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
    *args: Any,
) -> Node:
    if len(shape) != 1:
        raise UnknownStep("a norm over more than one axis")
    return r.make("norm", (x, weight, bias), x.shape, kind="layer", eps=float(eps))


@reads("rms_norm", "_fused_rms_norm")
def _rms_norm(
    r: Reading, value: Any, x: Node, shape: tuple[int, ...], weight: Any = None, eps: Any = None
) -> Node:
    if len(shape) != 1:
        raise UnknownStep("a norm over more than one axis")
    eps = torch.finfo(torch.float32).eps if eps is None else float(eps)
    return r.make("norm", (x, weight, None), x.shape, kind="rms", eps=eps)


# --- products ---


@reads("matmul", "bmm")
def _matmul(r: Reading, value: Any, a: Node, b: Node) -> Node:
    if a.op == "constant" or b.op == "constant" or len(a.shape) != len(b.shape):
        raise UnknownStep("a float product with a weight")
    return r.make("matmul", (a, b), r.sizes(value))


@reads("baddbmm")
def _baddbmm(
    r: Reading, value: Any, c: Node, a: Node, b: Node, *, beta: float = 1, alpha: float = 1
) -> Node:
    made = binary(r, "mul", r.make("matmul", (a, b), r.sizes(value)), alpha, value)
    if beta == 0:
        return made
    return binary(r, "add", made, binary(r, "mul", c, beta, value), value)


@reads("scaled_dot_product_attention")
def _sdpa(
    r: Reading,
    value: Any,
    q: Node,
    k: Node,
    v: Node,
    given: Node | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Node:
    if dropout or any(len(n.shape) != 4 for n in (q, k, v)):
        raise UnknownStep("attention with dropout, or of other than four axes")
    if not isinstance(causal, (bool, int)):
        raise UnknownStep("attention that is causal by its sizes")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    mask = given if given is not None and given.dtype == torch.bool else None
    bias = None if mask is not None else given
    return attention(r, q, k, v, scale, bias, mask, bool(causal), r.sizes(value))


def attention(
    r: Reading,
    q: Node,
    k: Node,
    v: Node,
    scale: Any,
    bias: Node | None,
    mask: Node | None,
    causal: bool,
    shape: tuple[Any, ...],
) -> Node:
    """Make the attention node of q [B, H, S, D], k [B, Hkv, T, D] and v [B, Hkv, T, E]."""
    if not isinstance(scale, (int, float)):
        raise UnknownStep("attention whose scale depends on sizes")
    return r.make("attention", (q, k, v, bias, mask), shape, scale=float(scale), causal=causal)


@reads("linear")
def _float_linear(r: Reading, value: Any, x: Node, *args: Any) -> Node:
    raise UnknownStep("a linear layer that stayed float")


@reads("embedding")
def _embedding(r: Reading, value: Any, table: Node, indices: Node, *args: Any) -> Node:
    if table.dtype != torch.float32:
        raise UnknownStep("a table that is not float32")
    return r.make("embedding", (table, indices), r.sizes(value))


@reads("gather")
def _gather(r: Reading, value: Any, x: Node, axis: int, index: Node, **kwargs: Any) -> Node:
    if index.dtype != torch.int64 or not x.shape:
        raise UnknownStep("gather of a scalar, or by other than int64")
    return r.make("gather", (x, axis_of(x, axis), index), r.sizes(value), value.dtype)


@reads("octavo::linear")
def _quantized_linear(
    r: Reading,
    value: Any,
    x: Node,
    packed: Node,
    scale: Node,
    zero_point: Node | None,
    bias: Node | None,
    n: int,
    k: int,
    group: int,
    activation: str,
    format: str = WeightFormat.INT8.value,  # noqa: A002  # as the operator calls it
) -> Node:
    """Read a quantized linear layer; the node holds the name of the layer's module."""
    name = packed.args[0] if packed.op == "constant" else None
    if not isinstance(name, str) or x.dtype != torch.float32:
        raise UnknownStep("a quantized layer whose weight is computed")
    layer = name.rpartition(".")[0]
    shape = r.sizes(value)
    quantizes = group, WeightFormat.parse(format).group
    how = {"layer": layer, "activation": activation, "quantizes": quantizes}
    return r.make("linear", (x, None), shape, **how)


@reads("octavo::cached")
def _cached(r: Reading, value: Any, k: Node, v: Node, total: Node) -> list[Node]:
    slot = {"total": total.args[0]}
    return [
        r.make("cached", (k, v, which), r.sizes(made), **slot) for which, made in enumerate(value)
    ]
