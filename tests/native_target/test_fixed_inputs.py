"""Layers over what is the same in every run, computed once; products of gathered columns alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite import fixed_inputs, gathered_columns
from octavo.graph.rewrite.gathered_columns import LEAST_COLUMNS
from octavo.onnx import convert_target, session
from tests.graphs import INT64, Array, Converted, values, weight
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
    return [n.name for n in ours(converted) if n.op_type == "Linear"]


def operators_that_run(path: Path) -> list[str]:
    """The nodes that ONNX Runtime leaves in the graph that it opened."""
    optimized, options = path.with_suffix(".optimized.onnx"), options_with()
    options.optimized_model_filepath = str(optimized)
    session(path, sess_options=options)
    return [n.op_type for n in onnx.load(optimized).graph.node]


def test_what_is_taken_over_is_stated() -> None:
    x, w = STORED["table"], STORED["v"].T
    found = fixed_inputs.reference(x, w, STORED["c"])
    np.testing.assert_allclose(found, x @ w.T + STORED["c"], rtol=1e-3)
    x, table, index = values(3, K), values(K, 7, seed=2), np.array([[6, 0], [1, 1], [2, 5]])
    exact = [[x[m] @ table[:, j] for j in index[m]] for m in range(3)]
    np.testing.assert_allclose(gathered_columns.reference(x, table, index), exact, rtol=1e-4)


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


COLUMNS = 2 * LEAST_COLUMNS
TABLES: dict[str, Array] = {
    "w": STORED["w"],
    "table": values(1, COLUMNS, K, seed=6),
    "zero": np.array(0),
    "most": np.array(COLUMNS - 1),
    "one": np.array([0]),
    "repeats": np.array([1, 1]),
    "axis": np.array([0]),
}
CLIPPED = "i=Clip(index,zero,most)"
LAYERS = (  # the table as often as there are batches, as DeBERTa has it
    "h=MatMul(x,w); xs=Shape(x); batch=Gather(xs,one,axis:0); "
    "times=Concat(batch,repeats,axis:0); sines=Sin(table); tables=Tile(sines,times); "
    "t=Transpose(tables,perm:0/2/1); p=MatMul(h,t)"
)
GATHERED = "y=GatherElements(p,i,axis:-1)"


def gathering(*parts: str, outputs: Any = ("y",)) -> onnx.ModelProto:
    inputs = {"x": ["b", "r", K], "index": (INT64, ["b", "r", "j"])}
    return spelt("; ".join([LAYERS, *parts]), inputs, TABLES, outputs)


def feeds(low: int, high: int, columns: int = 9) -> dict[str, Array]:
    index = np.random.default_rng(0).integers(low, high, (2, 5, columns))
    return {"x": values(2, 5, K), "index": index}


def sliced(converted: Converted) -> bool:
    """Whether the table is."""
    return "Slice" in converted.ops


def test_the_columns_that_are_read_are_computed(tmp_path: Path) -> None:
    given = gathering(CLIPPED, GATHERED)
    converted = convert(given, tmp_path)
    assert sliced(converted)
    for low, high in [(3, 20), (0, COLUMNS), (COLUMNS - 1, COLUMNS), (-50, 2 * COLUMNS), (7, 8)]:
        for columns in (9, 0):
            agrees(given, converted, feeds(low, high, columns))


def test_indices_may_be_expanded(tmp_path: Path) -> None:
    """A row of indices for all batches and rows; the table is sliced before it is repeated."""
    views = (
        "first=Gather(index,zero,axis:0); clipped=Clip(first,zero,most); "
        "row=Unsqueeze(clipped,axis); all=Shape(index); i=Expand(row,all)"
    )
    given = gathering(views, GATHERED)
    converted = convert(given, tmp_path)
    made = {n.output[0]: n for n in converted.proto.graph.node}
    (tile,) = (n for n in made.values() if n.op_type == "Tile")
    assert made[tile.input[0]].op_type == "Slice"
    agrees(given, converted, feeds(30, 60))


OTHERS: dict[str, list[str]] = {
    "negative": ["y=GatherElements(p,index,axis:-1)"],  # counts from the end
    "read elsewhere": [CLIPPED, GATHERED, "z=Relu(p)"],
    "another axis": [CLIPPED, "y=GatherElements(p,i,axis:1)"],
    "few columns": [CLIPPED, GATHERED],
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_products_stay_whole(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "few columns":
        monkeypatch.setattr("octavo.graph.rewrite.gathered_columns.LEAST_COLUMNS", COLUMNS + 1)
    given = gathering(*OTHERS[what], outputs=("y", "z") if what == "read elsewhere" else ("y",))
    converted = convert(given, tmp_path)
    assert not sliced(converted)
    agrees(given, converted, feeds(-9, 9) if what == "negative" else feeds(0, 5))
