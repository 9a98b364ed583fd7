"""What is taken into a Linear node, however it is spelt, and what has to stay outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.onnx import session
from tests.graphs import (
    BOOL,
    FLOAT,
    INT8,
    MS,
    Array,
    Converted,
    build,
    convert,
    error,
    node,
    run,
    values,
    weight,
)

K, N = 48, 40
Nodes = Sequence[onnx.NodeProto]
X = {"x": (FLOAT, ["b", "s", K])}
W = weight(K, N, spread=False)


def model(
    nodes: Nodes,
    stored: dict[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    """MatMul(x, w) -> h, and `nodes` behind it."""
    all_nodes = [node("MatMul", ["x", "w"], ["h"], name="layer"), *nodes]
    return build(all_nodes, {**X, **more}, list(outputs), {"w": W, **(stored or {})}, opset=opset)


def native(given: onnx.ModelProto, folder: Path, **options: Any) -> Converted:
    return convert(given, folder, target="native", **options)


def octavo_nodes(converted: Converted) -> list[onnx.NodeProto]:
    return [n for n in converted.proto.graph.node if n.domain == "ai.octavo"]


def said(n: onnx.NodeProto, name: str) -> Any:
    return next(helper.get_attribute_value(a) for a in n.attribute if a.name == name)


def agrees(
    given: onnx.ModelProto, converted: Converted, feeds: dict[str, Array] | None = None
) -> None:
    """With the float model; what a wrong fusion does is of the order of the signal."""
    feeds = {"x": values(2, 5, K)} if feeds is None else feeds
    found = session(converted.path).run(None, feeds)
    for a, b in zip(found, run(given, feeds), strict=True):
        assert a.shape == b.shape and error(a, b) < INT8


def alone(converted: Converted) -> onnx.NodeProto:
    """The one node of the model."""
    (only,) = converted.proto.graph.node
    assert (only.domain, only.op_type) == ("ai.octavo", "Linear")
    return only


# --- activations ----------------------------------------------------------------------------------

CONSTANTS = {
    name: np.array(value, np.float32)
    for name, value in {
        "half": 0.5, "one": 1, "three": 3, "root2": 2**0.5, "rroot2": 0.5**0.5, "two": 2,
        "c": 0.044715, "r2pi": (2 / np.pi) ** 0.5, "minus": -1, "quick": 1.702,
    }.items()
}  # fmt: skip


def chain(text: str, opset: int = 17) -> Callable[[], onnx.ModelProto]:
    """`a=Op(b,c); ...` from h to y."""

    def make() -> onnx.ModelProto:
        nodes = []
        for statement in text.split(";"):
            out, _, call = statement.strip().partition("=")
            op, _, operands = call.strip().rstrip(")").partition("(")
            domain, _, op_type = op.rpartition(":")
            attributes: dict[str, Any] = {}
            inputs = []
            for operand in operands.split(","):
                key, found, value = operand.strip().partition(":")
                if found:
                    attributes[key] = float(value) if value[0].isdigit() else value
                else:
                    inputs.append(key)
            if domain:
                attributes["domain"] = {"ms": MS}[domain]
            nodes.append(node(op_type, inputs, [out.strip()], **attributes))
        return model(nodes, CONSTANTS, opset=opset)

    return make


SPELLINGS: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
    "relu": ("relu", chain("y=Relu(h)")),
    "relu-through-identity": ("relu", chain("i=Identity(h); y=Relu(i)")),
    "tanh": ("tanh", chain("y=Tanh(h)")),
    "sigmoid": ("sigmoid", chain("y=Sigmoid(h)")),
    "sigmoid-by-exp": ("sigmoid", chain("n=Neg(h); e=Exp(n); a=Add(e,one); y=Reciprocal(a)")),
    "silu": ("silu", chain("s=Sigmoid(h); y=Mul(h,s)")),
    "silu-other-side": ("silu", chain("s=Sigmoid(h); y=Mul(s,h)")),
    "silu-quick": ("silu", chain("y=ms:QuickGelu(h,alpha:1.0)")),
    "silu-swish": ("silu", chain("y=Swish(h)", 24)),
    "gelu": ("gelu", chain("y=Gelu(h)", 20)),
    "gelu-none": ("gelu", chain("y=Gelu(h,approximate:none)", 20)),
    "gelu-ms": ("gelu", chain("y=ms:Gelu(h)")),
    "gelu-torch": (
        "gelu",
        chain("d=Div(h,root2); e=Erf(d); a=Add(e,one); m=Mul(h,a); y=Mul(m,half)"),
    ),
    "gelu-half-first": (
        "gelu",
        chain("g=Mul(half,h); d=Mul(h,rroot2); e=Erf(d); a=Add(one,e); y=Mul(g,a)"),
    ),
    "gelu-half-inside": (
        "gelu",
        chain("d=Mul(rroot2,h); e=Erf(d); a=Add(e,one); g=Mul(a,half); y=Mul(g,h)"),
    ),
    "gelu-divided-by-two": (
        "gelu",
        chain("d=Div(h,root2); e=Erf(d); a=Add(e,one); m=Mul(a,h); y=Div(m,two)"),
    ),
    "gelu-tanh": ("gelu_tanh", chain("y=Gelu(h,approximate:tanh)", 20)),
    "gelu-fast": ("gelu_tanh", chain("y=ms:FastGelu(h)")),
    "gelu-tanh-pow": (
        "gelu_tanh",
        chain(
            "p=Pow(h,three); q=Mul(p,c); r=Add(h,q); s=Mul(r,r2pi); t=Tanh(s); u=Add(t,one); "
            "v=Mul(h,u); y=Mul(v,half)"
        ),
    ),
    "gelu-tanh-products": (
        "gelu_tanh",
        chain(
            "f=Mul(half,h); a=Mul(h,h); p=Mul(a,h); q=Mul(c,p); r=Add(q,h); s=Mul(r2pi,r); "
            "t=Tanh(s); u=Add(one,t); y=Mul(f,u)"
        ),
    ),
    "gelu-tanh-factored": (
        "gelu_tanh",
        chain(
            "a=Mul(h,h); b=Mul(a,c); d=Add(b,one); e=Mul(h,r2pi); s=Mul(e,d); t=Tanh(s); "
            "u=Add(t,one); v=Mul(u,h); y=Mul(v,half)"
        ),
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_activation_is_taken_in(spelling: str, tmp_path: Path) -> None:
    activation, make = SPELLINGS[spelling]
    given = make()
    converted = native(given, tmp_path)
    assert said(alone(converted), "activation").decode() == activation
    agrees(given, converted)


OUTSIDE = {
    "quick-gelu": chain("y=ms:QuickGelu(h,alpha:1.702)"),
    "quick-gelu-by-default": chain("y=ms:QuickGelu(h)"),
    "quick-gelu-spelt": chain("m=Mul(h,quick); s=Sigmoid(m); y=Mul(h,s)"),
    "leaky-relu": chain("y=LeakyRelu(h)"),
    "elu": chain("y=Elu(h)"),
    "gelu-without-half": chain("d=Div(h,root2); e=Erf(d); a=Add(e,one); y=Mul(h,a)"),
    "gelu-of-another-root": chain(
        "d=Div(h,two); e=Erf(d); a=Add(e,one); m=Mul(h,a); y=Mul(m,half)"
    ),
    "tanh-of-double": chain("d=Mul(h,two); y=Tanh(d)"),
    "cube": chain("y=Pow(h,three)"),
    "base": chain("y=Pow(two,h)"),
    "negative": chain("n=Neg(h); y=Sigmoid(n)"),
}


@pytest.mark.parametrize("spelling", OUTSIDE)
def test_another_function_stays_outside(spelling: str, tmp_path: Path) -> None:
    given = OUTSIDE[spelling]()
    converted = native(given, tmp_path)
    assert said(octavo_nodes(converted)[0], "activation") == b"none"
    assert len(converted.proto.graph.node) == len(given.graph.node)
    agrees(given, converted)


def test_scaled_values_reach_an_activation_as_they_were(tmp_path: Path) -> None:
    """`negative` above for large numbers: nothing overflows that did not."""
    given = SPELLINGS["silu"][1]()
    x = values(2, 5, K) * np.float32(1e3)
    converted = native(given, tmp_path)
    found = session(converted.path).run(None, {"x": x})[0]
    assert np.isfinite(found).all() and error(found, run(given, {"x": x})[0]) < INT8


def test_an_output_inside_an_activation_stays(tmp_path: Path) -> None:
    nodes = [node("Sigmoid", ["h"], ["s"]), node("Mul", ["h", "s"], ["y"])]
    for outputs in (["y", "h"], ["y", "s"]):
        given = model(nodes, outputs=outputs)
        converted = native(given, tmp_path)
        assert said(octavo_nodes(converted)[0], "activation") == b"none"
        agrees(given, converted)


def test_a_value_that_is_read_elsewhere_stays(tmp_path: Path) -> None:
    """Beside an activation, beside a bias, inside an activation, and by a subgraph."""
    branch = helper.make_graph(
        [helper.make_node("Identity", ["h"], ["i"])],
        "branch",
        [],
        [helper.make_tensor_value_info("i", FLOAT, None)],
    )
    cases: list[tuple[list[Any], list[str], dict[str, Any]]] = [
        ([node("Relu", ["h"], ["y"]), node("Neg", ["h"], ["z"])], ["y", "z"], {}),
        ([node("Add", ["h", "bias"], ["y"]), node("Neg", ["h"], ["z"])], ["y", "z"], {}),
        (
            [
                node("Sigmoid", ["h"], ["s"]),
                node("Mul", ["h", "s"], ["y"]),
                node("Neg", ["s"], ["z"]),
            ],
            ["y", "z"],
            {},
        ),
        (
            [
                node("Relu", ["h"], ["y"]),
                node("If", ["flag"], ["z"], then_branch=branch, else_branch=branch),
            ],
            ["y", "z"],
            {"flag": (BOOL, [])},
        ),
    ]
    for nodes, outputs, more in cases:
        given = model(nodes, {"bias": values(N)}, outputs, **more)
        converted = native(given, tmp_path)
        (linear,) = octavo_nodes(converted)
        assert said(linear, "activation") == b"none" and len(linear.input) == 5
        feeds = {"x": values(2, 5, K)} | ({"flag": np.array(True)} if more else {})
        agrees(given, converted, feeds)


# --- biases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("shape", [(N,), (1, N), (1, 1, N), (1,), (), (1, 1, 1)], ids=str)
def test_a_bias_is_taken_in(shape: tuple[int, ...], side: int, tmp_path: Path) -> None:
    operands = ["h", "bias"] if side == 0 else ["bias", "h"]
    given = model([node("Add", operands, ["y"])], {"bias": values(*shape)})
    converted = native(given, tmp_path)
    linear = alone(converted)
    assert len(linear.input) == 5
    bias = next(i for i in converted.proto.graph.initializer if i.name == linear.input[4])
    assert np.array_equal(
        numpy_helper.to_array(bias), np.broadcast_to(values(*shape).reshape(-1), N)
    )
    agrees(given, converted)


def test_biases_add_up_and_an_activation_follows(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["h", "a"], ["i"]),
        node("Sum", ["b", "i"], ["j"]),
        node("Tanh", ["j"], ["y"]),
    ]
    given = model(nodes, {"a": values(N, seed=4), "b": values(1, N, seed=5)})
    converted = native(given, tmp_path)
    assert said(alone(converted), "activation") == b"tanh"
    agrees(given, converted)


@pytest.mark.parametrize(
    "shape", [(5, N), (5, 1), (2, 1, 1), (2, 5, N), (1, 1, 1, N), (3, 1, 1, N)]
)
def test_what_varies_by_row_or_adds_dimensions_is_no_bias(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    """It may be a residual: the operator adds what broadcasts. Its shape is the model's."""
    given = model([node("Add", ["h", "bias"], ["y"])], {"bias": values(*shape)})
    converted = native(given, tmp_path)
    (linear,) = octavo_nodes(converted)
    bias = next(i for i in converted.proto.graph.initializer if i.name == linear.input[4])
    assert not numpy_helper.to_array(bias).any()
    agrees(given, converted)


