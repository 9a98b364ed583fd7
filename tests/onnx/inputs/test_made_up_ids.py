"""Integers: ids, token types, positions, lengths, modes, indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.onnx import inputs
from octavo.onnx.constants import Constants
from octavo.onnx.inputs.roles import Role
from tests.graphs import normal, text
from tests.onnx.inputs.made_up_graphs import ROWS, WIDE, accepted, embedded, guesses, kinds

BOTH = "int64[batch, seq]"


def positions_from_padding(pad: int) -> onnx.ModelProto:
    """Positions count the ids that are no padding, as in RoBERTa and MPNet."""
    body = """is_pad = Equal (ids, pad)
        real = Not (is_pad)
        ones = Cast <to = 7> (real)
        counted = CumSum (ones, axis)
        places = Mul (counted, ones)
        p = Gather (positions, places)
        y = Add (e, p)"""
    weights = {"pad": np.array(pad), "axis": np.array(1), "positions": normal(130, WIDE)}
    return embedded(body, weights=weights)


@given(pad=st.integers(0, ROWS - 1), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_padding_is_the_end_of_one_row_at_most(pad: int, seed: int) -> None:
    for feed in guesses(positions_from_padding(pad), seed=seed)[:6]:
        ids = feed["ids"]
        is_pad = ids == pad
        assert is_pad.any(axis=1).sum() <= (len(ids) > 1)
        assert is_pad[-1].sum() <= -(-ids.shape[1] // 4)
        if is_pad.any():  # they are the end
            assert is_pad[-1, -is_pad.sum() :].all()
        assert ids.min() >= 0 and ids.max() < ROWS


@given(rows=st.integers(1, 3000), length=st.integers(1, 40), batch=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_ids_spread_over_the_table(rows: int, length: int, batch: int) -> None:
    table = np.zeros((rows, 2), np.float32)
    body, ids = "y = Gather (table, ids)", f"int64[{batch}, {length}] ids"
    for feed in guesses(text(body, ids, weights={"table": table})):
        ids, count = feed["ids"], batch * length
        assert ids.min() >= 0 and ids.max() < rows
        assert len(np.unique(ids)) >= (min(rows, count) + 1) // 2
        assert ids.max() - ids.min() >= rows * (count - 2) / count - 1


def test_another_seed_gives_other_ids_and_the_same_one_the_same() -> None:
    model = positions_from_padding(1)
    a, b, c = (guesses(model, seed=s)[1]["ids"] for s in (5, 5, 6))
    assert np.array_equal(a, b) and not np.array_equal(a, c) and a.shape == c.shape


TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "one hot": (
        "y = OneHot <axis = -1> (ids, depth, values)",
        {"depth": np.array(37), "values": np.float32([0, 1])},
    ),
    # As JAX writes it: ids == arange, expanded.
    "one hot by Equal": (
        """u = Unsqueeze (ids, last)
        s = Shape (ids)
        full = Concat <axis = 0> (s, r)
        wide = Expand (range, full)
        is = Equal (u, wide)
        y = Cast <to = 1> (is)""",
        {"last": np.array([-1]), "r": np.array([37]), "range": np.arange(37)[None, None]},
    ),
    "shifted": (
        "i = Add (ids, two) y = Gather (table, i)",
        {"two": np.array(2), "table": normal(37 + 2, 4)},
    ),
    "of integers": (
        "t = DequantizeLinear (table, scale, zero) y = Gather (t, ids)",
        {"table": np.ones((37, 4), np.uint8), "scale": np.float32(1), "zero": np.uint8(0)},
    ),
    # Only the last token is looked up, as a decoder does.
    "last of a prefix": (
        "one = Gather <axis = 1> (ids, last) y = Gather (table, one)",
        {"last": np.array(-1), "table": normal(37, 4)},
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_in_other_clothes(name: str) -> None:
    body, weights = TABLES[name]
    model = text(body, f"{BOTH} ids", weights=weights)
    kind = kinds(model)["ids"]
    assert (kind.role, kind.rows) == (Role.IDS, 37)
    number, feed, _ = accepted(model, 1)[0]
    assert number == 0 and feed["ids"].max() < 37 and len(np.unique(feed["ids"])) > 10


def test_token_types_and_positions_beside_ids() -> None:
    body = """t = Gather (two, types)
        p = Gather (places, position_ids)
        s = Add (e, t)
        y = Add (s, p)"""
    weights = {"two": normal(2, WIDE), "places": normal(20, WIDE)}
    model = embedded(body, f"{BOTH} types, {BOTH} position_ids", weights)
    roles = {name: kind.role for name, kind in kinds(model).items()}
    assert roles == {"ids": Role.IDS, "types": Role.TYPES, "position_ids": Role.POSITIONS}
    for number, feed, _ in accepted(model):
        assert number < 4
        types, length = feed["types"], feed["ids"].shape[1]
        assert (np.diff(types, axis=1) >= 0).all() and set(np.unique(types)) <= {0, 1}
        assert length < 2 or types.any()
        assert np.array_equal(feed["position_ids"][0], np.arange(length) % 20)


def test_positions_of_rotary_embeddings() -> None:
    body = """f = Cast <to = 1> (position_ids)
        u = Unsqueeze (f, last)
        angles = Mul (u, frequencies)
        c = Cos (angles)
        y = Mul (e, c)"""
    weights = {"last": np.array([-1]), "frequencies": normal(1, 1, WIDE)}
    model = embedded(body, f"{BOTH} position_ids", weights)
    assert kinds(model)["position_ids"].role is Role.POSITIONS
    feed = accepted(model, 1)[0][1]
    assert np.array_equal(feed["position_ids"][0], np.arange(feed["ids"].shape[1]))


# A mask of lengths: arange(longest) < lengths, as in VITS.
BY_RANGE = """s = Shape <start = 1> (ids)
    long = Squeeze (s, zero1)
    places = Range (zero, long, one)
    l = Unsqueeze (lengths, one1)
    seen = Less (places, l)
    f = Cast <to = 1> (seen)
    f3 = Unsqueeze (f, two1)
    y = Mul (e, f3)"""
OF_LSTM = """et = Transpose <perm = [1, 0, 2]> (e)
    n32 = Cast <to = 6> (lengths)
    y = LSTM <hidden_size = 8> (et, W, R, , n32)"""


@pytest.mark.parametrize("body", [BY_RANGE, OF_LSTM], ids=["range", "LSTM"])
def test_lengths_agree_with_the_axis(body: str) -> None:
    weights = {"zero": np.array(0), "one": np.array(1), "zero1": np.array([0])}
    weights |= {"one1": np.array([1]), "two1": np.array([2])}
    weights |= {"W": normal(1, 32, WIDE), "R": normal(1, 32, 8)}
    model = embedded(body, "int64[batch] lengths", weights)
    assert kinds(model)["lengths"].role is Role.LENGTHS
    for number, feed, outputs in accepted(model):
        assert number < 4
        lengths, length = feed["lengths"], feed["ids"].shape[1]
        assert lengths.max() == length and lengths.min() >= 1
        assert len(lengths) == 1 or lengths[-1] == length - -(-length // 4)
        assert np.abs(outputs[0]).sum() > 0


@pytest.mark.parametrize(
    ("choice", "mode", "c", "numbers"),
    [
        ("flag = Identity (m)", "bool", 0, {True, False}),
        ("flag = Equal (m, c)", "int64", 8000, {8000, 8001}),
        ("flag = Greater (m, c)", "int64", 5, {4, 5, 6, 7}),
        ("f1 = Equal (m, c) flag = Squeeze (f1)", "int64[1]", [3], {3, 4}),
    ],
)
def test_what_chooses_a_branch_takes_each_of_its_numbers(
    choice: str, mode: str, c: Any, numbers: set[int]
) -> None:
    """`flag` chooses between x and -x."""
    chosen = """y = If (flag) <then_branch = t () => (float[] o) { o = Identity (x) },
                               else_branch = e () => (float[] o) { o = Neg (x) }>"""
    model = text(f"{choice} {chosen}", f"{mode} m, float[n, 4] x", weights={"c": np.array(c)})
    assert kinds(model)["m"].role is Role.MODE
    count = inputs.branches(ir.from_proto(model), Constants(17))
    found = {guesses(model, branch=branch)[0]["m"].item() for branch in range(count)}
    assert found == numbers


def test_ids_are_no_mode_and_have_one_way() -> None:
    model = positions_from_padding(1)
    assert inputs.branches(ir.from_proto(model), Constants(17)) == 1


def test_categories_are_mixed() -> None:
    """Numbers compared element by element are neither one of them everywhere nor none."""
    given_inputs = f"int64[batch, seq, 1] kind, float[batch, seq, {WIDE}] x"
    body = "is3 = Equal (kind, three) y = Where (is3, x, e)"
    for _, feed, _ in accepted(embedded(body, given_inputs, {"three": np.array(3)})):
        share = (feed["kind"] == 3).mean()
        assert 0 < share < 1 or feed["kind"].size < 2


def test_indices_into_what_the_model_computes_are_in_range() -> None:
    model = embedded("y = Gather <axis = 1> (e, at)", "int64[k] at")
    assert kinds(model)["at"].role is Role.INDEX
    for number, feed, _ in accepted(model):
        assert number < 4 and feed["at"].max() < feed["ids"].shape[1]


def test_what_nothing_is_known_of_is_no_constant() -> None:
    body = "f = Cast <to = 1> (counts) y = MatMul (f, w)"
    model = text(body, "int64[n, 6] counts", weights={"w": normal(6, 3)})
    assert len(np.unique(guesses(model)[0]["counts"])) > 3
