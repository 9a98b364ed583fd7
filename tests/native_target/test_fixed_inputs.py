"""Layers over what is the same in every run: ONNX Runtime computes them when it opens the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.fixed_inputs import reference
from octavo.onnx import convert_target, session
from tests.graphs import Array, Converted, values, weight
from tests.native_target.forms import agrees, convert, ours, spelt
from tests.native_target.nodes import options_with

K, N, ROWS = 48, 40, 12
STORED: dict[str, Array] = {
    "w": weight(K, K, spread=False),
    "v": weight(K, N, seed=3, spread=False),
    "b": values(K, seed=4),
    "c": values(N, seed=5),
    "table": values(ROWS, K, seed=6),
    "gain": values(K, seed=7),
}
NORM = "n=LayerNormalization(table,gain,b,axis:-1); "
# Both layers have the weight w; the second is like DeBERTa's over its positions.
PLACES = (
    "h=MatMul(x,w,name:tokens); p=MatMul(n,w,name:places); q=Add(p,b); "
    "t=Transpose(q); y=MatMul(h,t)"
)
X = {"x": values(5, K)}


def model(text: str, stored: dict[str, Array] = STORED, **inputs: Any) -> onnx.ModelProto:
    return spelt(text, {"x": ["r", K], **inputs}, stored)


def held(converted: Converted) -> list[str]:
    """The layers that are Octavo's nodes."""
    return [n.name for n in ours(converted) if n.op_type == "Linear"]


def operators_that_run(path: Path) -> list[str]:
    """The nodes that ONNX Runtime leaves in the graph that it opened."""
    optimized, options = path.with_suffix(".optimized.onnx"), options_with()
    options.optimized_model_filepath = str(optimized)
    session(path, sess_options=options)
    return [n.op_type for n in onnx.load(optimized).graph.node]


def test_what_is_taken_over_is_stated() -> None:
    x, w = STORED["table"], STORED["v"].T
    np.testing.assert_allclose(reference(x, w, STORED["c"]), x @ w.T + STORED["c"], rtol=1e-3)


@pytest.mark.parametrize("recipe", ["int8", "int8-accurate"])
def test_it_is_computed_once(recipe: str, tmp_path: Path) -> None:
    """In the other target it stays as it is."""
    given = model(NORM + PLACES)
    converted = convert(given, tmp_path, recipe=recipe)
    assert held(converted) == ["tokens"] and converted.outcome("places").quantized
    assert any("computed once" in note for note in converted.report.notes)
    assert operators_that_run(converted.path) == ["Linear", "MatMul"]
    portable = tmp_path / "portable.onnx"
    convert_target(converted.path, portable, to="portable", verify=False)
    for path in (converted.path, portable):
        agrees(given, path, X)


def test_the_rows_are_not_quantized(tmp_path: Path) -> None:
    """One number of each row is a thousand times as large as the others, and meets zeros."""
    table, w = STORED["table"].copy(), STORED["w"].copy()
    table[:, 5], w[5] = 1e3, 0
    given = model(f"n=Celu(table); {PLACES}", STORED | {"table": table, "w": w})
    converted = convert(given, tmp_path)
    assert held(converted) == ["tokens"]
    agrees(given, converted, X)


def test_layers_behind_each_other_are_all_computed_once(tmp_path: Path) -> None:
    """Swin's network over the positions: a layer, an activation, a layer."""
    given = model(
        "p=MatMul(table,w,name:first); q=Add(p,b); r=Relu(q); s=MatMul(r,v,name:second); "
        "t=Add(s,c); h=MatMul(x,w,name:tokens); o=MatMul(h,v,name:last); "
        "m=ReduceMax(t,axes:0/,keepdims:0); y=Mul(o,m)"
    )
    converted = convert(given, tmp_path)
    assert held(converted) == ["tokens", "last"]
    assert operators_that_run(converted.path) == ["Linear", "Linear", "Mul"]
    agrees(given, converted, X)


@pytest.mark.parametrize("what", ["an input", "an initializer that a run may replace", "random"])
def test_what_may_change_is_quantized_in_every_run(what: str, tmp_path: Path) -> None:
    if what == "random":
        given = model(f"n=RandomNormalLike(table,dtype:1); {PLACES}")
    else:
        given = model(NORM + PLACES, table=[ROWS, K])
        if what != "an input":
            given.graph.initializer.append(onnx.numpy_helper.from_array(STORED["table"], "table"))
    assert held(convert(given, tmp_path)) == ["tokens", "places"]