def test_a_bias_of_one_dimension_more_than_a_matrix(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "bias"], ["y"])]
    given = build(nodes, {"x": (FLOAT, ["m", K])}, ["y"], {"w": W, "bias": values(1, 1, N)})
    agrees(given, native(given, tmp_path), {"x": values(5, K)})


def test_a_bias_that_widens_one_output(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "bias"], ["y"])]
    stored = {"w": weight(K, 1, spread=False), "bias": values(7)}
    given = build(nodes, {"x": (FLOAT, ["m", K])}, ["y"], stored)
    asked = native(given, tmp_path, op_types_to_quantize=["MatMul"])
    agrees(given, asked, {"x": values(5, K)})


def test_a_bias_behind_an_activation_is_not_moved_before_it(tmp_path: Path) -> None:
    nodes = [node("Relu", ["h"], ["r"]), node("Add", ["r", "bias"], ["y"])]
    given = model(nodes, {"bias": values(N)})
    converted = native(given, tmp_path)
    assert converted.ops == ["Linear", "Add"]
    agrees(given, converted)


# --- residuals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("before", ["", "Relu"])
def test_a_residual_is_taken_in(side: int, before: str, tmp_path: Path) -> None:
    y = "r" if before else "h"
    nodes = [node(before, ["h"], ["r"])] if before else []
    nodes.append(node("Add", [y, "z"] if side == 0 else ["z", y], ["y"]))
    given = model(nodes, z=(FLOAT, ["b", "s", N]))
    converted = native(given, tmp_path)
    linear = alone(converted)
    assert list(linear.input)[5] == "z" and said(linear, "activation") == (
        b"relu" if before else b"none"
    )
    agrees(given, converted, {"x": values(2, 5, K), "z": values(2, 5, N)})


