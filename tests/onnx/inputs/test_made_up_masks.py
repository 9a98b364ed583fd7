"""Masks are told by what the graph does with them: ones and one short row, whichever way round."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from octavo.onnx.inputs.roles import Role
from tests.graphs import F32, build, normal
from tests.onnx.inputs.made_up_graphs import (
    BOOL,
    I32,
    I64,
    WIDE,
    accepted,
    guesses,
    kinds,
    node,
    scored,
)

BOTH = ["batch", "seq"]
NUMBERS = {
    "zero": np.array(0), "one": np.array(1), "fone": np.float32(1), "low": np.float32(-1e9),
    "minf": np.float32(-np.inf), "fzero": np.float32(0), "at": np.array([1]), "pad": np.array(7),
}  # fmt: skip


def by_equal() -> onnx.ModelProto:
    """masked_fill(mask == 0, -inf)"""
    masking = [
        node("Equal", "mask zero", "hidden"),
        node("Unsqueeze", "hidden at", "hidden3"),
        node("Where", "hidden3 low scores", "masked"),
    ]
    return scored(masking, ("mask", I64, BOTH), NUMBERS)


def by_subtraction() -> onnx.ModelProto:
    """scores + (1 - mask) * -1e9, as BERT has it."""
    masking = [
        node("Unsqueeze", "mask at", "m3"),
        node("Cast", "m3", "f", to=F32),
        node("Sub", "fone f", "inverted"),
        node("Mul", "inverted low", "bias"),
        node("Add", "scores bias", "masked"),
    ]
    return scored(masking, ("mask", I64, BOTH), NUMBERS)


def of_floats() -> onnx.ModelProto:
    """The same of a mask that is float already."""
    masking = [
        node("Unsqueeze", "mask at", "m3"),
        node("Sub", "fone m3", "inverted"),
        node("Mul", "inverted low", "bias"),
        node("Add", "bias scores", "masked"),
    ]
    return scored(masking, ("mask", F32, BOTH), NUMBERS)


def by_cast() -> onnx.ModelProto:
    """where(mask.bool(), scores, -inf)"""
    masking = [
        node("Cast", "mask", "seen", to=BOOL),
        node("Unsqueeze", "seen at", "seen3"),
        node("Where", "seen3 scores minf", "masked"),
    ]
    return scored(masking, ("mask", I32, BOTH), NUMBERS)


def gathered() -> onnx.ModelProto:
    """Read by computed indices, joined with another condition, expanded: transformers 5."""
    masking = [
        node("Cast", "mask", "seen", to=BOOL),
        node("Shape", "mask", "size"),
        node("ReduceProd", "size", "count", keepdims=0),
        node("Range", "zero count one", "places"),
        node("Reshape", "seen flat", "row"),
        node("Gather", "row places", "picked"),
        node("Reshape", "picked size", "again"),
        node("Unsqueeze", "again at", "seen3"),
        node("And", "seen3 yes", "both"),
        node("Shape", "scores", "full"),
        node("Expand", "both full", "wide"),
        node("Where", "wide fzero minf", "bias"),
        node("Add", "scores bias", "masked"),
    ]
    more = {"flat": np.array([-1]), "yes": np.array([True])}
    return scored(masking, ("mask", I64, BOTH), NUMBERS | more)


def of_true_that_hides() -> onnx.ModelProto:
    """key_padding_mask: True is padding."""
    masking = [
        node("Unsqueeze", "mask at", "m3"),
        node("Where", "m3 minf scores", "masked"),
    ]
    return scored(masking, ("mask", BOOL, BOTH), NUMBERS)


def inverted() -> onnx.ModelProto:
    """The same behind ~mask: True is seen."""
    masking = [
        node("Not", "mask", "n"),
        node("Unsqueeze", "n at", "n3"),
        node("Where", "n3 low scores", "masked"),
    ]
    return scored(masking, ("mask", BOOL, BOTH), NUMBERS)


def added() -> onnx.ModelProto:
    """A mask of 0 and -inf that is added to the scores."""
    masking = [node("Add", "scores mask", "masked")]
    return scored(masking, ("mask", F32, ["batch", "seq", "seq"]), NUMBERS)


def as_factor() -> onnx.ModelProto:
    """A mean over the tokens that are there."""
    nodes = [
        node("Cast", "mask", "f", to=F32),
        node("Unsqueeze", "f at", "f3"),
        node("Mul", "x f3", "kept"),
        node("ReduceSum", "kept one1", "y", keepdims=0),
    ]
    inputs: list[Any] = [("x", F32, ["batch", "seq", WIDE]), ("mask", I64, BOTH)]
    weights = {"at": np.array([2]), "one1": np.array([1])}
    return build(nodes, inputs, [("y", F32, None)], weights)


# How the model masks: the model, and the element that hides.
MASKS = {
    "equal to 0": (by_equal, 0),
    "1 - mask": (by_subtraction, 0),
    "floats": (of_floats, 0),
    "cast to bool": (by_cast, 0),
    "gathered": (gathered, 0),
    "True hides": (of_true_that_hides, 1),
    "True is seen": (inverted, 0),
    "a factor": (as_factor, 0),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_show_all_but_the_end_of_one_row(name: str) -> None:
    make, hides = MASKS[name]
    model = make()
    kind = kinds(model)["mask"]
    assert (kind.role, kind.hidden) == (Role.MASK, hides)
    for number, feed, outputs in accepted(model):
        assert number < 4
        hidden = feed["mask"].astype(np.int64) == hides
        rows, length = hidden.shape
        assert not hidden[:, : length * 3 // 4].any()
        if rows > 1:
            assert hidden[-1].sum() == length // 4 and not hidden[:-1].any()
        assert np.isfinite(outputs[0]).all() and outputs[0].std() > 0.1


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_makes_a_difference(name: str) -> None:
    """Else it was not the mask that the model takes it for."""
    model = MASKS[name][0]()
    _, feed, (output,) = accepted(model, 2)[1]
    whole = {**feed, "mask": np.repeat(feed["mask"][:1], len(feed["mask"]), axis=0)}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (other,) = session.run(None, whole)
    assert not np.allclose(output[-1], other[-1]) and np.allclose(output[0], other[0])


def test_what_is_added_to_scores_is_0_or_far_below() -> None:
    model = added()
    assert kinds(model)["mask"].role is Role.ADDED_MASK
    for _, feed, (output,) in accepted(model):
        values = feed["mask"]
        assert set(np.unique(values)) <= {0.0, -10_000.0} and (values == 0).mean() > 0.5
        assert (values == 0).any(axis=-1).all()  # every query sees something
        assert np.isfinite(output).all()


def test_a_float_that_is_no_mask_is_none() -> None:
    """Features that are compared, as LeakyRelu written out, or added before a softmax's layer."""
    nodes = [
        node("Greater", "x fzero", "is_above"),
        node("Mul", "x low", "below"),
        node("Where", "is_above x below", "h"),
        node("MatMul", "h w", "y"),
    ]
    weights = {"fzero": np.float32(0), "low": np.float32(0.1), "w": normal(8, 8)}
    model = build(nodes, [("x", F32, ["n", 8])], [("y", F32, None)], weights)
    assert kinds(model)["x"].role is Role.FEATURES
    assert len(np.unique(guesses(model)[0]["x"])) > 8


