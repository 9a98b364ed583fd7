"""A product of which some columns are gathered computes those columns alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.gathered_columns import LEAST_COLUMNS, reference
from tests.graphs import INT64, Array, Converted, values, weight
from tests.native_target.forms import agrees, convert, spelt

K, ROWS = 48, 2 * LEAST_COLUMNS
STORED: dict[str, Array] = {
    "w": weight(K, K, spread=False),
    "table": values(1, ROWS, K, seed=6),
    "zero": np.array(0),
    "most": np.array(ROWS - 1),
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


def model(*parts: str, outputs: Any = ("y",)) -> onnx.ModelProto:
    inputs = {"x": ["b", "r", K], "index": (INT64, ["b", "r", "j"])}
    return spelt("; ".join([LAYERS, *parts]), inputs, STORED, outputs)


def feeds(low: int, high: int, columns: int = 9) -> dict[str, Array]:
    index = np.random.default_rng(0).integers(low, high, (2, 5, columns))
    return {"x": values(2, 5, K), "index": index}


def sliced(converted: Converted) -> bool:
    """Whether the table is."""
    return "Slice" in converted.ops


def test_what_is_taken_over_is_stated() -> None:
    x, table, index = values(3, K), values(K, 7, seed=2), np.array([[6, 0], [1, 1], [2, 5]])
    exact = [[x[m] @ table[:, j] for j in index[m]] for m in range(3)]
    np.testing.assert_allclose(reference(x, table, index), exact, rtol=1e-4)


def test_the_columns_that_are_read_are_computed(tmp_path: Path) -> None:
    given = model(CLIPPED, GATHERED)
    converted = convert(given, tmp_path)
    assert sliced(converted)
    for low, high in [(3, 20), (0, ROWS), (ROWS - 1, ROWS), (-50, 2 * ROWS), (7, 8)]:
        for columns in (9, 0):
            agrees(given, converted, feeds(low, high, columns))


def test_indices_may_be_expanded(tmp_path: Path) -> None:
    """A row of indices for all batches and rows; the table is sliced before it is repeated."""
    views = (
        "first=Gather(index,zero,axis:0); clipped=Clip(first,zero,most); "
        "row=Unsqueeze(clipped,axis); all=Shape(index); i=Expand(row,all)"
    )
    given = model(views, GATHERED)
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
        monkeypatch.setattr("octavo.graph.rewrite.gathered_columns.LEAST_COLUMNS", ROWS + 1)
    given = model(*OTHERS[what], outputs=("y", "z") if what == "read elsewhere" else ("y",))
    converted = convert(given, tmp_path)
    assert not sliced(converted)
    agrees(given, converted, feeds(-9, 9) if what == "negative" else feeds(0, 5))
