"""Gated layers, wide layers that are taken apart, and the numbers that tell where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from octavo.graph.rewrite import fold_sizes, gates, split_columns
from octavo.onnx import convert_target, session
from tests.graphs import (
    FLOAT,
    INT8,
    Converted,
    build,
    convert,
    error,
    run,
    values,
    weight,
)
from tests.native_target.spelling import nodes_of

K, N = 48, 40
STORED = {
    "w": weight(K, N, seed=1, spread=False),
    "v": weight(K, N, seed=2, spread=False),
    "o": weight(N, K, seed=3, spread=False),
    "wide": weight(K, 2 * N, seed=4, spread=False),
    "three": weight(K, 96, seed=5, spread=False),
    "c": values(2 * N, seed=6),
    "narrow": weight(K, 8, seed=7, spread=False),
    "b": values(N, seed=8),
    "d": values(N, seed=9),
    "half": np.array(0.5, np.float32),
    "one": np.array(1, np.float32),
    "root2": np.array(2**0.5, np.float32),
    **{f"i{n}": np.array([n], np.int64) for n in (0, 1, 2, 10, 32, 40, 64, 80, 96)},
    "last": np.array([-1], np.int64),
    "s2": np.array(2, np.int64),
    "s1": np.array(1, np.int64),
    "far": np.array([2**31 - 1], np.int64),
    "sizes": np.array([40, 40], np.int64),
    "qkv": np.array([64, 16, 16], np.int64),
}


def model(text: str, outputs: Sequence[str] = ("y",), opset: int = 17) -> onnx.ModelProto:
    nodes = nodes_of(text)
    read = {name for each in nodes for name in each.input}
    stored = {name: a for name, a in STORED.items() if name in read}
    return build(nodes, {"x": (FLOAT, ["b", "s", K])}, list(outputs), stored, opset=opset)


def check(given: onnx.ModelProto, folder: Path) -> Converted:
    """Converts, and compares with the float model in both targets."""
    converted = convert(given, folder, target="native")
    portable = folder / "portable.onnx"
    convert_target(converted.path, portable, to="portable")
    feeds = {"x": values(2, 5, K)}
    wanted = run(given, feeds)
    for path in (converted.path, portable):
        for a, b in zip(session(path).run(None, feeds), wanted, strict=True):
            assert a.shape == b.shape and error(a, b) < 1.5 * INT8
    return converted


def activation(converted: Converted, op: str = "GatedLinear") -> str:
    (found,) = (n for n in converted.proto.graph.node if n.op_type == op)
    return next(
        helper.get_attribute_value(a).decode() for a in found.attribute if a.name == "activation"
    )


GATES = {
    "swiglu": ("silu none", "g=MatMul(x,w); u=MatMul(x,v); s=Sigmoid(g); a=Mul(g,s); y=Mul(a,u)"),
    "the other side": (
        "silu none",
        "u=MatMul(x,v); g=MatMul(x,w); s=Sigmoid(g); a=Mul(g,s); y=Mul(u,a)",
    ),
    "geglu": (
        "gelu none",
        "g=MatMul(x,w); u=MatMul(x,v); e=Div(g,root2); f=Erf(e); h=Add(f,one); "
        "i=Mul(g,h); a=Mul(i,half); y=Mul(a,u)",
    ),
    "geglu by tanh": (
        "gelu_tanh none",
        "g=MatMul(x,w); u=MatMul(x,v); a=ms:FastGelu(g); y=Mul(a,u)",
    ),
    "reglu": ("relu none", "g=MatMul(x,w); u=MatMul(x,v); a=Relu(g); y=Mul(a,u)"),
    "glu": ("sigmoid none", "g=MatMul(x,w); u=MatMul(x,v); a=Sigmoid(g); y=Mul(u,a)"),
    "bilinear": ("none none", "g=MatMul(x,w); u=MatMul(x,v); y=Mul(u,g)"),
    "with biases": (
        "silu none",
        "g=MatMul(x,w); gb=Add(g,b); u=MatMul(x,v); ub=Add(d,u); s=Sigmoid(gb); "
        "a=Mul(gb,s); y=Mul(a,ub)",
    ),
    "one wide layer": (
        "silu none",
        "h=MatMul(x,wide); g|u=Split(h,axis:-1); s=Sigmoid(g); a=Mul(g,s); y=Mul(u,a)",
    ),
    "one wide layer with a bias": (
        "relu none",
        "h=MatMul(x,wide); hb=Add(h,c); u|g=Split(hb,sizes,axis:2); a=Relu(g); y=Mul(u,a)",
    ),
    "slices": (
        "relu none",
        "h=MatMul(x,wide); g=Slice(h,i0,i40,last); u=Slice(h,i40,far,i2,i1); a=Relu(g); y=Mul(u,a)",
    ),
    "computed slices": (
        "relu none",
        "h=MatMul(x,wide); z=Shape(h); n=Gather(z,s2); m=Add(n,s1); k=Div(m,s2); "
        "l=Mul(k,s1); e=Unsqueeze(l,i0); j=Mul(k,s2); f=Unsqueeze(j,i0); "
        "g=Slice(h,i0,e,i2); u=Slice(h,e,f,i2); a=Relu(g); y=Mul(u,a)",
    ),
}


@pytest.mark.parametrize("name", GATES)
def test_a_gated_layer_is_one_node(name: str, tmp_path: Path) -> None:
    wanted, text = GATES[name]
    converted = check(model(text), tmp_path)
    assert converted.ops == ["GatedLinear"]
    assert activation(converted) == wanted


OTHERS = {
    "other inputs": "r=Relu(x); g=MatMul(x,w); u=MatMul(r,v); y=Mul(g,u)",
    "other sizes": "g=MatMul(x,w); u=MatMul(x,narrow); m=ReduceMax(u,axes:-1/); y=Mul(g,m)",
    "a square": "g=MatMul(x,w); y=Mul(g,g)",
    "read elsewhere": "g=MatMul(x,w); u=MatMul(x,v); p=Mul(g,u); y=Sub(p,u)",
    "two activations": "g=MatMul(x,w); u=MatMul(x,v); a=Tanh(g); i=Sigmoid(u); y=Mul(a,i)",
    "sums": "g=MatMul(x,w); u=MatMul(x,v); y=Sub(g,u)",
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_product_stays(name: str, tmp_path: Path) -> None:
    assert "GatedLinear" not in check(model(OTHERS[name]), tmp_path).ops


WHOLE = "h=MatMul(x,three); q|k|v2=Split(h,qkv,axis:-1); a=Tanh(q); p=Relu(k); z=Neg(v2)"


def test_a_wide_layer_becomes_one_for_each_part(tmp_path: Path) -> None:
    converted = check(model(WHOLE, ("a", "p", "z")), tmp_path)
    assert converted.ops == ["GroupedLinear", "Neg"]
    words = activation(converted, "GroupedLinear").split(" ")
    assert sorted(words) == ["none", "relu", "tanh"]
    (layer,) = converted.report.layers
    assert layer.quantized and layer.layer.name == "h_node"


KEPT = {
    "another axis": "h=MatMul(x,three); q|k=Split(h,axis:0); y=Sub(q,k)",
    "an output": "h=MatMul(x,wide); q|k=Split(h,axis:-1); y=Sub(q,k)",
    "another reader": (
        "h=MatMul(x,wide); q|k=Split(h,axis:-1); l=Sub(q,k); m=ReduceMax(h,axes:-1/); y=Add(l,m)"
    ),
    "every other column": (
        "h=MatMul(x,wide); q=Slice(h,i0,i80,last,i2); k=Slice(h,i1,i80,last,i2); y=Sub(q,k)"
    ),
    "columns twice": (
        "h=MatMul(x,wide); q=Slice(h,i0,i64,last); k=Slice(h,i10,far,last); "
        "m=ReduceMax(k,axes:-1/); y=Add(q,m)"
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_another_use_of_the_columns_stays(name: str, tmp_path: Path) -> None:
    outputs = ("y", "h") if name == "an output" else ("y",)
    converted = check(model(KEPT[name], outputs), tmp_path)
    assert converted.ops.count("Linear") == 1 and "GroupedLinear" not in converted.ops


def test_what_is_taken_over_is_stated() -> None:
    y = values(3, 8)
    left, right = split_columns.reference(y, [range(5), range(5, 8)])
    assert np.array_equal(left, y[:, :5]) and np.array_equal(right, y[:, 5:])
    assert np.array_equal(gates.reference(y, 2 * y), y.astype(np.float64) * (2 * y))
    assert fold_sizes.reference((2, 5, 64), 2, 2) == 32


SIZES = {
    "of an axis": ("n=Gather(z,i2); y=Cast(n,to:1)", [96]),
    "a part of a shape": ("n=Slice(z,i2,far,i0); y=Cast(n,to:1)", [96]),
    "a part without axes": ("n=Slice(z,i2,far); y=Cast(n,to:1)", [96]),
    "joined": ("n=Gather(z,i2); p=Concat(n,i10,axis:0); y=Cast(p,to:1)", [96, 10]),
    "divided": ("n=Gather(z,i2); q=Sub(n,i1); r=Div(q,i2); y=Cast(r,to:1)", [47]),
    "in 32 bits": ("n=Gather(z,i2); q=Cast(n,to:6); y=Cast(q,to:1)", [96]),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_never_change_are_constants(name: str, tmp_path: Path) -> None:
    text, wanted = SIZES[name]
    given = model(f"h=MatMul(x,three); z=Shape(h); {text}", ("h", "y"))
    converted = convert(given, tmp_path, target="native")
    assert sorted(converted.ops) == ["Cast", "Linear"]
    found = session(converted.path).run(["y"], {"x": values(2, 5, K)})[0]
    assert found.tolist() == wanted


def test_sizes_that_change_are_computed(tmp_path: Path) -> None:
    given = model("h=MatMul(x,three); z=Shape(h); n=Gather(z,i1); y=Cast(n,to:1)", ("h", "y"))
    converted = convert(given, tmp_path, target="native")
    for s in (5, 7):
        feeds: dict[str, Any] = {"x": values(2, s, K)}
        assert session(converted.path).run(["y"], feeds)[0].tolist() == [s]
