"""What is taken into a Linear node, however it is spelt, and what has to stay outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.graphs import BOOL, FLOAT, Array, Converted, node, values, weight
from tests.native_target.forms import (
    agrees,
    attributes,
    branch,
    constant,
    convert,
    ours,
    run,
    spelt,
)

K, N = 48, 40
X = {"x": (FLOAT, ["b", "s", K])}
Z = (FLOAT, ["b", "s", N])
NUMBERS = {"half": 0.5, "one": 1, "two": 2, "three": 3, "root2": 2**0.5, "rroot2": 0.5**0.5}
NUMBERS |= {"c": 0.044715, "r2pi": (2 / np.pi) ** 0.5, "quick": 1.702}
STORED: dict[str, Array] = {
    "w": weight(K, N, spread=False),
    "v": weight(K, N, seed=9, spread=False),
    "narrow": weight(K, 1, spread=False),
    "b": values(N),
    "b2": values(1, N, seed=5),
    "bias0": values(1, 1, N),
    "bias1": values(7),
    **{name: np.array(number, np.float32) for name, number in NUMBERS.items()},
}


def model(
    text: str, outputs: Any = ("y",), opset: int = 17, bias: Array | None = None, **inputs: Any
) -> onnx.ModelProto:
    """MatMul(x, w) -> h, and `text` behind it."""
    stored = STORED if bias is None else STORED | {"bias": bias}
    return spelt(f"h=MatMul(x,w); {text}", {**X, **inputs}, stored, outputs, opset)


def feeds(given: onnx.ModelProto) -> dict[str, Array]:
    shapes = {"x": (2, 5, K), "z": (2, 5, N)}
    return {i.name: values(*shapes[i.name]) for i in given.graph.input}


def check(given: onnx.ModelProto, folder: Path, x: Any = None, **options: Any) -> Converted:
    """Converts, and compares; what a wrong fusion does is of the order of the signal."""
    converted = convert(given, folder, **options)
    agrees(given, converted, feeds(given) if x is None else x)
    return converted


def alone(converted: Converted) -> onnx.NodeProto:
    (only,) = converted.proto.graph.node
    assert (only.domain, only.op_type) == ("ai.octavo", "Linear")
    return only


ERF = "d=Div(h,root2); e=Erf(d); a=Add(e,one)"
SPELLINGS = {
    "relu": ("relu", "y=Relu(h)"),
    "relu-through-identity": ("relu", "i=Identity(h); y=Relu(i)"),
    "tanh": ("tanh", "y=Tanh(h)"),
    "sigmoid": ("sigmoid", "y=Sigmoid(h)"),
    "sigmoid-by-exp": ("sigmoid", "n=Neg(h); e=Exp(n); a=Add(e,one); y=Reciprocal(a)"),
    "silu": ("silu", "s=Sigmoid(h); y=Mul(h,s)"),
    "silu-other-side": ("silu", "s=Sigmoid(h); y=Mul(s,h)"),
    "silu-quick": ("silu", "y=ms:QuickGelu(h,alpha:1.0)"),
    "silu-swish": ("silu", "y=Swish(h)"),
    "gelu": ("gelu", "y=Gelu(h)"),
    "gelu-none": ("gelu", "y=Gelu(h,approximate:none)"),
    "gelu-ms": ("gelu", "y=ms:Gelu(h)"),
    "gelu-torch": ("gelu", f"{ERF}; m=Mul(h,a); y=Mul(m,half)"),
    "gelu-half-first": ("gelu", f"g=Mul(half,h); {ERF}; y=Mul(g,a)"),
    "gelu-half-inside": (
        *("gelu", "d=Mul(rroot2,h); e=Erf(d); a=Add(one,e); g=Mul(a,half); y=Mul(g,h)"),
    ),
    "gelu-divided-by-two": ("gelu", f"{ERF}; m=Mul(a,h); y=Div(m,two)"),
    "gelu-tanh": ("gelu_tanh", "y=Gelu(h,approximate:tanh)"),
    "gelu-fast": ("gelu_tanh", "y=ms:FastGelu(h)"),
    "gelu-tanh-pow": (
        "gelu_tanh",
        "p=Pow(h,three); q=Mul(p,c); r=Add(h,q); s=Mul(r,r2pi); t=Tanh(s); u=Add(t,one); "
        "v=Mul(h,u); y=Mul(v,half)",
    ),
    "gelu-tanh-products": (
        "gelu_tanh",
        "f=Mul(half,h); a=Mul(h,h); p=Mul(a,h); q=Mul(c,p); r=Add(q,h); s=Mul(r2pi,r); "
        "t=Tanh(s); u=Add(one,t); y=Mul(f,u)",
    ),
    "gelu-tanh-factored": (
        "gelu_tanh",
        "a=Mul(h,h); b=Mul(a,c); d=Add(b,one); e=Mul(h,r2pi); s=Mul(e,d); t=Tanh(s); "
        "u=Add(t,one); v=Mul(u,h); y=Mul(v,half)",
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_activation_is_taken_in(spelling: str, tmp_path: Path) -> None:
    activation, text = SPELLINGS[spelling]
    opset = 24 if "Swish" in text else 20 if "=Gelu(" in text else 17
    converted = check(model(text, opset=opset), tmp_path)
    assert attributes(alone(converted))["activation"] == activation


OUTSIDE = {
    "quick-gelu": "y=ms:QuickGelu(h,alpha:1.702)",
    "quick-gelu-by-default": "y=ms:QuickGelu(h)",
    "quick-gelu-spelt": "m=Mul(h,quick); s=Sigmoid(m); y=Mul(h,s)",
    "leaky-relu": "y=LeakyRelu(h)",
    "elu": "y=Elu(h)",
    "gelu-without-half": f"{ERF}; y=Mul(h,a)",
    "gelu-of-another-root": "d=Div(h,two); e=Erf(d); a=Add(e,one); m=Mul(h,a); y=Mul(m,half)",
    "tanh-of-double": "d=Mul(h,two); y=Tanh(d)",
    "cube": "y=Pow(h,three)",
    "base": "y=Pow(two,h)",
    "negative": "n=Neg(h); y=Sigmoid(n)",
}
READ_ELSEWHERE = {
    "beside an activation": ("y=Relu(h); z2=Neg(h)", ("y", "z2")),
    "beside a bias": ("y=Add(h,b); z2=Neg(h)", ("y", "z2")),
    "inside an activation": ("s=Sigmoid(h); y=Mul(h,s); z2=Neg(s)", ("y", "z2")),
    "an output": ("s=Sigmoid(h); y=Mul(h,s)", ("y", "h")),
    "an output inside an activation": ("s=Sigmoid(h); y=Mul(h,s)", ("y", "s")),
}


@pytest.mark.parametrize("case", [*OUTSIDE, *READ_ELSEWHERE])
def test_what_is_another_function_or_read_elsewhere_stays(case: str, tmp_path: Path) -> None:
    text, outputs = READ_ELSEWHERE[case] if case in READ_ELSEWHERE else (OUTSIDE[case], ("y",))
    given = model(text, outputs)
    converted = check(given, tmp_path)
    (linear,) = ours(converted)
    assert attributes(linear)["activation"] == "none" and len(linear.input) == 5
    assert len(converted.ops) == len(given.graph.node)


def test_what_a_branch_reads_stays(tmp_path: Path) -> None:
    given, inner = model("y=Relu(h)", ("y", "z2"), flag=(BOOL, [])), branch("i", "i=Identity(h)")
    given.graph.node.append(node("If", ["flag"], ["z2"], then_branch=inner, else_branch=inner))
    converted = check(given, tmp_path, {"x": values(2, 5, K), "flag": np.array(True)})
    assert attributes(ours(converted)[0])["activation"] == "none"


def test_large_values_overflow_nothing(tmp_path: Path) -> None:
    """Scaled values reach an activation as they were."""
    check(model(SPELLINGS["silu"][1]), tmp_path, {"x": values(2, 5, K) * np.float32(1e3)})


@pytest.mark.parametrize("shape", [(N,), (1, N), (1, 1, N), (1,), (), (1, 1, 1)], ids=str)
def test_a_bias_is_taken_in(shape: tuple[int, ...], tmp_path: Path) -> None:
    bias, operands = values(*shape), "h,bias" if len(shape) % 2 else "bias,h"
    converted = check(model(f"y=Add({operands})", bias=bias), tmp_path)
    linear = alone(converted)
    assert len(linear.input) == 5
    held = constant(converted, linear.input[4])
    assert np.array_equal(held, np.broadcast_to(bias.reshape(-1), N))


@pytest.mark.parametrize(
    "shape", [(5, N), (5, 1), (2, 1, 1), (2, 5, N), (1, 1, 1, N), (3, 1, 1, N)], ids=str
)
def test_what_varies_by_row_or_adds_dimensions_is_no_bias(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    """It may be a residual: the operator adds what broadcasts. Its shape is the model's."""
    converted = check(model("y=Add(h,bias)", bias=values(*shape)), tmp_path)
    assert not constant(converted, ours(converted)[0].input[4]).any()


