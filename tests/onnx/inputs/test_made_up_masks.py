"""Masks are told by what the graph does with them: ones and one short row, whichever way round."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from octavo.onnx.inputs.roles import Role
from tests.graphs import normal, run, text
from tests.onnx.inputs.made_up_graphs import WIDE, accepted, guesses, kinds, scored

BOTH = "[batch, seq]"
NUMBERS = {
    "zero": np.array(0), "one": np.array(1), "fone": np.float32(1), "low": np.float32(-1e9),
    "minf": np.float32(-np.inf), "fzero": np.float32(0), "at": np.array([1]),
    "flat": np.array([-1]), "yes": np.array([True]),
}  # fmt: skip

# How the model masks its scores, what the mask is of, and the element that hides.
MASKS = {
    # masked_fill(mask == 0, -inf)
    "equal to 0": (
        """hidden = Equal (mask, zero)
        hidden3 = Unsqueeze (hidden, at)
        masked = Where (hidden3, low, scores)""", "int64", 0,
    ),
    # scores + (1 - mask) * -1e9, as BERT has it.
    "1 - mask": (
        """m3 = Unsqueeze (mask, at)
        f = Cast <to = 1> (m3)
        inverted = Sub (fone, f)
        bias = Mul (inverted, low)
        masked = Add (scores, bias)""", "int64", 0,
    ),
    "floats": (
        """m3 = Unsqueeze (mask, at)
        inverted = Sub (fone, m3)
        bias = Mul (inverted, low)
        masked = Add (bias, scores)""", "float", 0,
    ),
    # where(mask.bool(), scores, -inf)
    "cast to bool": (
        """seen = Cast <to = 9> (mask)
        seen3 = Unsqueeze (seen, at)
        masked = Where (seen3, scores, minf)""", "int32", 0,
    ),
    # Read by computed indices, joined with another condition, expanded: transformers 5.
    "gathered": (
        """seen = Cast <to = 9> (mask)
        size = Shape (mask)
        count = ReduceProd <keepdims = 0> (size)
        places = Range (zero, count, one)
        row = Reshape (seen, flat)
        picked = Gather (row, places)
        again = Reshape (picked, size)
        seen3 = Unsqueeze (again, at)
        both = And (seen3, yes)
        full = Shape (scores)
        wide = Expand (both, full)
        bias = Where (wide, fzero, minf)
        masked = Add (scores, bias)""", "int64", 0,
    ),
    # key_padding_mask: True is padding.
    "True hides": ("m3 = Unsqueeze (mask, at) masked = Where (m3, minf, scores)", "bool", 1),
    "True is seen": (
        "n = Not (mask) n3 = Unsqueeze (n, at) masked = Where (n3, low, scores)", "bool", 0,
    ),
}  # fmt: skip


def masked(name: str) -> tuple[onnx.ModelProto, int]:
    """The model, and the element that hides."""
    if name != "a factor":
        body, kind, hides = MASKS[name]
        return scored(body, f"{kind}{BOTH} mask", NUMBERS), hides
    # A mean over the tokens that are there.
    body = """f = Cast <to = 1> (mask)
        f3 = Unsqueeze (f, two)
        kept = Mul (x, f3)
        y = ReduceSum <keepdims = 0> (kept, at)"""
    inputs = f"float[batch, seq, {WIDE}] x, int64{BOTH} mask"
    return text(body, inputs, weights={"two": np.array([2]), "at": np.array([1])}), 0


@pytest.mark.parametrize("name", [*MASKS, "a factor"])
def test_masks_show_all_but_the_end_of_one_row_and_make_a_difference(name: str) -> None:
    model, hides = masked(name)
    kind = kinds(model)["mask"]
    assert (kind.role, kind.hidden) == (Role.MASK, hides)
    found = accepted(model)
    for number, feed, outputs in found:
        assert number < 4
        hidden = feed["mask"].astype(np.int64) == hides
        rows, length = hidden.shape
        assert not hidden[:, : length * 3 // 4].any()
        if rows > 1:
            assert hidden[-1].sum() == length // 4 and not hidden[:-1].any()
        assert np.isfinite(outputs[0]).all() and outputs[0].std() > 0.1
    _, feed, (output,) = found[1]
    whole = {**feed, "mask": np.repeat(feed["mask"][:1], len(feed["mask"]), axis=0)}
    (other,) = run(model, whole)
    assert not np.allclose(output[-1], other[-1]) and np.allclose(output[0], other[0])


def test_what_is_added_to_scores_is_0_or_far_below() -> None:
    model = scored("masked = Add (scores, mask)", "float[batch, seq, seq] mask", NUMBERS)
    assert kinds(model)["mask"].role is Role.ADDED_MASK
    for _, feed, (output,) in accepted(model):
        values = feed["mask"]
        assert set(np.unique(values)) <= {0.0, -10_000.0} and (values == 0).mean() > 0.5
        assert (values == 0).any(axis=-1).all()  # every query sees something
        assert np.isfinite(output).all()


def test_what_is_added_is_padded_at_the_end_and_at_the_start() -> None:
    """Each way in a row of its own, and by turns where there is one row."""
    model = scored("masked = Add (scores, mask)", "float[batch, 1, seq] mask", NUMBERS)
    hidden = [feed["mask"] < 0 for feed in guesses(model)]
    several = [rows for rows in hidden if len(rows) > 1]
    assert several and all(rows[0, 0, 0] and rows[-1, 0, -1] for rows in several)
    assert not any(rows[0, 0, -1] or rows[-1, 0, 0] for rows in several)
    alone = [(bool(row[0, 0, 0]), bool(row[0, 0, -1])) for row in hidden if len(row) == 1]
    assert (True, True) not in alone and len(set(alone)) > 1


def test_a_float_that_is_no_mask_is_none() -> None:
    """Features that are compared, as LeakyRelu written out, or added before a softmax's layer."""
    body = """is_above = Greater (x, fzero)
        below = Mul (x, low)
        h = Where (is_above, x, below)
        y = MatMul (h, w)"""
    weights = {"fzero": np.float32(0), "low": np.float32(0.1), "w": normal(8, 8)}
    model = text(body, "float[n, 8] x", weights=weights)
    assert kinds(model)["x"].role is Role.FEATURES
    assert len(np.unique(guesses(model)[0]["x"])) > 8


def test_a_mask_of_queries_and_keys_lets_each_query_see_itself() -> None:
    body = "masked = Where (mask, x, low) y = Softmax (masked)"
    mask = guesses(text(body, "bool[s, s] mask, float[s, s] x", weights=NUMBERS))[0]["mask"]
    assert mask.dtype == np.bool_ and np.array_equal(mask, np.tril(np.ones_like(mask)))


@pytest.mark.parametrize("kind", ["bool", "int64", "int32", "float", "uint8"])
def test_a_mask_that_only_its_name_tells(kind: str) -> None:
    body, shape = "m = Cast <to = 1> (mask) y = MatMul (m, w)", "[batch, 8]"
    model = text(body, f"{kind}{shape} mask", weights={"w": normal(8, 8)})
    found = [feed["mask"].astype(int) for feed in guesses(model)]
    assert all(mask[:, :4].all() for mask in found) and any(not mask.all() for mask in found)


def test_masks_and_ids_beside_each_other_are_told_apart() -> None:
    """Both are compared by Equal; only one looks up a table."""
    model, _ = masked("equal to 0")
    found = kinds(model)
    assert found["ids"].role is Role.IDS and found["mask"].role is Role.MASK
    assert {feed["ids"].shape == feed["mask"].shape for feed in guesses(model)} == {True}