def test_a_mask_of_queries_and_keys_lets_each_query_see_itself() -> None:
    nodes = [node("Where", "mask x low", "masked"), node("Softmax", "masked", "y")]
    inputs: list[Any] = [("mask", BOOL, ["s", "s"]), ("x", F32, ["s", "s"])]
    model = build(nodes, inputs, [("y", F32, None)], {"low": np.float32(-1e9)})
    mask = guesses(model)[0]["mask"]
    assert mask.dtype == np.bool_ and np.array_equal(mask, np.tril(np.ones_like(mask)))


@pytest.mark.parametrize("code", [BOOL, I64, I32, F32, TensorProto.UINT8])
def test_a_mask_that_only_its_name_tells(code: int) -> None:
    nodes = [node("Cast", "mask", "m", to=F32), node("MatMul", "m w", "y")]
    shape: list[Any] = ["batch", 8]
    model = build(nodes, [("mask", code, shape)], [("y", F32, None)], {"w": normal(8, 8)})
    found = [feed["mask"].astype(int) for feed in guesses(model)]
    assert all(mask[:, :4].all() for mask in found) and any(not mask.all() for mask in found)


def test_masks_and_ids_beside_each_other_are_told_apart() -> None:
    """Both are compared by Equal; only one looks up a table."""
    model = by_equal()
    found = kinds(model)
    assert found["ids"].role is Role.IDS and found["mask"].role is Role.MASK
    assert {feed["ids"].shape == feed["mask"].shape for feed in guesses(model)} == {True}
