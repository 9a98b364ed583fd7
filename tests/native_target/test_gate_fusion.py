"""Gated layers, wide layers that are taken apart, layers over flat rows, and sizes as constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite import flat_rows, fold_sizes, gates, packed_heads, split_columns
from octavo.onnx import convert_target
from tests.graphs import INT8, Array, Converted, assert_close, values, weight
from tests.graphs import run as run_float
from tests.native_target.forms import agrees, attributes, convert, ours, run, spelt

K, N, D = 48, 40, 8
PARTS, HEADS = 3, 4
NUMBERS = {"half": 0.5, "one": 1.0, "root2": 2**0.5}
INTEGERS: dict[str, Any] = {f"i{n}": [n] for n in (0, 1, 2, 3, 10, 32, 40, 64, 80, 96)}
INTEGERS |= {"s0": 0, "s1": 1, "s2": 2, "slast": -1, "last": [-1], "third": [-3]}
INTEGERS |= {"far": [2**31 - 1], "sizes": [40, 40], "qkv": [64, 16, 16], "ones": [1, 1, 1]}
INTEGERS |= {"rows": [-1, K], "other_rows": [-1, K // 2], "n": [N], "k": [K], "half_n": [N // 2]}
INTEGERS |= {"shape": [0, 0, PARTS, HEADS, D], "rest": [0, 0, PARTS, -1, D]}
INTEGERS |= {"other": [0, 0, HEADS, PARTS, D], "wider": [2, 3, PARTS, HEADS, -1]}
INTEGERS |= {"tail": [PARTS, HEADS, D]}
STORED: dict[str, Array] = {
    "w": weight(K, N, seed=1, spread=False),
    "v": weight(K, N, seed=2, spread=False),
    "square": weight(K, K, seed=3, spread=False),
    "wide": weight(K, 2 * N, seed=4, spread=False),
    "three": weight(K, PARTS * HEADS * D, seed=5, spread=False),
    "narrow": weight(K, 8, seed=7, spread=False),
    "short": weight(K // 2, N, seed=4, spread=False),
    "c": values(2 * N, seed=6),
    "b": values(N, seed=8),
    "d": values(N, seed=9),
    "e3": values(PARTS * HEADS * D, seed=4),
    **{name: np.array(number, np.float32) for name, number in NUMBERS.items()},
    **{name: np.array(number, np.int64) for name, number in INTEGERS.items()},
}


def model(text: str, outputs: Any = ("y",)) -> onnx.ModelProto:
    return spelt(text, {"x": ["b", "s", K]}, STORED, outputs)


def check(given: onnx.ModelProto, folder: Path) -> Converted:
    """Converts, and compares with the float model in both targets."""
    converted = convert(given, folder)
    portable = folder / "portable.onnx"
    convert_target(converted.path, portable, to="portable", verify=False)
    for path in (converted.path, portable):
        agrees(given, path, {"x": values(2, 6, K)}, 1.5 * INT8)
    return converted


def activation(converted: Converted, op: str = "GatedLinear") -> str:
    (found,) = (n for n in ours(converted) if n.op_type == op)
    return str(attributes(found)["activation"])


TWO = "g=MatMul(x,w); u=MatMul(x,v)"
ERF = "e=Div(g,root2); f=Erf(e); h=Add(f,one); i=Mul(g,h); a=Mul(i,half)"
GATES = {
    "swiglu": ("silu none", f"{TWO}; s=Sigmoid(g); a=Mul(g,s); y=Mul(a,u)"),
    "the other side": (
        *("silu none", "u=MatMul(x,v); g=MatMul(x,w); s=Sigmoid(g); a=Mul(g,s); y=Mul(u,a)"),
    ),
    "geglu": ("gelu none", f"{TWO}; {ERF}; y=Mul(a,u)"),
    "geglu by tanh": ("gelu_tanh none", f"{TWO}; a=ms:FastGelu(g); y=Mul(a,u)"),
    "reglu": ("relu none", f"{TWO}; a=Relu(g); y=Mul(a,u)"),
    "glu": ("sigmoid none", f"{TWO}; a=Sigmoid(g); y=Mul(u,a)"),
    "bilinear": ("none none", f"{TWO}; y=Mul(u,g)"),
    "with biases": (
        *("silu none", f"{TWO}; gb=Add(g,b); ub=Add(d,u); s=Sigmoid(gb); a=Mul(gb,s); y=Mul(a,ub)"),
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
    "read elsewhere": f"{TWO}; p=Mul(g,u); y=Sub(p,u)",
    "two activations": f"{TWO}; a=Tanh(g); i=Sigmoid(u); y=Mul(a,i)",
    "sums": f"{TWO}; y=Sub(g,u)",
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
    "another reader": "h=MatMul(x,wide); q|k=Split(h,axis:-1); l=Sub(q,k); "
    "m=ReduceMax(h,axes:-1/); y=Add(l,m)",
    "every other column": "h=MatMul(x,wide); q=Slice(h,i0,i80,last,i2); "
    "k=Slice(h,i1,i80,last,i2); y=Sub(q,k)",
    "columns twice": "h=MatMul(x,wide); q=Slice(h,i0,i64,last); k=Slice(h,i10,far,last); "
    "m=ReduceMax(k,axes:-1/); y=Add(q,m)",
}


@pytest.mark.parametrize("name", KEPT)
def test_another_use_of_the_columns_stays(name: str, tmp_path: Path) -> None:
    outputs = ("y", "h") if name == "an output" else ("y",)
    converted = check(model(KEPT[name], outputs), tmp_path)
    assert converted.ops.count("Linear") == 1 and "GroupedLinear" not in converted.ops


def test_what_is_taken_over_is_stated() -> None:
    x, y = values(2, 3, 4), values(3, 8)
    left, right = split_columns.reference(y, [range(5), range(5, 8)])
    assert np.array_equal(left, y[:, :5]) and np.array_equal(right, y[:, 5:])
    assert np.array_equal(gates.reference(y, 2 * y), y.astype(np.float64) * (2 * y))
    assert fold_sizes.reference((2, 5, 64), 2, 2) == 32
    w = y[:, :4].T
    np.testing.assert_allclose(flat_rows.reference(x, w), x.astype(np.float64) @ w)


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
    converted = convert(model(f"h=MatMul(x,three); z=Shape(h); {text}", ("h", "y")), tmp_path)
    assert sorted(converted.ops) == ["Cast", "Linear"]
    assert run(converted, {"x": values(2, 5, K)}, ["y"])[0].tolist() == wanted


def test_sizes_that_change_are_computed(tmp_path: Path) -> None:
    text = "h=MatMul(x,three); z=Shape(h); n2=Gather(z,i1); y=Cast(n2,to:1)"
    converted = convert(model(text, ("h", "y")), tmp_path)
    for s in (5, 7):
        assert run(converted, {"x": values(2, s, K)}, ["y"])[0].tolist() == [s]


FLAT = "z=Shape(x); g=Gather(z,s0); h=Gather(z,s1); a=Unsqueeze(g,i0); e=Unsqueeze(h,i0); "
TAKEN = {
    "both sizes": f"{FLAT} f=Reshape(x,rows); l=Gemm(f,w,b); s=Concat(a,e,n,axis:0); "
    "r=Reshape(l,s); y=Relu(r)",
    "a rest": "z=Shape(x); g=Gather(z,s0); a=Unsqueeze(g,i0); f=Reshape(x,rows); l=Gemm(f,w,b); "
    "s=Concat(a,last,n,axis:0); r=Reshape(l,s); y=Relu(r)",
    "a residual": f"{FLAT} f=Reshape(x,rows); l=MatMul(f,square); s=Concat(a,e,k,axis:0); "
    "r=Reshape(l,s); y=Add(r,x)",
}
LEFT = {
    "sizes in another order": f"{FLAT} f=Reshape(x,rows); l=Gemm(f,w,b); s=Concat(e,a,n,axis:0); "
    "r=Reshape(l,s); y=Relu(r)",
    "rows of other elements": f"{FLAT} f=Reshape(x,other_rows); l=MatMul(f,short); "
    "s=Concat(a,last,n,axis:0); r=Reshape(l,s); y=Relu(r)",
    "parted columns": f"{FLAT} f=Reshape(x,rows); l=Gemm(f,w,b); "
    "s=Concat(a,e,i2,half_n,axis:0); r=Reshape(l,s); y=Relu(r)",
    "another reader": f"{FLAT} f=Reshape(x,rows); l=Gemm(f,w,b); s=Concat(a,e,n,axis:0); "
    "r=Reshape(l,s); p=Relu(r); m=ReduceMax(l,keepdims:0); y=Add(p,m)",
}


@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_layers_over_flat_rows_take_in_what_is_behind_their_reshapes(
    name: str, tmp_path: Path
) -> None:
    """As GPT-2 has them."""
    given = model((TAKEN | LEFT)[name])
    converted = convert(given, tmp_path)
    assert converted.ops == ["Linear"] if name in TAKEN else "Reshape" in converted.ops
    for shape in ((2, 5, K), (3, 1, K)):
        agrees(given, converted, {"x": values(*shape)}, 1.5 * INT8)


SPLIT = "a|d2|e=Split(h,ones,axis:2); q=Squeeze(a,i2); k=Squeeze(d2,i2); v=Squeeze(e,i2)"
TURNED = "t=Transpose(h,perm:2/0/3/1/4); "
PACKED = {
    "split": f"h=Reshape(y,shape); {SPLIT}",
    "split from the end": f"h=Reshape(y,rest); {SPLIT}".replace("axis:2", "axis:-3").replace(
        "i2)", "third)"
    ),
    "computed sizes": f"z=Shape(x); g=Slice(z,i0,i2); u=Concat(g,tail,axis:0); h=Reshape(y,u); "
    f"{SPLIT}",
    "slices": "h=Reshape(y,shape); a=Slice(h,i0,i1,i2); d2=Slice(h,i1,i2,i2,i1); "
    "e=Slice(h,i2,i3,third); q=Squeeze(a,i2); k=Squeeze(d2,i2); v=Squeeze(e,i2)",
    "gathers": "h=Reshape(y,shape); q=Gather(h,s0,axis:2); k=Gather(h,s1,axis:2); "
    "v=Gather(h,slast,axis:2)",
    "parts first": f"h=Reshape(y,shape); {TURNED} q=Gather(t,s0,axis:0); k=Gather(t,s1,axis:0); "
    "v=Gather(t,s2,axis:0)",
}
UNPACKED = {
    "heads first": f"h=Reshape(y,other); {SPLIT}".replace("axis:2", "axis:3").replace("i2", "i3"),
    "one part twice": "h=Reshape(y,shape); q=Gather(h,s0,axis:2); k=Gather(h,s1,axis:2); "
    "v=Gather(h,s1,axis:2)",
    "two rows as one": f"h=Reshape(y,wider); {SPLIT}",
}


@pytest.mark.parametrize("form", [*PACKED, *UNPACKED])
def test_a_layer_for_queries_keys_and_values_becomes_one_for_each(
    form: str, tmp_path: Path
) -> None:
    """Where it is parted after its heads."""
    text = f"m=MatMul(x,three); y=Add(m,e3); {(PACKED | UNPACKED)[form]}"
    given, x = model(text, ("q", "k", "v")), values(2, 6, K)
    done = convert(given, tmp_path)
    exact = run_float(given, {"x": x})
    for theirs, found in zip(exact, run(done, {"x": x}), strict=True):
        assert_close(found, theirs, INT8)
    if form in UNPACKED:
        assert "GroupedLinear" not in done.ops and done.ops.count("Linear") == 1
        return
    assert "GroupedLinear" in done.ops and not {"Split", "Squeeze"} & set(done.ops)
    stated = packed_heads.reference(x @ STORED["three"] + STORED["e3"], PARTS, HEADS)
    for theirs, part in zip(exact, stated, strict=True):
        same = part.swapaxes(1, 2) if form == "parts first" else part
        np.testing.assert_allclose(theirs, same, rtol=1e-4, atol=1e-4)
