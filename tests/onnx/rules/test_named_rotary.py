"""RotaryEmbedding, ONNX's and ONNX Runtime's, in target native gives what the operator gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from octavo.errors import ModelError
from octavo.onnx import convert_target, session
from tests.graphs import MS, Array, build, convert, node, rng, run, weight
from tests.onnx.rules.attention_graphs import assert_same

B, HEADS, S, DEPTH, POSITIONS = 2, 3, 5, 16, 32
PLACES = np.array([[4, 5, 6, 7, 8], [0, 1, 2, 9, 31]])
STORED = ("cos", "sin")


def tables(width: int = DEPTH // 2, *, each: bool = False) -> dict[str, Array]:
    shape = (B, S, width) if each else (POSITIONS, width)
    angles = np.asarray(rng(3).standard_normal(shape), np.float32)
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


def heads() -> dict[str, Array]:
    return {"x": np.asarray(rng(5).standard_normal((B, HEADS, S, DEPTH)), np.float32)}


def rows() -> dict[str, Array]:
    found = heads()["x"].swapaxes(1, 2).reshape(B, S, HEADS * DEPTH)
    return {"x": np.ascontiguousarray(found)}


def model(
    domain: str, feeds: Mapping[str, Array], attributes: Mapping[str, Any], *, stored: bool = True
) -> onnx.ModelProto:
    order = ("x", "places", "cos", "sin") if domain else ("x", "cos", "sin", "places")
    names = [name if name in feeds else "" for name in order]
    while not names[-1]:
        names.pop()
    nodes = [
        node("RotaryEmbedding", names, ["r"], name="turn", domain=domain, **attributes),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    constants = {"w": weight(feeds["x"].shape[-1], 8)}
    constants |= {n: feeds[n] for n in STORED if n in feeds and stored}
    kind = helper.np_dtype_to_tensor_dtype
    inputs = {
        n: (kind(a.dtype), [HEADS if i == 1 and a.ndim == 4 else f"{n}_{i}" for i in range(a.ndim)])
        for n, a in feeds.items()
        if n not in constants
    }
    return build(nodes, inputs, ["r", "y"], constants, 17 if domain else 23, 10)


PART = {"rotary_embedding_dim": 8, "num_heads": HEADS}
CASES: dict[str, tuple[str, dict[str, Array], dict[str, Any]]] = {
    "heads": ("", heads() | tables() | {"places": PLACES}, {}),
    "rows": ("", rows() | tables() | {"places": PLACES}, {"num_heads": HEADS}),
    "neighbours": ("", heads() | tables() | {"places": PLACES}, {"interleaved": 1}),
    "a part": ("", heads() | tables(4) | {"places": PLACES}, {"rotary_embedding_dim": 8}),
    "a part of rows": ("", rows() | tables(4) | {"places": PLACES}, PART),
    "a table for each row": ("", heads() | tables(each=True), {}),
    "a table for each of rows": ("", rows() | tables(each=True), {"num_heads": HEADS}),
    "stock, heads": (MS, heads() | tables() | {"places": PLACES}, {}),
    "stock, rows": (MS, rows() | tables() | {"places": PLACES}, {}),
    "stock, rows and heads": (MS, rows() | tables() | {"places": PLACES}, {"num_heads": HEADS}),
    "stock, neighbours": (MS, rows() | tables() | {"places": PLACES}, {"interleaved": 1}),
    "stock, a part": (MS, rows() | tables(4) | {"places": PLACES}, PART),
    "stock, neighbours of a part": (
        MS, rows() | tables(4) | {"places": PLACES}, PART | {"interleaved": 1},
    ),
    "stock, from one on": (MS, rows() | tables() | {"places": np.array([7])}, {}),
    "stock, heads from one on": (MS, heads() | tables() | {"places": np.array([7])}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_gives_what_the_operator_gives(tmp_path: Path, case: str) -> None:
    """Every second one with tables that are stored, the others with tables that are given."""
    stored = list(CASES).index(case) % 2 == 0
    domain, feeds, attributes = CASES[case]
    source = model(domain, feeds, attributes, stored=stored)
    fed = {n: a for n, a in feeds.items() if not (stored and n in STORED)}
    done = convert(source, tmp_path, target="native")
    assert [n.op_type for n in done.proto.graph.node] == ["Rotary", "Linear"]
    (exact,) = run(source, fed, ["r"])
    (found,) = session(done.path).run(["r"], fed)
    assert_same(found, exact)
    convert_target(done.path, tmp_path / "portable.onnx", to="portable", verify=False)
    assert_same(run(tmp_path / "portable.onnx", fed, ["r"])[0], exact)


LEFT: dict[str, tuple[dict[str, Any], str]] = {
    "ragged": ({"is_packed_batching": 1}, "its items lie in one row, of different lengths"),
    "scale": ({"scale": 0.5}, "it has a scale"),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_is_in_the_report(tmp_path: Path, case: str) -> None:
    attributes, reason = LEFT[case]
    source = model(MS, rows() | tables() | {"places": PLACES}, attributes)
    done = convert(source, tmp_path, target="native", verify=False)
    assert [n.op_type for n in done.proto.graph.node] == ["RotaryEmbedding", "Linear"]
    (note,) = [note for note in done.report.notes if "left to ONNX Runtime" in note]
    assert reason in note and "turn" in note


def test_a_table_that_is_missing_is_an_error(tmp_path: Path) -> None:
    feeds = {n: a for n, a in (heads() | tables() | {"places": PLACES}).items() if n != "sin"}
    with pytest.raises(ModelError, match=r"'turn' .*RotaryEmbedding. has no input sin_cache"):
        convert(model(MS, feeds, {}), tmp_path, target="native", verify=False)


def test_positions_that_no_table_has_are_an_error(tmp_path: Path) -> None:
    feeds = rows() | tables() | {"places": PLACES + 1}
    done = convert(model(MS, feeds, {}), tmp_path, target="native", verify=False)
    fed = {n: a for n, a in feeds.items() if n not in STORED}
    with pytest.raises(Exception, match="position 32 is none of cos and sin, which have 32"):
        session(done.path).run(None, fed)