@pytest.mark.parametrize(
    "text", ["h=MatMul(x,w); y=Add(h,bias0)", "h=MatMul(x,narrow); y=Add(h,bias1)"]
)
def test_a_bias_that_enlarges_the_output(text: str, tmp_path: Path) -> None:
    """It has a dimension more than a matrix, or widens one output."""
    given = spelt(text, {"x": ["m", K]}, STORED)
    check(given, tmp_path, {"x": values(5, K)}, op_types_to_quantize=["MatMul"])


@pytest.mark.parametrize(
    ("text", "ops", "activation"),
    [
        ("i=Add(h,b); j=Sum(b2,i); y=Tanh(j)", ["Linear"], "tanh"),
        ("r=Relu(h); y=Add(r,b)", ["Linear", "Add"], "relu"),
        ("a=Add(h,z); r=Relu(a); y=Add(r,b)", ["Linear", "Relu", "Add"], "none"),
        ("y=Add(h,z)", ["Linear"], "none"),
        ("y=Add(z,h)", ["Linear"], "none"),
        ("r=Relu(h); y=Add(r,z)", ["Linear"], "relu"),
        ("r=Relu(h); y=Add(z,r)", ["Linear"], "relu"),
        ("y=Add(h,h)", ["Linear", "Add"], "none"),
    ],
)
def test_the_order_of_bias_activation_and_residual(
    text: str, ops: list[str], activation: str, tmp_path: Path
) -> None:
    given = model(text, **({"z": Z} if "z" in text else {}))
    converted = check(given, tmp_path)
    assert converted.ops == ops
    linear = ours(converted)[0]
    assert attributes(linear)["activation"] == activation
    assert list(linear.input)[5:] == (["z"] if "z" in text else [])


