"""Integers: ids, token types, positions, lengths, modes, indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from octavo.onnx import inputs
from octavo.onnx.constants import Constants
from octavo.onnx.inputs.roles import Role
from tests.graphs import F32, build, normal
from tests.onnx.inputs.made_up_graphs import (
    BOOL,
    I64,
    ROWS,
    WIDE,
    accepted,
    embedded,
    guesses,
    kinds,
    node,
)  # fmt: skip

BOTH = ["batch", "seq"]


def positions_from_padding(pad: int) -> onnx.ModelProto:
    """Positions count the ids that are no padding, as in RoBERTa and MPNet."""
    nodes = [
        node("Equal", "ids pad", "is_pad"),
        node("Not", "is_pad", "real"),
        node("Cast", "real", "ones", to=I64),
        node("CumSum", "ones axis", "counted"),
        node("Mul", "counted ones", "places"),
        node("Gather", "positions places", "p"),
        node("Add", "e p", "y"),
    ]
    weights = {"pad": np.array(pad), "axis": np.array(1), "positions": normal(130, WIDE)}
    return embedded(nodes, [], weights)


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
    model = build(
        [node("Gather", "table ids", "y")],
        [("ids", I64, [batch, length])],
        [("y", F32, None)],
        {"table": np.zeros((rows, 2), np.float32)},
    )
    for feed in guesses(model):
        ids, count = feed["ids"], batch * length
        assert ids.min() >= 0 and ids.max() < rows
        assert len(np.unique(ids)) >= (min(rows, count) + 1) // 2
        assert ids.max() - ids.min() >= rows * (count - 2) / count - 1


def test_another_seed_gives_other_ids_and_the_same_one_the_same() -> None:
    model = positions_from_padding(1)
    a, b, c = (guesses(model, seed=s)[1]["ids"] for s in (5, 5, 6))
    assert np.array_equal(a, b) and not np.array_equal(a, c) and a.shape == c.shape


def one_hot(rows: int) -> onnx.ModelProto:
    nodes = [node("OneHot", "ids depth values", "y", axis=-1)]
    weights = {"depth": np.array(rows), "values": np.float32([0, 1])}
    return build(nodes, [("ids", I64, BOTH)], [("y", F32, None)], weights)


def one_hot_by_equal(rows: int) -> onnx.ModelProto:
    """As JAX writes it: ids == arange, expanded."""
    nodes = [
        node("Unsqueeze", "ids last", "u"),
        node("Shape", "ids", "s"),
        node("Concat", "s r", "full", axis=0),
        node("Expand", "range full", "wide"),
        node("Equal", "u wide", "is"),
        node("Cast", "is", "y", to=F32),
    ]
    weights = {"last": np.array([-1]), "r": np.array([rows]), "range": np.arange(rows)[None, None]}
    return build(nodes, [("ids", I64, BOTH)], [("y", F32, None)], weights)


def shifted(rows: int) -> onnx.ModelProto:
    nodes = [node("Add", "ids two", "i"), node("Gather", "table i", "y")]
    weights = {"two": np.array(2), "table": normal(rows + 2, 4)}
    return build(nodes, [("ids", I64, BOTH)], [("y", F32, None)], weights)


def of_integers(rows: int) -> onnx.ModelProto:
    """The table is quantized."""
    nodes = [
        node("DequantizeLinear", "table scale zero", "t"),
        node("Gather", "t ids", "y"),
    ]
    weights = {"table": np.ones((rows, 4), np.uint8), "scale": np.float32(1), "zero": np.uint8(0)}
    return build(nodes, [("ids", I64, BOTH)], [("y", F32, None)], weights)


def last_of_a_prefix(rows: int) -> onnx.ModelProto:
    """Only the last token is looked up, as a decoder does."""
    nodes = [node("Gather", "ids last", "one", axis=1), node("Gather", "table one", "y")]
    weights = {"last": np.array(-1), "table": normal(rows, 4)}
    return build(nodes, [("ids", I64, BOTH)], [("y", F32, None)], weights)


@pytest.mark.parametrize(
    "make", [one_hot, one_hot_by_equal, shifted, of_integers, last_of_a_prefix]
)
def test_tables_in_other_clothes(make: Any) -> None:
    model = make(37)
    kind = kinds(model)["ids"]
    assert (kind.role, kind.rows) == (Role.IDS, 37)
    number, feed, _ = accepted(model, 1)[0]
    assert number == 0 and feed["ids"].max() < 37 and len(np.unique(feed["ids"])) > 10


def test_token_types_and_positions_beside_ids() -> None:
    nodes = [
        node("Gather", "two types", "t"),
        node("Gather", "places position_ids", "p"),
        node("Add", "e t", "s"),
        node("Add", "s p", "y"),
    ]
    weights = {"two": normal(2, WIDE), "places": normal(20, WIDE)}
    model = embedded(nodes, [("types", I64, BOTH), ("position_ids", I64, BOTH)], weights)
    roles = {name: kind.role for name, kind in kinds(model).items()}
    assert roles == {"ids": Role.IDS, "types": Role.TYPES, "position_ids": Role.POSITIONS}
    for number, feed, _ in accepted(model):
        assert number < 4
        types, length = feed["types"], feed["ids"].shape[1]
        assert (np.diff(types, axis=1) >= 0).all() and set(np.unique(types)) <= {0, 1}
        assert length < 2 or types.any()
        assert np.array_equal(feed["position_ids"][0], np.arange(length) % 20)


def test_positions_of_rotary_embeddings() -> None:
    nodes = [
        node("Cast", "position_ids", "f", to=F32),
        node("Unsqueeze", "f last", "u"),
        node("Mul", "u frequencies", "angles"),
        node("Cos", "angles", "c"),
        node("Mul", "e c", "y"),
    ]
    weights = {"last": np.array([-1]), "frequencies": normal(1, 1, WIDE)}
    model = embedded(nodes, [("position_ids", I64, BOTH)], weights)
    assert kinds(model)["position_ids"].role is Role.POSITIONS
    feed = accepted(model, 1)[0][1]
    assert np.array_equal(feed["position_ids"][0], np.arange(feed["ids"].shape[1]))


# Lengths -----------------------------------------------------------------------------------------


def by_range() -> onnx.ModelProto:
    """A mask of lengths: arange(longest) < lengths, as in VITS."""
    nodes = [
        node("Shape", "ids", "s", start=1),
        node("Squeeze", "s zero1", "long"),
        node("Range", "zero long one", "places"),
        node("Unsqueeze", "lengths one1", "l"),
        node("Less", "places l", "seen"),
        node("Cast", "seen", "f", to=F32),
        node("Unsqueeze", "f two1", "f3"),
        node("Mul", "e f3", "y"),
    ]
    weights = {
        "zero": np.array(0), "one": np.array(1), "zero1": np.array([0]), "one1": np.array([1]),
        "two1": np.array([2]),
    }  # fmt: skip
    return embedded(nodes, [("lengths", I64, ["batch"])], weights)


def of_lstm() -> onnx.ModelProto:
    nodes = [
        node("Transpose", "e", "et", perm=[1, 0, 2]),
        node("Cast", "n", "n32", to=TensorProto.INT32),
        node("LSTM", "et W R _ n32", "y", hidden_size=8),
    ]
    weights = {"W": normal(1, 32, WIDE), "R": normal(1, 32, 8)}
    return embedded(nodes, [("n", I64, ["batch"])], weights)


@pytest.mark.parametrize(("make", "name"), [(by_range, "lengths"), (of_lstm, "n")])
def test_lengths_agree_with_the_axis(make: Any, name: str) -> None:
    model = make()
    assert kinds(model)[name].role is Role.LENGTHS
    for number, feed, outputs in accepted(model):
        assert number < 4
        lengths, length = feed[name], feed["ids"].shape[1]
        assert lengths.max() == length and lengths.min() >= 1
        assert len(lengths) == 1 or lengths[-1] == length - -(-length // 4)
        assert np.abs(outputs[0]).sum() > 0


# Modes and categories ----------------------------------------------------------------------------


def branches(choice: list[onnx.NodeProto], spec: Any, weights: dict[str, Any]) -> onnx.ModelProto:
    """`flag` chooses between x and -x."""
    out = helper.make_empty_tensor_value_info("o")
    bodies = {
        key: helper.make_graph([node(op, "x", "o")], key, [], [out])
        for key, op in (("then_branch", "Identity"), ("else_branch", "Neg"))
    }
    nodes = [*choice, helper.make_node("If", ["flag"], ["y"], **bodies)]
    return build(nodes, [spec, ("x", F32, ["n", 4])], [("y", F32, None)], weights)


@pytest.mark.parametrize(
    ("choice", "spec", "weights", "numbers"),
    [
        ([node("Identity", "m", "flag")], ("m", BOOL, []), {}, {True, False}),
        ([node("Equal", "m c", "flag")], ("m", I64, []), {"c": np.array(8000)}, {8000, 8001}),
        ([node("Greater", "m c", "flag")], ("m", I64, []), {"c": np.array(5)}, {4, 5, 6, 7}),
        (
            [node("Equal", "m c", "f1"), node("Squeeze", "f1", "flag")],
            ("m", I64, [1]), {"c": np.array([3])}, {3, 4},
        ),
    ],
)  # fmt: skip
def test_what_chooses_a_branch_takes_each_of_its_numbers(
    choice: list[onnx.NodeProto], spec: Any, weights: dict[str, Any], numbers: set[int]
) -> None:
    model = branches(choice, spec, weights)
    assert kinds(model)["m"].role is Role.MODE
    count = inputs.branches(ir.from_proto(model), Constants(17))
    found = {guesses(model, branch=branch)[0]["m"].item() for branch in range(count)}
    assert found == numbers


def test_ids_are_no_mode_and_have_one_way() -> None:
    model = positions_from_padding(1)
    assert inputs.branches(ir.from_proto(model), Constants(17)) == 1


def test_categories_are_mixed() -> None:
    """Numbers compared element by element are neither one of them everywhere nor none."""
    nodes = [
        node("Equal", "kind three", "is3"),
        node("Where", "is3 x e", "y"),
    ]
    inputs: list[Any] = [("kind", I64, ["batch", "seq", 1]), ("x", F32, ["batch", "seq", WIDE])]
    model = embedded(nodes, inputs, {"three": np.array(3)})
    for _, feed, _ in accepted(model):
        share = (feed["kind"] == 3).mean()
        assert 0 < share < 1 or feed["kind"].size < 2


def test_indices_into_what_the_model_computes_are_in_range() -> None:
    nodes = [node("Gather", "e at", "y", axis=1)]
    model = embedded(nodes, [("at", I64, ["k"])], {})
    assert kinds(model)["at"].role is Role.INDEX
    for number, feed, _ in accepted(model):
        assert number < 4 and feed["at"].max() < feed["ids"].shape[1]


def test_what_nothing_is_known_of_is_no_constant() -> None:
    nodes = [node("Cast", "counts", "f", to=F32), node("MatMul", "f w", "y")]
    model = build(nodes, [("counts", I64, ["n", 6])], [("y", F32, None)], {"w": normal(6, 3)})
    assert len(np.unique(guesses(model)[0]["counts"])) > 3
