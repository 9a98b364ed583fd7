"""Rotary positions become one node; what only looks alike does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.rotary import reference
from octavo.onnx import convert_target
from tests.graphs import Array, Converted, values, weight
from tests.graphs import run as run_float
from tests.native_target.forms import convert, run, spelt
from tests.native_target.nodes import refuses
from tests.native_target.nodes import run as run_op

D = 16
INTEGERS: dict[str, Any] = {f"i{n}": [n] for n in (0, 1, 2, 3, 4, 8, 12, 16)}
INTEGERS |= {"last": [-1], "far": [2**31 - 1], "zeros": [0, 0, 0, D], "mixed": [0, 0, -1, D]}
INTEGERS |= {"eights": [8, 8], "s3": 3, "s2": 2}
STORED = {name: np.array(number, np.int64) for name, number in INTEGERS.items()}
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


def model(text: str, table: Any = (1, 1, "s", D)) -> onnx.ModelProto:
    inputs = {"x": ["b", 3, "s", D], "cos": table, "sin": table}
    stored = {**STORED, "w": weight(D, D, spread=False)}
    return spelt(f"{text}; z2=MatMul(y,w)", inputs, stored, ["y", "z2"])


def feeds(*table: int) -> dict[str, Array]:
    tables = {n: values(*(table or (1, 1, 5, D)), seed=i) for i, n in enumerate(("cos", "sin"))}
    return {"x": values(2, 3, 5, D, seed=9), **tables}


def agrees(given: onnx.ModelProto, done: Converted | Path, x: dict[str, Array]) -> None:
    (a,), (b,) = run(done, x, ["y"]), run_float(given, x, ["y"])
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


TAKEN = {**FORMS, **OF_TWO, "the first elements": FIRST}


@pytest.mark.parametrize("name", TAKEN)
def test_it_becomes_one_node(name: str, tmp_path: Path) -> None:
    size = 8 if name == "the first elements" else D
    given, x = model(TAKEN[name], (1, 1, "s", size)), feeds(1, 1, 5, size)
    converted = convert(given, tmp_path)
    assert converted.ops == ["Rotary", "Linear"]
    portable = tmp_path / "portable.onnx"
    convert_target(converted.path, portable, to="portable", verify=False)
    for path in (converted.path, portable):
        agrees(given, path, x)


@pytest.mark.parametrize(
    "text",
    [FIRST.replace("(a,o,", "(o,a,"), FIRST.replace("o=Slice(x,i8,far", "o=Slice(x,i4,i12")],
    ids=["in front", "others"],
)
def test_other_elements_stay_outside(text: str, tmp_path: Path) -> None:
    given = model(text, (1, 1, "s", 8))
    converted = convert(given, tmp_path)
    assert {"Rotary", "Concat"} <= set(converted.ops)
    agrees(given, converted, feeds(1, 1, 5, 8))


@pytest.mark.parametrize("name", OTHERS)
def test_another_function_stays(name: str, tmp_path: Path) -> None:
    given = model(OTHERS[name])
    converted = convert(given, tmp_path)
    assert "Rotary" not in converted.ops
    agrees(given, converted, feeds())


@pytest.mark.parametrize(
    ("table", "sizes", "taken"),
    [
        (["b", 1, "s", D], (2, 1, 5, D), True),
        (["c", 1, "s", D], (2, 1, 5, D), False),
        (["b", 3, "s", D], (2, 3, 5, D), False),
        (["b", 1, 1, D], (2, 1, 1, D), False),  # axes in another order: the length comes first
    ],
    ids=str,
)
def test_tables_of_a_batch_and_of_heads(
    table: list[Any], sizes: tuple[int, ...], taken: bool, tmp_path: Path
) -> None:
    given = model(FORMS["a split"], table)
    converted = convert(given, tmp_path)
    assert ("Rotary" in converted.ops) == taken
    agrees(given, converted, feeds(*sizes))


def test_casts_to_the_same_type_are_looked_through(tmp_path: Path) -> None:
    text = "e=Cast(x,to:1); g=Cast(e,to:1); p|q=Split(g,axis:3); n=Neg(q); t=Concat(n,p,axis:-1); "
    given = model(text + "k=Mul(e,cos); m=Mul(t,sin); y=Add(k,m)")
    converted = convert(given, tmp_path)
    assert "Rotary" in converted.ops and not {"Mul", "Split"} & set(converted.ops)
    agrees(given, converted, feeds())


@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 3, 7, 64), (1, 2, 5, 80), (0, 2, 5, 8)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_operator_computes_what_is_stated(shape: tuple[int, ...], threads: int) -> None:
    x, cos, sin = values(*shape), *(values(1, 1, *shape[2:], seed=seed) for seed in (1, 2))
    y = run_op("Rotary", {"X": x, "cos": cos, "sin": sin}, {}, threads)
    np.testing.assert_allclose(y, reference(x, cos, sin), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned", [2, 6, 20, 32])
def test_some_elements_of_a_row_turn(turned: int, interleaved: bool) -> None:
    x, cos, sin = values(2, 3, 5, 32), *(values(1, 1, 5, turned, seed=seed) for seed in (1, 2))
    given: dict[str, Any] = {"turned": turned, "interleaved": int(interleaved)}
    y = run_op("Rotary", {"X": x, "cos": cos, "sin": sin}, **given)
    expected = reference(x, cos, sin, interleaved=interleaved)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        ({"X": (2, 3, 5, 7)}, {}, r"X has shape \[2, 3, 5, 7\]; .* an even number"),
        ({"cos": (3, 1, 5, 8)}, {}, r"cos has shape \[3, 1, 5, 8\] and X \[2, 3, 5, 8\]"),
        ({"sin": (1, 1, 4, 8)}, {}, r"sin has shape \[1, 1, 4, 8\] and X"),
        ({"sin": (2, 1, 5, 8)}, {}, r"cos has shape \[1, 1, 5, 8\] and sin \[2, 1, 5, 8\]"),
        ({}, {"turned": 10}, r"X has shape \[2, 3, 5, 8\]; .* 10 or more"),
        ({}, {"turned": 4}, r"cos has shape \[1, 1, 5, 8\] and X .* 5, 4\]"),
        ({}, {"turned": 3}, "turned is 3; it has to be even"),
    ],
)
def test_what_does_not_fit_is_refused(
    shapes: dict[str, tuple[int, ...]], attributes: dict[str, int], message: str
) -> None:
    shapes = {"X": (2, 3, 5, 8), "cos": (1, 1, 5, 8), "sin": (1, 1, 5, 8)} | shapes
    feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    refuses(message, "Rotary", feeds, **attributes)
