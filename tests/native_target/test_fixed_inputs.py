"""Layers over what is the same in every run: ONNX Runtime computes them when it opens the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from octavo.graph.rewrite.fixed_inputs import reference
from octavo.onnx import convert_target, session
from tests.graphs import (
    FLOAT,
    INT8,
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

K, N, ROWS = 48, 40, 12
STORED = {
    "w": weight(K, K, spread=False),
    "v": weight(K, N, seed=3, spread=False),
    "b": values(K, seed=4),
    "c": values(N, seed=5),
    "table": values(ROWS, K, seed=6),
    "gain": values(K, seed=7),
}
NORM = node("LayerNormalization", ["table", "gain", "b"], ["n"], axis=-1)
# Both layers have the weight w; the second is like DeBERTa's over its positions.
OF_X = node("MatMul", ["x", "w"], ["h"], name="tokens")
OF_TABLE = [node("MatMul", ["n", "w"], ["p"], name="places"), node("Add", ["p", "b"], ["q"])]
PLACES = [NORM, OF_X, *OF_TABLE, node("Transpose", ["q"], ["t"]), node("MatMul", ["h", "t"], ["y"])]


def model(nodes: Sequence[onnx.NodeProto], **inputs: Any) -> onnx.ModelProto:
    read = {name for n in nodes for name in n.input}
    stored = {name: a for name, a in STORED.items() if name in read and name not in inputs}
    return build(nodes, {"x": (FLOAT, ["r", K]), **inputs}, ["y"], stored)


def held(converted: Converted) -> list[str]:
    """The layers that are Octavo's nodes."""
    return [n.name for n in converted.proto.graph.node if n.op_type == "Linear"]


def operators_that_run(path: Path, feeds: dict[str, Array]) -> list[str]:
    """The nodes that ONNX Runtime leaves in the graph that it opened."""
    optimized = path.with_suffix(".optimized.onnx")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(optimized)
    session(path, sess_options=options).run(None, feeds)
    return [n.op_type for n in onnx.load(optimized).graph.node]


def test_what_is_taken_over_is_stated() -> None:
    x, w = STORED["table"], STORED["v"].T
    np.testing.assert_allclose(reference(x, w, STORED["c"]), x @ w.T + STORED["c"], rtol=1e-3)


@pytest.mark.parametrize("recipe", ["int8", "int8-accurate"])
def test_it_is_computed_once(recipe: str, tmp_path: Path) -> None:
    given, feeds = model(PLACES), {"x": values(5, K)}
    converted = convert(given, tmp_path, target="native", recipe=recipe)
    assert held(converted) == ["tokens"] and converted.outcome("places").quantized
    assert any("computed once" in note for note in converted.report.notes)
    assert operators_that_run(converted.path, feeds) == ["Linear", "MatMul"]
    (y,) = session(converted.path).run(None, feeds)
    assert error(y, run(given, feeds)[0]) < INT8


def test_the_rows_are_not_quantized(tmp_path: Path) -> None:
    """One number of each row is a thousand times as large as the others, and meets zeros."""
    table, w = STORED["table"].copy(), STORED["w"].copy()
    table[:, 5], w[5] = 1e3, 0
    nodes = [n for n in PLACES if n is not NORM]
    stored = {"n": table, "w": w, "b": STORED["b"]}
    given = build(nodes, {"x": (FLOAT, ["r", K])}, ["y"], stored)
    given.graph.node.insert(0, node("Celu", ["table"], ["n"]))
    given.graph.initializer[0].name = "table"
    feeds = {"x": values(5, K)}
    converted = convert(given, tmp_path, target="native")
    assert held(converted) == ["tokens"]
    assert error(session(converted.path).run(None, feeds)[0], run(given, feeds)[0]) < INT8


def test_layers_behind_each_other_are_all_computed_once(tmp_path: Path) -> None:
    """Swin's network over the positions: a layer, an activation, a layer."""
    nodes = [
        node("MatMul", ["table", "w"], ["p"], name="first"),
        node("Add", ["p", "b"], ["q"]),
        node("Relu", ["q"], ["r"]),
        node("MatMul", ["r", "v"], ["s"], name="second"),
        node("Add", ["s", "c"], ["t"]),
        node("MatMul", ["x", "w"], ["h"], name="tokens"),
        node("MatMul", ["h", "v"], ["o"], name="last"),
        node("ReduceMax", ["t"], ["m"], axes=[0], keepdims=0),
        node("Mul", ["o", "m"], ["y"]),
    ]
    given, feeds = model(nodes), {"x": values(5, K)}
    converted = convert(given, tmp_path, target="native")
    assert held(converted) == ["tokens", "last"]
    assert operators_that_run(converted.path, feeds) == ["Linear", "Linear", "Mul"]
    assert error(session(converted.path).run(None, feeds)[0], run(given, feeds)[0]) < INT8


@pytest.mark.parametrize("what", ["an input", "an initializer that a run may replace", "random"])
def test_what_may_change_is_quantized_in_every_run(what: str, tmp_path: Path) -> None:
    nodes = [n for n in PLACES if n is not NORM]
    if what == "random":
        nodes.insert(0, node("RandomNormalLike", ["table"], ["n"], dtype=FLOAT))
        given = model(nodes)
    else:
        given = model([NORM, *nodes], table=(FLOAT, [ROWS, K]))
        if what != "an input":
            given.graph.initializer.append(onnx.numpy_helper.from_array(STORED["table"], "table"))
    assert held(convert(given, tmp_path, target="native")) == ["tokens", "places"]


def test_it_stays_as_it_is_in_the_other_target(tmp_path: Path) -> None:
    given, feeds = model(PLACES), {"x": values(5, K)}
    converted = convert(given, tmp_path, target="native")
    portable = tmp_path / "portable.onnx"
    convert_target(converted.path, portable, to="portable")
    assert error(session(portable).run(None, feeds)[0], run(given, feeds)[0]) < INT8
