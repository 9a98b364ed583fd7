"""Sums that look for a NaN in what an attention gives: only where one could hide there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.graphs import FLOAT, INT64, Converted, convert, normal, run, text
from tests.native_target.test_attention_fusion import HEADS, QK, SPELLINGS, WIDTH, Step, model

MASKED: list[Step] = [QK, ("Mul", ["qk", "eighth"], "s"), ("Add", ["s", "bias"], "logits")]
# From `tokens`, int64 [batch, length], 1 where there is one, to `bias`.
MASKS = {
    "chosen": """flag = Cast <to = 9> (tokens) flags = Unsqueeze (flag, middle)
        bias = Where (flags, zero_float, lowest)""",
    "computed": """token4 = Unsqueeze (tokens, middle) kept = Cast <to = 1> (token4)
        dropped = Sub (one_float, kept) bias = Mul (dropped, lowest)""",
}
CONSTANTS: dict[str, Any] = {
    "middle": np.array([1, 2]),
    "zero_float": np.float32(0),
    "one_float": np.float32(1),
    "lowest": np.finfo(np.float32).min,
}


def masked(mask: str) -> onnx.ModelProto:
    """Self-attention under a mask that the graph makes of `tokens`."""
    proto = model(MASKED)
    graph = proto.graph
    for i, node in enumerate(text(MASKS[mask], "", "").graph.node):
        graph.node.insert(i, node)
    del graph.input[1]
    graph.input.append(helper.make_tensor_value_info("tokens", INT64, ["batch", "n"]))
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()
    )
    return proto


def sums(done: Converted) -> int:
    """Beside that of the input `x`, of which nothing is known."""
    return done.ops.count("ReduceSum") - 1


def feeds(value: float | None = None) -> dict[str, Any]:
    """Three sequences of six; `value` in a token of the second that the mask hides."""
    x = normal(3, 6, WIDTH, seed=1)
    if value is not None:
        x[1, 4, 3] = value
    return {"x": x, "tokens": np.array([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]])}


def with_a_mask_given(shape: list[Any] | None) -> onnx.ModelProto:
    proto = model(**SPELLINGS["mask"])
    mask = proto.graph.input[1]
    mask.CopyFrom(helper.make_tensor_value_info(mask.name, FLOAT, shape))
    return proto


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: model(**SPELLINGS["factor"]), 0),
        # A mask of each head may make NaN of one.
        (lambda: with_a_mask_given(["batch", 1, 1, "n"]), 0),
        (lambda: with_a_mask_given(["batch", HEADS, 1, "n"]), 1),
        (lambda: with_a_mask_given(["batch", "heads", 1, "n"]), 1),
        (lambda: with_a_mask_given(["batch", None, 1, "n"]), 1),
        (lambda: with_a_mask_given(None), 1),
    ],
)
def test_where_sums_are_needed(make: Any, expected: int, tmp_path: Path) -> None:
    assert sums(convert(make(), tmp_path)) == expected


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf])
def test_what_a_mask_of_all_heads_makes_nan_is_nan(value: float, tmp_path: Path) -> None:
    """Of the first sequence a row, of the second all, of the third none."""
    proto = with_a_mask_given(["batch", 1, "m", "n"])
    mask = np.zeros((3, 1, 6, 6), np.float32)
    mask[0, :, 2] = mask[1] = value
    done = convert(proto, tmp_path)
    assert sums(done) == 0
    feed = {"x": feeds()["x"], proto.graph.input[1].name: mask}
    (exact,), (found,) = run(proto, feed), run(done.path, feed)
    missing = np.isnan(exact)
    assert missing[0, 2].all() and missing[1].all() and not missing[2].any()
    np.testing.assert_array_equal(np.isnan(found), missing)


@pytest.mark.parametrize("excluded", ["q3", "k3", "v3"])
def test_float_products_are_not_taken_for_rows(excluded: str, tmp_path: Path) -> None:
    assert sums(convert(masked("chosen"), tmp_path, nodes_to_exclude=[excluded])) == 1


def test_keys_of_something_else(tmp_path: Path) -> None:
    """A key that is not finite may leave one head alone, if the values are."""
    proto = masked("chosen")
    (keys,) = (n for n in proto.graph.node if n.output[0] == "k3")
    keys.input[0] = "memory"
    shape = ["batch", "length", WIDTH]
    proto.graph.input.append(helper.make_tensor_value_info("memory", FLOAT, shape))
    assert sums(convert(proto, tmp_path)) == 2  # that of `memory` is one


@pytest.mark.parametrize("mask", MASKS)
def test_what_is_not_finite_reaches_the_output(mask: str, tmp_path: Path) -> None:
    proto = masked(mask)
    done = convert(proto, tmp_path)
    assert sums(done) == 0
    clean = run(done.path, feeds())[0]
    for value in (np.nan, np.inf, -np.inf):
        exact, found = run(proto, feeds(value))[0], run(done.path, feeds(value))[0]
        assert not np.isfinite(exact[1]).any()
        assert not np.isfinite(found[1]).any()
        np.testing.assert_array_equal(found[[0, 2]], clean[[0, 2]])
