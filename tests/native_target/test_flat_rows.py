"""Layers over rows of a matrix, as GPT-2 has them, take in what stands behind their Reshapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.flat_rows import reference
from octavo.onnx import session
from tests.graphs import FLOAT, INT8, build, convert, error, run, values, weight
from tests.native_target.spelling import nodes_of

K, N = 48, 40
STORED = {
    "w": weight(K, N, seed=1, spread=False),
    "v": weight(K, K, seed=2, spread=False),
    "c": values(N, seed=3),
    "rows": np.array([-1, K], np.int64),
    "other": np.array([-1, K // 2], np.int64),
    "i0": np.array(0, np.int64),
    "i1": np.array(1, np.int64),
    "last": np.array([-1], np.int64),
    "zero": np.array([0], np.int64),
    "n": np.array([N], np.int64),
    "k": np.array([K], np.int64),
    "half": np.array([N // 2], np.int64),
    "two": np.array([2], np.int64),
    "w2": weight(K // 2, N, seed=4, spread=False),
}
SIZES = "z=Shape(x); g=Gather(z,i0); h=Gather(z,i1); a=Unsqueeze(g,zero); b=Unsqueeze(h,zero)"
TAKEN = {
    "both sizes": f"{SIZES}; f=Reshape(x,rows); l=Gemm(f,w,c); s=Concat(a,b,n,axis:0); "
    "r=Reshape(l,s); y=Relu(r)",
    "a rest": "z=Shape(x); g=Gather(z,i0); a=Unsqueeze(g,zero); "
    "f=Reshape(x,rows); l=Gemm(f,w,c); s=Concat(a,last,n,axis:0); "
    "r=Reshape(l,s); y=Relu(r)",
    "a residual": f"{SIZES}; f=Reshape(x,rows); l=MatMul(f,v); s=Concat(a,b,k,axis:0); "
    "r=Reshape(l,s); y=Add(r,x)",
}
LEFT = {
    "sizes in another order": f"{SIZES}; f=Reshape(x,rows); l=Gemm(f,w,c); "
    "s=Concat(b,a,n,axis:0); r=Reshape(l,s); y=Relu(r)",
    "rows of other elements": f"{SIZES}; f=Reshape(x,other); l=MatMul(f,w2); "
    "s=Concat(a,last,n,axis:0); r=Reshape(l,s); y=Relu(r)",
    "parted columns": f"{SIZES}; f=Reshape(x,rows); l=Gemm(f,w,c); "
    "s=Concat(a,b,two,half,axis:0); r=Reshape(l,s); y=Relu(r)",
    "another reader": f"{SIZES}; f=Reshape(x,rows); l=Gemm(f,w,c); s=Concat(a,b,n,axis:0); "
    "r=Reshape(l,s); p=Relu(r); m=ReduceMax(l,keepdims:0); y=Add(p,m)",
}


def model(text: str) -> onnx.ModelProto:
    nodes = nodes_of(text)
    read = {name for each in nodes for name in each.input}
    stored = {name: a for name, a in STORED.items() if name in read}
    return build(nodes, {"x": (FLOAT, ["b", "s", K])}, ["y"], stored)


def agrees(given: onnx.ModelProto, path: Path) -> None:
    for shape in ((2, 5, K), (3, 1, K)):
        feeds = {"x": values(*shape)}
        (a,), (b,) = session(path).run(None, feeds), run(given, feeds)
        assert a.shape == b.shape and error(a, b) < 1.5 * INT8


@pytest.mark.parametrize("name", TAKEN)
def test_it_keeps_the_axes(name: str, tmp_path: Path) -> None:
    given = model(TAKEN[name])
    converted = convert(given, tmp_path, target="native")
    assert converted.ops == ["Linear"]
    agrees(given, converted.path)


@pytest.mark.parametrize("name", LEFT)
def test_another_reshape_stays(name: str, tmp_path: Path) -> None:
    given = model(LEFT[name])
    converted = convert(given, tmp_path, target="native")
    assert "Reshape" in converted.ops
    agrees(given, converted.path)


def test_what_is_taken_over_is_stated() -> None:
    x, w = values(2, 3, 4), values(4, 5)
    np.testing.assert_allclose(reference(x, w), x.astype(np.float64) @ w)
