"""Rotary positions become one node; what only looks alike does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.rotary import reference
from octavo.onnx import convert_target, session
from tests.graphs import FLOAT, Array, build, convert, node, run, values, weight
from tests.native_target.nodes import REFUSALS
from tests.native_target.nodes import run as run_op
from tests.native_target.spelling import nodes_of

D = 16
STORED = {
    "w": weight(D, D, spread=False),
    **{f"i{n}": np.array([n], np.int64) for n in (0, 1, 2, 3, 4, 8, 12, 16)},
    "last": np.array([-1], np.int64),
    "far": np.array([2**31 - 1], np.int64),
    "zeros": np.array([0, 0, 0, D], np.int64),
    "mixed": np.array([0, 0, -1, D], np.int64),
    "eights": np.array([8, 8], np.int64),
    "s3": np.array(3, np.int64),
    "s2": np.array(2, np.int64),
}
X = {"x": (FLOAT, ["b", 3, "s", D])}
TABLES = {name: (FLOAT, [1, 1, "s", D]) for name in ("cos", "sin")}
NARROW = {name: (FLOAT, [1, 1, "s", 8]) for name in ("cos", "sin")}
BEHIND = "n=Neg(q); t=Concat(n,p,axis:-1); k=Mul(x,cos); m=Mul(t,sin); y=Add(k,m)"
FORMS = {
    "slices": f"p=Slice(x,i0,i8,last,i1); q=Slice(x,i8,far,last,i1); {BEHIND}",
    "slices by numbers": f"p=Slice(x,i0,i8,i3); q=Slice(x,i8,i16,i3); {BEHIND}",
    "a split": f"p|q=Split(x,eights,axis:-1); {BEHIND}",
    "halves of a split": f"p|q=Split(x,axis:3); {BEHIND}",
    "other sides": "p|q=Split(x,axis:3); n=Neg(q); t=Concat(n,p,axis:3); k=Mul(cos,x); "
    "m=Mul(sin,t); y=Add(m,k)",
    "computed halves": "z=Shape(x); g=Gather(z,s3); h=Div(g,s2); u=Unsqueeze(h,i0); "
    f"p=Slice(x,i0,u,i3,i1); q=Slice(x,u,far,i3,i1); {BEHIND}",
}
NEIGHBOURS = (
    "p=Slice(x,i0,far,i3,i2); q=Slice(x,i1,far,i3,i2); n=Neg(q); a=Unsqueeze(n,last); "
    "b=Unsqueeze(p,last); c=Concat(a,b,axis:-1); t=Reshape(c,SHAPE); k=Mul(x,cos); m=Mul(t,sin); "
    "y=Add(k,m)"
)
OF_TWO = {
    "with zeros": NEIGHBOURS.replace("SHAPE", "zeros"),
    "with a rest": NEIGHBOURS.replace("SHAPE", "mixed"),
    "with computed sizes": "z=Shape(x); g=Slice(z,i0,i1); h=Slice(z,i2,i3); "
    "u=Concat(g,i3,h,i16,axis:0); " + NEIGHBOURS.replace("SHAPE", "u"),
}
FIRST = (
    "r=Slice(x,i0,i8,i3); o=Slice(x,i8,far,i3); p=Slice(r,i0,i4,i3); q=Slice(r,i4,far,i3); "
    "n=Neg(q); t=Concat(n,p,axis:-1); k=Mul(r,cos); m=Mul(t,sin); a=Add(k,m); y=Concat(a,o,axis:-1)"
)
OTHERS = {
    "the first of two with a sign": NEIGHBOURS.replace("SHAPE", "zeros").replace("(a,b", "(b,a"),
    "no sign": "p|q=Split(x,axis:3); t=Concat(q,p,axis:-1); k=Mul(x,cos); m=Mul(t,sin); y=Add(k,m)",
    "other halves": "p|q=Split(x,axis:3); n=Neg(p); t=Concat(n,q,axis:-1); k=Mul(x,cos); "
    "m=Mul(t,sin); y=Add(k,m)",
    "other parts": f"p=Slice(x,i0,i4,last,i1); q=Slice(x,i4,far,last,i1); {BEHIND}",
    "a difference": FORMS["a split"].replace("Add", "Sub"),
}


def model(text: str, tables: dict[str, tuple[int, list[object]]] = TABLES) -> onnx.ModelProto:
    nodes = [*nodes_of(text), node("MatMul", ["y", "w"], ["z2"], name="layer")]
    read = {name for each in nodes for name in each.input}
    stored = {name: a for name, a in STORED.items() if name in read}
    return build(nodes, {**X, **tables}, ["y", "z2"], stored)


def feeds(batch: int = 1, heads: int = 1, size: int = D) -> dict[str, Array]:
    tables = {n: values(batch, heads, 5, size, seed=i) for i, n in enumerate(("cos", "sin"))}
    return {"x": values(2, 3, 5, D, seed=9), **tables}


def agrees(given: onnx.ModelProto, path: Path, x: dict[str, Array]) -> None:
    (a,), (b,) = session(path).run(["y"], x), run(given, x, ["y"])
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*FORMS, *OF_TWO])
def test_it_becomes_one_node(name: str, tmp_path: Path) -> None:
    given = model((FORMS | OF_TWO)[name])
    converted = convert(given, tmp_path, target="native")
    assert converted.ops == ["Rotary", "Linear"]
    agrees(given, converted.path, feeds())
    portable = tmp_path / "portable.onnx"
    convert_target(converted.path, portable, to="portable")
    agrees(given, portable, feeds())


def test_the_first_elements_become_one_node(tmp_path: Path) -> None:
    given = model(FIRST, NARROW)
    converted = convert(given, tmp_path, target="native")
    assert converted.ops == ["Rotary", "Linear"]
    portable = tmp_path / "portable.onnx"
    convert_target(converted.path, portable, to="portable")
    for path in (converted.path, portable):
        agrees(given, path, feeds(size=8))


@pytest.mark.parametrize(
    "text", [FIRST.replace("(a,o,", "(o,a,"), FIRST.replace("o=Slice(x,i8", "o=Slice(x,i4")]
)
def test_other_elements_stay_outside(text: str, tmp_path: Path) -> None:
    given = model(text.replace("o=Slice(x,i4,far", "o=Slice(x,i4,i12"), NARROW)
    converted = convert(given, tmp_path, target="native")
    assert {"Rotary", "Concat"} <= set(converted.ops)
    agrees(given, converted.path, feeds(size=8))


@pytest.mark.parametrize("name", OTHERS)
def test_another_function_stays(name: str, tmp_path: Path) -> None:
    given = model(OTHERS[name])
    converted = convert(given, tmp_path, target="native")
    assert "Rotary" not in converted.ops
    agrees(given, converted.path, feeds())


@pytest.mark.parametrize(
    "shape,taken", [(["b", 1, "s", D], True), (["c", 1, "s", D], False), (["b", 3, "s", D], False)]
)
def test_tables_of_a_batch_and_of_heads(shape: list[object], taken: bool, tmp_path: Path) -> None:
    given = model(FORMS["a split"], dict.fromkeys(TABLES, (FLOAT, shape)))
    converted = convert(given, tmp_path, target="native")
    assert ("Rotary" in converted.ops) == taken
    agrees(given, converted.path, feeds(2, 1 if shape[1] == 1 else 3))


@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 3, 7, 64), (1, 2, 5, 80), (0, 2, 5, 8)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_operator_computes_what_is_stated(shape: tuple[int, ...], threads: int) -> None:
    x = values(*shape)
    cos, sin = (values(1, 1, *shape[2:], seed=seed) for seed in (1, 2))
    y = run_op("Rotary", {"X": x, "cos": cos, "sin": sin}, {}, threads)
    np.testing.assert_allclose(y, reference(x, cos, sin), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned", [2, 6, 20, 32])
def test_some_elements_of_a_row_turn(turned: int, interleaved: bool) -> None:
    x = values(2, 3, 5, 32)
    cos, sin = (values(1, 1, 5, turned, seed=seed) for seed in (1, 2))
    given = {"X": x, "cos": cos, "sin": sin}
    y = run_op("Rotary", given, {}, turned=turned, interleaved=int(interleaved))
    expected = reference(x, cos, sin, interleaved=interleaved)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"X": (2, 3, 5, 7)}, r"X has shape \[2, 3, 5, 7\]; it has to be .* an even number"),
        ({"cos": (3, 1, 5, 8)}, r"cos has shape \[3, 1, 5, 8\] and X \[2, 3, 5, 8\]"),
        ({"sin": (1, 1, 4, 8)}, r"sin has shape \[1, 1, 4, 8\] and X"),
        ({"sin": (2, 1, 5, 8)}, r"cos has shape \[1, 1, 5, 8\] and sin \[2, 1, 5, 8\]"),
    ],
)
def test_shapes_that_do_not_fit(change: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"X": (2, 3, 5, 8), "cos": (1, 1, 5, 8), "sin": (1, 1, 5, 8)} | change
    with pytest.raises(REFUSALS, match=message):
        run_op("Rotary", {n: np.zeros(s, np.float32) for n, s in shapes.items()}, {})


@pytest.mark.parametrize(
    "turned,message",
    [
        (10, r"X has shape \[2, 3, 5, 8\]; it has to be .* 10 or more"),
        (4, r"cos has shape \[1, 1, 5, 8\] and X .* 5, 4\]"),
        (3, "the attribute turned is 3; it has to be even"),
    ],
)
def test_a_number_of_elements_that_does_not_fit(turned: int, message: str) -> None:
    given = {
        n: np.zeros((2, 3, 5, 8) if n == "X" else (1, 1, 5, 8), np.float32)
        for n in ("X", "cos", "sin")
    }
    with pytest.raises(REFUSALS, match=message):
        run_op("Rotary", given, {}, turned=turned)


def test_axes_in_another_order_stay(tmp_path: Path) -> None:
    """As where the length comes first: [S, batch, heads, D] with tables [S, 1, 1, D]."""
    given = model(FORMS["a split"], dict.fromkeys(TABLES, (FLOAT, ["b", 1, 1, D])))
    converted = convert(given, tmp_path, target="native")
    assert "Rotary" not in converted.ops
    x = feeds(2) | {n: values(2, 1, 1, D, seed=i) for i, n in enumerate(("cos", "sin"))}
    agrees(given, converted.path, x)


def test_casts_to_the_same_type_are_looked_through(tmp_path: Path) -> None:
    text = "e=Cast(x,to:1); g=Cast(e,to:1); p|q=Split(g,axis:3); n=Neg(q); t=Concat(n,p,axis:-1); "
    given = model(text + "k=Mul(e,cos); m=Mul(t,sin); y=Add(k,m)")
    converted = convert(given, tmp_path, target="native")
    assert "Rotary" in converted.ops and not {"Mul", "Split"} & set(converted.ops)
    agrees(given, converted.path, feeds())