@pytest.mark.parametrize("shape", [(5, N), (1, 5, N), (2, 1, N), (3, 2, 5, N), (5, 1)], ids=str)
def test_a_residual_of_another_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    z = (FLOAT, [f"z{i}" for i in range(len(shape))])
    given = model([node("Add", ["h", "z"], ["y"])], z=z)
    converted = native(given, tmp_path)
    agrees(given, converted, {"x": values(2, 5, K), "z": values(*shape)})


def test_nothing_follows_a_residual_inside(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["h", "z"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("Add", ["r", "bias"], ["y"]),
    ]
    given = model(nodes, {"bias": values(N)}, z=(FLOAT, ["b", "s", N]))
    converted = native(given, tmp_path)
    assert converted.ops == ["Linear", "Relu", "Add"]
    agrees(given, converted, {"x": values(2, 5, K), "z": values(2, 5, N)})


def test_an_output_added_to_itself(tmp_path: Path) -> None:
    given = model([node("Add", ["h", "h"], ["y"])])
    converted = native(given, tmp_path)
    assert converted.ops == ["Linear", "Add"]
    agrees(given, converted)


def test_the_sum_of_two_layers_is_taken_in_once(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "v"], ["i"]), node("Add", ["h", "i"], ["y"])]
    given = model(nodes, {"v": weight(K, N, seed=9, spread=False)})
    converted = native(given, tmp_path)
    assert sorted(len(n.input) for n in octavo_nodes(converted)) == [5, 6]
    agrees(given, converted)


