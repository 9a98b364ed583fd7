"""Sums that look for a NaN in what an attention gives: only where one could hide there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.graphs import Converted, convert, run
from tests.native_target.test_attention_fusion import HEADS, QK, SPELLINGS, WIDTH, Step, model

MASKED: list[Step] = [QK, ("Mul", ["qk", "eighth"], "s"), ("Add", ["s", "bias"], "logits")]
LOWEST = float(np.finfo(np.float32).min)
# From `tokens`, int64 [batch, length], 1 where there is one, to `bias`.
MASKS: dict[str, list[Step]] = {
    "chosen": [
        ("Cast", ["tokens"], "flag", {"to": TensorProto.BOOL}),
        ("Unsqueeze", ["flag", "middle"], "flags"),
        ("Where", ["flags", "zero_float", "lowest"], "bias"),
    ],
    "computed": [
        ("Unsqueeze", ["tokens", "middle"], "token4"),
        ("Cast", ["token4"], "kept", {"to": TensorProto.FLOAT}),
        ("Sub", ["one_float", "kept"], "dropped"),
        ("Mul", ["dropped", "lowest"], "bias"),
    ],
}
CONSTANTS = {
    "middle": np.array([1, 2]),
    "zero_float": np.float32(0),
    "one_float": np.float32(1),
    "lowest": np.float32(LOWEST),
}


def masked(mask: str) -> onnx.ModelProto:
    """Self-attention under a mask that the graph makes of `tokens`."""
    proto = model([*MASKS[mask], *MASKED])
    graph = proto.graph
    del graph.input[1]
    graph.input.append(helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "n"]))
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()
    )
    return proto


def sums(done: Converted) -> int:
    """Beside that of the input `x`, of which nothing is known."""
    return done.ops.count("ReduceSum") - 1


def feeds(value: float | None = None) -> dict[str, Any]:
    """Three sequences of six; `value` in a token of the second that the mask hides."""
    x = np.random.default_rng(1).standard_normal((3, 6, WIDTH)).astype(np.float32)
    if value is not None:
        x[1, 4, 3] = value
    return {"x": x, "tokens": np.array([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]])}


@pytest.mark.parametrize("mask", MASKS)
def test_self_attention_needs_none(mask: str, tmp_path: Path) -> None:
    assert sums(convert(masked(mask), tmp_path)) == 0


def test_without_a_mask_neither(tmp_path: Path) -> None:
    assert sums(convert(model(**SPELLINGS["factor"]), tmp_path)) == 0


@pytest.mark.parametrize("heads", [1, HEADS, "heads", None])
def test_a_mask_of_each_head_may_make_nan_of_one(heads: int | str | None, tmp_path: Path) -> None:
    proto = model(**SPELLINGS["mask"])
    mask = proto.graph.input[1]
    shape = ["batch", heads, 1, "n"]
    mask.CopyFrom(helper.make_tensor_value_info(mask.name, TensorProto.FLOAT, shape))
    assert sums(convert(proto, tmp_path)) == (heads != 1)


def test_a_mask_of_unknown_rank(tmp_path: Path) -> None:
    proto = model(**SPELLINGS["mask"])
    proto.graph.input[1].type.tensor_type.ClearField("shape")
    assert sums(convert(proto, tmp_path)) == 1


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf])
def test_what_a_mask_of_all_heads_makes_nan_is_nan(value: float, tmp_path: Path) -> None:
    """Of the first sequence a row, of the second all, of the third none."""
    proto = model(**SPELLINGS["mask"])
    name = proto.graph.input[1].name
    shape = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1, "m", "n"])
    proto.graph.input[1].CopyFrom(shape)
    mask = np.zeros((3, 1, 6, 6), np.float32)
    mask[0, :, 2] = mask[1] = value
    done = convert(proto, tmp_path)
    assert sums(done) == 0
    feed = {"x": feeds()["x"], name: mask}
    (exact,), (found,) = run(proto, feed), run(done.path, feed)
    missing = np.isnan(exact)
    assert missing[0, 2].all() and missing[1].all() and not missing[2].any()
    np.testing.assert_array_equal(np.isnan(found), missing)


@pytest.mark.parametrize("excluded", ["q3", "k3", "v3"])
def test_float_products_are_not_taken_for_rows(excluded: str, tmp_path: Path) -> None:
    done = convert(masked("chosen"), tmp_path, nodes_to_exclude=[excluded])
    assert sums(done) == 1


def test_keys_and_values_of_something_else(tmp_path: Path) -> None:
    """A key that is not finite may leave one head alone, if the values are."""
    proto = masked("chosen")
    proto.graph.node[1].input[0] = "memory"
    shape = ["batch", "length", WIDTH]
    memory = helper.make_tensor_value_info("memory", TensorProto.FLOAT, shape)
    proto.graph.input.append(memory)
    assert sums(convert(proto, tmp_path)) == 2  # that of `memory` is one


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mask", MASKS)
def test_what_is_not_finite_reaches_the_output(mask: str, value: float, tmp_path: Path) -> None:
    proto = masked(mask)
    done = convert(proto, tmp_path)
    clean, found = (run(done.path, feeds(v))[0] for v in (None, value))
    exact = run(proto, feeds(value))[0]
    assert not np.isfinite(exact[1]).any()
    assert not np.isfinite(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2]], clean[[0, 2]])
