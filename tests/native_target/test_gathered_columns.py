"""A product of which some columns are gathered computes those columns alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from octavo.graph.rewrite.gathered_columns import LEAST_COLUMNS, reference
from octavo.onnx import session
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

K, ROWS = 48, 2 * LEAST_COLUMNS
LIMITS = {"zero": np.array(0), "most": np.array(ROWS - 1)}
STORED: dict[str, Array] = {
    **LIMITS,
    "w": weight(K, K, spread=False),
    "table": values(1, ROWS, K, seed=6),
    "shape": np.array([1, ROWS, K]),
    "one": np.array([0]),
    "repeats": np.array([1, 1]),
    "axis": np.array([0]),
}
CLIPPED = node("Clip", ["index", "zero", "most"], ["i"])
BATCHES = [  # the table as often as there are batches, as DeBERTa has it
    node("Shape", ["x"], ["xs"]),
    node("Gather", ["xs", "one"], ["batch"], axis=0),
    node("Concat", ["batch", "repeats"], ["times"], axis=0),
    node("Sin", ["table"], ["sines"]),
    node("Tile", ["sines", "times"], ["tables"]),
    node("Transpose", ["tables"], ["t"], perm=[0, 2, 1]),
]
LAYERS = [node("MatMul", ["x", "w"], ["h"]), *BATCHES, node("MatMul", ["h", "t"], ["p"])]
GATHERED = node("GatherElements", ["p", "i"], ["y"], axis=-1)


def model(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)) -> onnx.ModelProto:
    read = {name for n in nodes for name in n.input}
    stored = {name: array for name, array in STORED.items() if name in read}
    inputs: dict[str, Any] = {
        "x": (FLOAT, ["b", "r", K]),
        "index": (TensorProto.INT64, ["b", "r", "j"]),
    }
    return build(nodes, inputs, list(outputs), stored)


def feeds(low: int, high: int, columns: int = 9) -> dict[str, Array]:
    index = np.random.default_rng(0).integers(low, high, (2, 5, columns))
    return {"x": values(2, 5, K), "index": index}


def sliced(converted: Converted) -> bool:
    """Whether the table is."""
    return any(n.op_type == "Slice" for n in converted.proto.graph.node)


def test_what_is_taken_over_is_stated() -> None:
    x, table, index = values(3, K), values(K, 7, seed=2), np.array([[6, 0], [1, 1], [2, 5]])
    exact = [[x[m] @ table[:, j] for j in index[m]] for m in range(3)]
    np.testing.assert_allclose(reference(x, table, index), exact, rtol=1e-4)


@pytest.mark.parametrize(
    ("low", "high"), [(3, 20), (0, ROWS), (ROWS - 1, ROWS), (-50, 2 * ROWS), (7, 8)]
)
def test_the_columns_that_are_read_are_computed(low: int, high: int, tmp_path: Path) -> None:
    given = model([*LAYERS, CLIPPED, GATHERED])
    converted = convert(given, tmp_path, target="native")
    assert sliced(converted)
    for feed in (feeds(low, high), feeds(low, high, columns=0)):
        y, exact = session(converted.path).run(None, feed)[0], run(given, feed)[0]
        assert y.shape == exact.shape
        assert not y.size or error(y, exact) < INT8


def test_indices_may_be_expanded(tmp_path: Path) -> None:
    """A row of indices for all batches and rows; the table is sliced before it is repeated."""
    views = [
        node("Gather", ["index", "zero"], ["first"], axis=0),
        node("Clip", ["first", "zero", "most"], ["clipped"]),
        node("Unsqueeze", ["clipped", "axis"], ["row"]),
        node("Shape", ["index"], ["all"]),
        node("Expand", ["row", "all"], ["i"]),
    ]
    given, feed = model([*LAYERS, *views, GATHERED]), feeds(30, 60)
    converted = convert(given, tmp_path, target="native")
    made = {n.output[0]: n for n in converted.proto.graph.node}
    (tile,) = (n for n in made.values() if n.op_type == "Tile")
    assert made[tile.input[0]].op_type == "Slice"
    assert error(session(converted.path).run(None, feed)[0], run(given, feed)[0]) < INT8


@pytest.mark.parametrize("what", ["negative", "read elsewhere", "another axis", "few columns"])
def test_other_products_stay_whole(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, outputs, feed = [*LAYERS, CLIPPED, GATHERED], ["y"], feeds(0, 5)
    if what == "negative":  # counts from the end
        nodes, feed = (
            [*LAYERS, node("GatherElements", ["p", "index"], ["y"], axis=-1)],
            feeds(-9, 9),
        )
    elif what == "read elsewhere":
        nodes, outputs = [*nodes, node("Relu", ["p"], ["z"])], ["y", "z"]
    elif what == "another axis":
        nodes = [*LAYERS, CLIPPED, node("GatherElements", ["p", "i"], ["y"], axis=1)]
    else:
        monkeypatch.setattr("octavo.graph.rewrite.gathered_columns.LEAST_COLUMNS", ROWS + 1)
    given = model(nodes, outputs)
    converted = convert(given, tmp_path, target="native")
    assert not sliced(converted)
    assert error(session(converted.path).run(None, feed)[0], run(given, feed)[0]) < INT8
