"""Normalizations become one node each, however they are spelt; what only looks alike does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from octavo.graph.rewrite.norms import reference
from octavo.onnx import convert_target
from tests.graphs import FLOAT16, Array, Converted, values, weight
from tests.graphs import run as run_float
from tests.native_target.forms import agrees as agrees_in_8_bits
from tests.native_target.forms import attributes, constant, convert, ours, run, spelt

K, N = 48, 40
EPS = 1e-5
NUMBERS: dict[str, float] = {"eps": EPS, "tiny": 1e-12, "two": 2, "half": 0.5, "minus_half": -0.5}
NUMBERS |= {"count": K, "root": K**-0.5}
STORED: dict[str, Array] = {
    "w": weight(K, N, spread=False),
    "g": 1 + values(K, seed=4) / 4,
    "b": values(K, seed=5),
    "g3": (1 + values(K, seed=4) / 4).reshape(1, 1, K),
    "gminus": values(K, seed=4) / 4,
    "rows": values(5, 1, seed=9),
    "g2": values(5, K),
    "one": np.array([1], np.float32),
    "wide_two": np.array(2, np.int64),
    "last": np.array([-1], np.int64),
    **{name: np.array(number, np.float32) for name, number in NUMBERS.items()},
}
# One large number in each row, a row of small ones, and rows that are far from 0.
X = values(2, 5, K)
X[..., 3] *= 30
X[0, 1] *= 1e-3
X[1, 2:] += 7


def model(
    text: str, opset: int = 17, outputs: Any = ("y", "n"), shape: Any = ("b", "s", K)
) -> onnx.ModelProto:
    """`text` from x to n, and a layer that reads it."""
    return spelt(f"{text}; y=MatMul(n,w)", {"x": shape}, STORED, outputs, opset)


def norms(done: Converted) -> list[dict[str, Any]]:
    return [attributes(n) for n in ours(done) if n.op_type == "Norm"]


def agrees(given: onnx.ModelProto, done: Converted | Path) -> None:
    """What is normalized, with the float model: to the rounding of float32."""
    (a,), (b,) = run(done, {"x": X}, ["n"]), run_float(given, {"x": X}, ["n"])
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * float(np.abs(b).max()))


SQUARES = "p=Mul(x,x); m=ReduceMean(p,axes:-1/); a=Add(m,eps); s=Sqrt(a)"
POWERS = SQUARES.replace("Mul(x,x)", "Pow(x,two)")
CENTRED = (
    "m=ReduceMean(x,axes:-1/); d=Sub(x,m); p=Mul(d,d); v=ReduceMean(p,axes:-1/); "
    "a=Add(v,eps); s=Sqrt(a)"
)
RMS = {
    "llama": f"{POWERS}; r=Reciprocal(s); h=Mul(x,r); n=Mul(g,h)",
    "divided one": f"{POWERS}; r=Div(one,s); h=Mul(x,r); n=Mul(h,g)",
    "divided": "p=Pow(x,wide_two); m=ReduceMean(p,axes:-1/); a=Add(eps,m); s=Sqrt(a); h=Div(x,s); "
    "n=Mul(g,h)",
    "products": "p=Mul(x,x); m=ReduceMean(p,axes:-1/); a=Add(m,eps); r=Pow(a,minus_half); "
    "h=Mul(r,x); n=Mul(h,g)",
    "casts": "c=Cast(x,to:1); p=Pow(c,two); m=ReduceMean(p,axes:-1/); a=Add(m,eps); s=Sqrt(a); "
    "h=Div(c,s); d=Cast(h,to:1); n=Mul(g,d)",
    "axis by number": f"{SQUARES}; h=Div(x,s); n=Mul(g,h)".replace("axes:-1/", "axes:2/"),
    "weight of rank 3": f"{SQUARES}; h=Div(x,s); n=Mul(g3,h)",
    "weight plus one": f"q=Add(gminus,one); {SQUARES}; h=Div(x,s); n=Mul(h,q)",
    "sums": "p=Mul(x,x); t=ReduceSum(p,last); m=Div(t,count); a=Add(m,eps); s=Sqrt(a); "
    "h=Div(x,s); n=Mul(g,h)",
    "sums of squares": "t=ReduceSumSquare(x,axes:-1/); m=Div(t,count); a=Add(m,eps); s=Sqrt(a); "
    "h=Div(x,s); n=Mul(g,h)",
    "a length": "l=ReduceL2(x,axes:-1/); m=Mul(l,root); h=Div(x,m); n=Mul(g,h)",
    "without a weight": f"{SQUARES}; n=Div(x,s)",
    "simplified": "n=SimplifiedLayerNormalization(x,g,axis:-1,epsilon:1e-5)",
    "simplified by default": "n=SimplifiedLayerNormalization(x,g)",
    "with a bias": f"{SQUARES}; h=Div(x,s); i=Mul(g,h); n=Add(i,b)",
}
LAYER = {
    "spelt": f"{CENTRED}; h=Div(d,s); i=Mul(h,g); n=Add(i,b)".replace("Mul(d,d)", "Pow(d,two)"),
    "products": f"{CENTRED}; r=Reciprocal(s); h=Mul(d,r); i=Mul(g,h); n=Add(b,i)",
    "tensorflow": f"{CENTRED}; r=Reciprocal(s); i=Mul(r,g); j=Mul(x,i); k=Mul(m,i); l=Sub(b,k); "
    "n=Add(j,l)",
    "a small epsilon": f"{CENTRED}; h=Div(d,s); i=Mul(g,h); n=Add(b,i)".replace("eps", "tiny"),
    "without a bias": f"{CENTRED}; h=Div(d,s); n=Mul(g,h)",
    "named": "n=LayerNormalization(x,g,b,axis:-1,epsilon:1e-5)",
    "named by default": "n=LayerNormalization(x,g,b)",
    "named by its number": "n=LayerNormalization(x,g,b,axis:2,epsilon:1e-3)",
    "named without a bias": "n=LayerNormalization(x,g,epsilon:1e-12)",
}
SPELT = [*(("rms", name) for name in RMS), *(("layer", name) for name in LAYER)]


@pytest.mark.parametrize(("kind", "name"), SPELT, ids="-".join)
def test_it_becomes_one_node(kind: str, name: str, tmp_path: Path) -> None:
    given = model((RMS if kind == "rms" else LAYER)[name])
    converted = convert(given, tmp_path)
    assert [op for op in converted.ops if op != "Cast"] == ["Norm", "Linear"]
    assert [norm["kind"] for norm in norms(converted)] == [kind]
    agrees(given, converted)


@pytest.mark.parametrize("text", [RMS["llama"], LAYER["spelt"]], ids=["rms", "layer"])
def test_axes_are_an_input_in_newer_models(text: str, tmp_path: Path) -> None:
    given = model(text.replace("axes:-1/", "last"), opset=18)
    converted = convert(given, tmp_path)
    assert converted.ops == ["Norm", "Linear"]
    agrees(given, converted)


def test_the_operator_of_opset_23(tmp_path: Path) -> None:
    given = model("n=RMSNormalization(x,g,axis:-1,epsilon:0.01)", opset=23)
    converted = convert(given, tmp_path)
    assert norms(converted)[0]["epsilon"] == pytest.approx(0.01)
    (found,) = run(converted, {"x": X}, ["n"])
    wanted = reference(X.astype(np.float64), STORED["g"].astype(np.float64), 0.0, "rms", 0.01)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


SKIPS = {
    "layer": "n=ms:SkipLayerNormalization(x,z,g,b,epsilon:1e-5)",
    "layer with what is added": "n=ms:SkipLayerNormalization(x,z,g,b,c,epsilon:1e-5)",
    "layer without a bias": "n=ms:SkipLayerNormalization(x,z,g,epsilon:1e-5)",
    "layer with its sum": "n|_|_|sum=ms:SkipLayerNormalization(x,z,g,b,epsilon:1e-5); k=Neg(sum)",
    "rms": "n=ms:SkipSimplifiedLayerNormalization(x,z,g,epsilon:1e-5)",
    "rms with what is added": "n=ms:SkipSimplifiedLayerNormalization(x,z,g,c,epsilon:1e-5)",
    "rms with its sum": "n|_|_|sum=ms:SkipSimplifiedLayerNormalization(x,z,g); k=Neg(sum)",
}


@pytest.mark.parametrize("name", SKIPS)
def test_forms_with_a_residual(name: str, tmp_path: Path) -> None:
    """The sum goes into the layer in front."""
    stored = {**STORED, "v": weight(N, K, spread=False), "c": values(K, seed=8)}
    outputs = ["y", *(["k"] if "sum" in name else [])]
    text = f"x=MatMul(u,v); {SKIPS[name]}; y=MatMul(n,w)"
    given = spelt(text, {"u": ["b", "s", N], "z": ["b", "s", K]}, stored, outputs)
    converted = convert(given, tmp_path)
    assert [op for op in converted.ops if op != "Neg"] == ["Linear", "Norm", "Linear"]
    said = 1e-5 if "epsilon" in SKIPS[name] else 1e-12
    assert norms(converted)[0].get("epsilon", 1e-5) == pytest.approx(said)
    agrees_in_8_bits(given, converted, {"u": values(2, 5, N), "z": values(2, 5, K, seed=3)}, 0.02)


@pytest.mark.parametrize("name", ["llama", "divided", "spelt"])
def test_what_is_normalized_may_be_read_elsewhere(name: str, tmp_path: Path) -> None:
    """As a residual is; and two normalizations may have one input."""
    text = f"{(RMS | LAYER)[name]}; n2=LayerNormalization(x,g,b); t=Add(x,n2)"
    given = model(text, outputs=("y", "n", "t"))
    converted = convert(given, tmp_path)
    assert sorted(converted.ops) == ["Add", "Linear", "Norm", "Norm"]
    agrees(given, converted)


OTHERS = {
    "one number a row behind": f"{SQUARES}; n=Mul(x,s)",
    "fourth powers": "p=Mul(x,x); q=Mul(p,p); m=ReduceMean(q,axes:-1/); a=Add(m,eps); s=Sqrt(a); "
    "n=Div(x,s)",
    "no root": "p=Mul(x,x); m=ReduceMean(p,axes:-1/); a=Add(m,eps); n=Div(x,a)",
    "another axis": f"{SQUARES}; n=Div(x,s)".replace("axes:-1/", "axes:1/"),
    "two axes": f"{SQUARES}; n=Div(x,s)".replace("axes:-1/", "axes:1/2"),
    "variance of another mean": f"{CENTRED}; c=Sub(x,m); n=Div(c,s)".replace(
        "d=Sub(x,m)", "h=Mul(m,half); d=Sub(x,h)"
    ),
    "an activation inside": f"{SQUARES}; n=Div(x,s)".replace("a=Add(m", "t=Tanh(m); a=Add(t"),
    "named over two axes": "n=LayerNormalization(x,g2,axis:-2)",
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_function_stays(name: str, tmp_path: Path) -> None:
    given = model(OTHERS[name], shape=("b", 5, K))
    converted = convert(given, tmp_path)
    # A part of it may be one: what is left is as it was.
    agrees(given, converted)
    assert "Norm" not in converted.ops or name == "variance of another mean"


def test_what_is_behind_it_and_no_part_of_it_stays(tmp_path: Path) -> None:
    given = model(RMS["llama"].replace("n=Mul", "o=Mul") + "; q=Tanh(o); n=Mul(q,rows)")
    converted = convert(given, tmp_path)
    assert converted.ops == ["Norm", "Tanh", "Mul", "Linear"]
    agrees(given, converted)


def test_values_inside_that_are_read_stay(tmp_path: Path) -> None:
    given = model(RMS["llama"], outputs=("y", "n", "r"))
    converted = convert(given, tmp_path)
    assert "Norm" not in converted.ops
    agrees(given, converted)


def test_float16_is_left_to_onnx_runtime(tmp_path: Path) -> None:
    stored = {k: STORED[k].astype(np.float16) for k in ("g", "b", "w")}
    text, x = "n=LayerNormalization(x,g,b); y=MatMul(n,w)", (FLOAT16, ["b", "s", K])
    given = spelt(text, {"x": x}, stored, {"y": (FLOAT16, None)})
    assert "LayerNormalization" in convert(given, tmp_path).ops


@pytest.mark.parametrize(
    ("name", "opset"), [("llama", 13), ("with a bias", 17), ("spelt", 13), ("without a bias", 17)]
)
def test_the_other_target_has_it_in_stock_operators(name: str, opset: int, tmp_path: Path) -> None:
    given = model((RMS | LAYER)[name], opset=opset)
    converted = convert(given, tmp_path)
    assert converted.ops == ["Norm", "Linear"]
    portable = tmp_path / "portable.onnx"
    convert_target(converted.path, portable, to="portable", verify=False)
    assert all(n.domain != "ai.octavo" for n in onnx.load(portable).graph.node)
    agrees(given, portable)


def test_constants_are_those_of_the_model(tmp_path: Path) -> None:
    """Weight and bias are recovered to the bit."""
    converted = convert(model(LAYER["tensorflow"]), tmp_path)
    assert all(i.data_type != TensorProto.DOUBLE for i in converted.proto.graph.initializer)
    (norm,) = (n for n in ours(converted) if n.op_type == "Norm")
    for name, held in zip("gb", norm.input[1:], strict=True):
        np.testing.assert_array_equal(constant(converted, held), STORED[name])