def test_a_residual_that_comes_later_in_the_file(tmp_path: Path) -> None:
    """The new node stands where its last operand is known."""
    nodes = [node("Neg", ["x"], ["n"]), node("MatMul", ["n", "square"], ["i"])]
    nodes += [node("Tanh", ["i"], ["t"]), node("Add", ["h", "t"], ["y"])]
    given = model(nodes, {"square": weight(K, N, seed=8, spread=False)})
    converted = native(given, tmp_path)
    agrees(given, converted)


# --- several layers over one input ----------------------------------------------------------------


def test_layers_over_one_input_are_grouped(tmp_path: Path) -> None:
    sizes = {"q": 40, "k": 16, "v": 33}
    nodes = [node("MatMul", ["x", f"w{n}"], [f"{n}0"], name=n) for n in sizes]
    nodes += [node("Add", [f"{n}0", f"b{n}"], [n]) for n in sizes]
    stored = {f"w{n}": weight(K, d, seed=d, spread=False) for n, d in sizes.items()}
    stored |= {f"b{n}": values(d, seed=d) for n, d in sizes.items()}
    given = build(nodes, X, list(sizes), stored)
    converted = native(given, tmp_path)
    (grouped,) = converted.proto.graph.node
    assert grouped.op_type == "GroupedLinear" and list(grouped.output) == list(sizes)
    assert said(grouped, "N") == list(sizes.values())
    agrees(given, converted)
    # What goes in together comes out as it would alone, bit for bit.
    x = {"x": values(2, 5, K)}
    for n, found in zip(sizes, session(converted.path).run(None, x), strict=True):
        one = build(
            [nodes[list(sizes).index(n)], node("Add", [f"{n}0", f"b{n}"], [n])], X, [n], stored
        )
        assert np.array_equal(session(native(one, tmp_path).path).run(None, x)[0], found)