def test_a_sum_of_layers_is_taken_in_once_and_where_its_last_operand_is_known(
    tmp_path: Path,
) -> None:
    converted = check(model("i=MatMul(x,v); y=Add(h,i)"), tmp_path)
    assert sorted(len(n.input) for n in ours(converted)) == [5, 6]
    check(model("n=Neg(x); i=MatMul(n,v); t=Tanh(i); y=Add(h,t)"), tmp_path)


def test_layers_over_one_input_are_grouped(tmp_path: Path) -> None:
    sizes = {"q": 40, "k": 16, "v": 33}
    stored = {f"w{n}": weight(K, d, seed=d, spread=False) for n, d in sizes.items()}
    stored |= {f"b{n}": values(d, seed=d) for n, d in sizes.items()}
    texts = {n: f"{n}0=MatMul(x,w{n}); {n}=Add({n}0,b{n})" for n in sizes}
    converted = check(spelt("; ".join(texts.values()), X, stored, list(sizes)), tmp_path)
    (grouped,) = converted.proto.graph.node
    assert grouped.op_type == "GroupedLinear" and list(grouped.output) == list(sizes)
    assert attributes(grouped)["N"] == list(sizes.values())
    # What goes in together comes out as it would alone, bit for bit.
    x = {"x": values(2, 5, K)}
    for n, found in zip(sizes, run(converted, x), strict=True):
        assert np.array_equal(run(convert(spelt(texts[n], X, stored, [n]), tmp_path), x)[0], found)


def test_layers_with_residuals_or_other_groups_stay_alone(tmp_path: Path) -> None:
    given = model("i=MatMul(x,v); j=Add(i,z); k=Identity(j)", ("h", "k"), z=(FLOAT, None))
    assert {n.op_type for n in ours(check(given, tmp_path))} == {"Linear"}


def test_layers_of_two_graphs_are_not_grouped(tmp_path: Path) -> None:
    """A branch reads the outer graph's x: its layer stays in it, with constants of its own."""

    then, other = (
        branch(name, f"{name}m=MatMul(x,w{name}); {name}=Relu({name}m)", {f"w{name}": w})
        for name, w in (("t", STORED["v"]), ("e", -STORED["v"]))
    )
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    given = spelt(nodes, {**X, "flag": (BOOL, [])}, STORED, ["h", "y"])
    converted = convert(given, tmp_path)
    assert [n.op_type for n in ours(converted)] == ["Linear"]
    (choice,) = [n for n in converted.proto.graph.node if n.op_type == "If"]
    for attribute in choice.attribute:
        (inner,) = attribute.g.node
        assert inner.op_type == "Linear" and attributes(inner)["activation"] == "relu"
        assert set(inner.input[1:]) == {i.name for i in attribute.g.initializer}
    for flag in (True, False):
        agrees(given, converted, {"x": values(2, 5, K), "flag": np.array(flag)})
