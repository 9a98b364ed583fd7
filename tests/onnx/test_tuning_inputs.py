"""Inputs that tuning makes up: the user's shapes, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from octavo.errors import InputDataError
from octavo.onnx import OnnxTarget
from tests.graphs import mlp, normal, text

ROWS = 11


def embedder() -> onnx.ModelProto:
    """ids [batch, seq], mask [batch, seq], extra [batch, 3] -> [batch, seq, 16]."""
    body = """[lookup] e = Gather (table, ids) m = Cast <to = 1> (mask) c = Unsqueeze (m, last)
        y = Mul (e, c) [fc] z = MatMul (extra, w)"""
    weights = {"table": normal(ROWS, 16), "w": normal(3, 16), "last": np.array([-1])}
    inputs = "int64[batch, seq] ids, int64[batch, seq] mask, float[batch, 3] extra"
    return text(body, inputs, "float[] y, float[] z", weights)


def test_inputs_that_share_a_dimension_follow_the_one_that_is_given() -> None:
    feeds = OnnxTarget(embedder()).made_up({"ids": (5, 77)}, 3)
    for feed in feeds:
        shapes = {name: array.shape for name, array in feed.items()}
        assert shapes == {"ids": (5, 77), "mask": (5, 77), "extra": (5, 3)}
        assert 0 <= feed["ids"].min() <= feed["ids"].max() < ROWS


def test_several_feeds_differ_and_a_seed_gives_the_same_again() -> None:
    ours = OnnxTarget(embedder())
    first, again, other = ours.made_up({}, 3), ours.made_up({}, 3), ours.made_up({}, 4)
    assert len(first) == 4
    for i, feed in enumerate(first):
        for name in feed:
            np.testing.assert_array_equal(feed[name], again[i][name])
        assert (feed["extra"] != other[i]["extra"]).all()
        assert all((feed["extra"] != later["extra"]).all() for later in first[i + 1 :])


def test_where_nothing_is_random_there_is_one_feed() -> None:
    body = "m = Cast <to = 1> (mask) [fc] y = MatMul (m, w)"
    model = text(body, "int64[n, 8] mask", weights={"w": normal(8, 8)})
    (feed,) = OnnxTarget(model).made_up({"mask": (2, 8)}, 0)
    assert feed["mask"].tolist() == [[1] * 8, [1] * 6 + [0] * 2]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"idz": (1, 2)}, ["'idz'", "'ids'"]),
        ({"ids": (1, 2, 3)}, ["[1, 2, 3]", "'ids'", "[batch,seq]"]),
        ({"extra": (2, 4)}, ["[2, 4]", "'extra'", "[batch,3]"]),
        ({"ids": (1, 2), "extra": (2, 3)}, ["batch = 2", "'extra'", "'ids' says 1"]),
        ({"ids": (0, 2)}, ["[0, 2]", "'ids'", "above 0"]),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InputDataError) as caught:
        OnnxTarget(embedder()).made_up(shapes, 0)
    assert all(text in str(caught.value) for text in said)


def test_a_shape_that_the_model_rejects_is_named_with_one_that_it_takes() -> None:
    model = mlp(1, 32)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"
    with pytest.raises(InputDataError, match=r"not run on x=2x31: it runs on x=8x32"):
        OnnxTarget(model).made_up({"x": (2, 31)}, 0)