def test_layers_with_residuals_or_other_groups_stay_alone(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "v"], ["i"]),
        node("Add", ["i", "z"], ["j"]),
        node("Identity", ["j"], ["k"]),
    ]
    given = model(nodes, {"v": weight(K, N, seed=3, spread=False)}, ["h", "k"], z=(FLOAT, None))
    converted = native(given, tmp_path)
    assert {n.op_type for n in octavo_nodes(converted)} == {"Linear"}
    agrees(given, converted, {"x": values(2, 5, K), "z": values(2, 5, N)})


def test_layers_of_two_graphs_are_not_grouped(tmp_path: Path) -> None:
    """A branch reads the outer graph's x: its layer stays in it, with constants of its own."""

    def branch(name: str, seed: int) -> Any:
        w = numpy_helper.from_array(weight(K, N, seed=seed, spread=False), f"w_{name}")
        nodes = [node("MatMul", ["x", f"w_{name}"], [f"m_{name}"])]
        nodes.append(node("Relu", [f"m_{name}"], [name]))
        info = [helper.make_tensor_value_info(name, FLOAT, None)]
        return helper.make_graph(nodes, name, [], info, [w])

    nodes = [node("If", ["flag"], ["y"], then_branch=branch("t", 5), else_branch=branch("e", 6))]
    given = model(nodes, outputs=["h", "y"], flag=(BOOL, []))
    converted = native(given, tmp_path)
    assert [n.op_type for n in octavo_nodes(converted)] == ["Linear"]
    (choice,) = [n for n in converted.proto.graph.node if n.op_type == "If"]
    for attribute in choice.attribute:
        (inner,) = attribute.g.node
        assert inner.op_type == "Linear" and said(inner, "activation") == b"relu"
        assert set(inner.input[1:]) == {i.name for i in attribute.g.initializer}
    for flag in (True, False):
        agrees(given, converted, {"x": values(2, 5, K), "flag": np.array(flag)})
