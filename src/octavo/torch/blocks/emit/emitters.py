"""The steps of each node: what `emission` has for its op."""

from __future__ import annotations

from typing import Any

from octavo.core.program import Normed
from octavo.torch.blocks.emit.emission import DTYPES, Emission, emits
from octavo.torch.blocks.nodes import Node


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
    """Return the value of a bias or mask with leading axes of 1 added, to make four axes."""
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


@emits("normed")
def _normed_linears(e: Emission, node: Node) -> Any:
    how, (x, weight, bias) = node.attributes, node.args
    layers = [e.weights.linear(name) for name in how["layers"]]
    norm = how["norm"]
    taken = Normed(norm["kind"], e.vector(weight), e.vector(bias), norm["eps"], how["kept"])
    words = [] if how["gate"] else list(how["activations"])
    return e.program.linear(e.value(x), layers, words, gate=how["gate"], norm=taken)


@emits("item")
def _item(e: Emission, node: Node) -> Any:
    return e.value(node.args[0])[node.args[1]]


@emits("gated")
def _gated(e: Emission, node: Node) -> Any:
    how = node.attributes
    layers = [e.weights.linear(name) for name in how["layers"]]
    (made,) = e.program.linear(e.value(node.args[0]), layers, ["none", "none"], gate=how["gate"])
    return made
