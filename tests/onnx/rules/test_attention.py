"""com.microsoft.Attention: its projections in int8, the rest in float."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from octavo.errors import NothingQuantizedError
from tests.graphs import (
    EXACT,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    MS,
    PER_TENSOR,
    Array,
    assert_close,
    assert_near_float,
    build,
    convert,
    error,
    node,
    per_row,
    run,
    values,
    weight,
)

B, S, H, HEADS = 2, 7, 32, 4
SIZE = H // HEADS


def attention(
    inputs: Mapping[str, tuple[int, Any]],
    names: list[str],
    *,
    outs: list[str] | None = None,
    sizes: tuple[int, int, int] = (H, H, H),
    bias: bool = True,
    w: Array | None = None,
    **attributes: Any,
) -> Any:
    """x [B, S, H]; `names` are the inputs after the bias."""
    stored = weight(H, sum(sizes), spread=False) if w is None else w
    weights = {"w": stored}
    if bias:
        weights["b"] = 0.3 * values(sum(sizes), seed=4)
    if sizes != (H, H, H):
        attributes["qkv_hidden_sizes"] = list(sizes)
    given = ["x", "w", "b" if bias else "", *names]
    attributes |= {"name": "attention", "domain": MS, "num_heads": HEADS}
    layer = node("Attention", given, outs or ["y"], **attributes)
    return build([layer], {"x": (FLOAT, (B, S, H)), **inputs}, outs or ["y"], weights)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def heads(x: Array) -> Array:
    return np.asarray(x.reshape(B, S, HEADS, -1).transpose(0, 2, 1, 3))


def numpy_attention(projected: Array, sizes: tuple[int, int, int], mask: Array | None) -> Array:
    """float64 attention over projections [B, S, Q + K + V]."""
    q, k, v = (heads(p) for p in np.split(projected, np.cumsum(sizes)[:2], axis=-1))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask[:, None, None, :] == 1, scores, -10000.0)
    return np.asarray((softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(B, S, -1))


MASK = np.ones((B, S), np.int32)
MASK[1, 4:] = 0


@pytest.mark.parametrize(
    ("sizes", "bias", "masked"),
    [
        ((H, H, H), True, True),
        ((H, H, H), False, False),
        ((H, H, 2 * H), True, False),
        ((H, H, 2 * H), False, True),
        ((2 * H, 2 * H, H), True, True),
        ((2 * H, 2 * H, H), True, False),
    ],
)
def test_projections_per_row(
    tmp_path: Path, sizes: tuple[int, int, int], bias: bool, masked: bool
) -> None:
    inputs = {"m": (INT32, (B, S))} if masked else {}
    model = attention(inputs, ["m"] if masked else [], sizes=sizes, bias=bias)
    feeds: dict[str, Array] = {"x": values(B, S, H)}
    if masked:
        feeds["m"] = MASK
    done = convert(model, tmp_path)
    assert "MultiHeadAttention" in done.ops
    assert "QAttention" not in done.ops
    actual = run(done.path, feeds)[0]
    w = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    exact = feeds["x"].astype(np.float64) @ w["w"]
    if bias:  # without one, ONNX Runtime's float operator crashes
        exact = exact + w["b"]
        assert error(run(model, feeds)[0], numpy_attention(exact, sizes, feeds.get("m"))) < EXACT
    assert error(actual, numpy_attention(exact, sizes, feeds.get("m"))) <= INT8
    projected = per_row(done, feeds["x"], feeds)
    if bias:
        projected = projected + w["b"]
    by_rule = numpy_attention(projected, sizes, feeds.get("m"))
    assert error(actual, by_rule) <= 5 * EXACT


@pytest.mark.parametrize("attributes", [{"scale": 0.05}, {"mask_filter_value": -1.0}], ids=str)
def test_attributes_are_kept(tmp_path: Path, attributes: dict[str, float]) -> None:
    """Each of them changes the output far more than int8 does."""
    inputs = {"m": (INT32, (B, S))}
    model = attention(inputs, ["m"], **attributes)
    feeds = {"x": 3 * values(B, S, H), "m": MASK}
    expected = run(model, feeds)[0]
    assert error(run(attention(inputs, ["m"]), feeds)[0], expected) > 10 * INT8
    assert_close(run(convert(model, tmp_path).path, feeds)[0], expected, INT8)


FUSED: dict[str, tuple[dict[str, Any], list[str], dict[str, Any], dict[str, Array], str]] = {
    "causal": ({}, [], {"unidirectional": 1}, {}, "causal"),
    "mask[B]": ({"m": (INT32, (B,))}, ["m"], {}, {"m": np.array([S, 4], np.int32)}, "mask"),
    "mask[2B]": (
        {"m": (INT32, (2 * B,))}, ["m"], {}, {"m": np.array([S, 5, 0, 1], np.int32)}, "mask",
    ),
    "mask[B,S,S]": (
        {"m": (INT32, (B, S, S))}, ["m"], {}, {"m": np.tril(np.ones((B, S, S), np.int32))}, "mask",
    ),
    "mask-of-unknown-rank": ({"m": (INT32, None)}, ["m"], {}, {"m": MASK}, "mask"),
    "past": (
        {"p": (FLOAT, (2, B, HEADS, 3, SIZE))}, ["", "p"], {"unidirectional": 1},
        {"p": values(2, B, HEADS, 3, SIZE, seed=11)}, "past",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FUSED)
def test_other_forms_stay_fused_per_tensor(tmp_path: Path, form: str) -> None:
    inputs, names, attributes, more, why = FUSED[form]
    outs = ["y", "present"] if "p" in inputs else ["y"]
    model = attention(inputs, names, outs=outs, **attributes)
    feeds = {"x": values(B, S, H), **more}
    done = convert(model, tmp_path)
    assert done.ops == ["DynamicQuantizeLinear", "QAttention"]
    assert any(why in note for note in done.outcome("attention").notes)
    assert_near_float(done, model, feeds, PER_TENSOR)


def test_present_alone_keeps_the_operator_whole(tmp_path: Path) -> None:
    """The second output is a graph output that no node reads."""
    model = attention({}, [], outs=["y", "present"])
    feeds = {"x": values(B, S, H)}
    done = convert(model, tmp_path)
    assert_near_float(done, model, feeds, PER_TENSOR)


# Per tensor as in ONNX Runtime's own quantize_dynamic; DynamicQuantizeLinear is of opset 11.
REFUSED: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "sizes": ({"sizes": (H, H, 2 * H), "unidirectional": 1}, 17, {}),
    "sizes .*": ({"sizes": (H, H, 2 * H)}, 17, {"recipe": "int8-per-tensor"}),
    "no bias": ({"bias": False, "unidirectional": 1}, 17, {}),
    "DynamicQuantizeLinear": ({"unidirectional": 1}, 10, {}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_form_stays_float(tmp_path: Path, why: str) -> None:
    attributes, opset, options = REFUSED[why]
    model = attention({}, [], **attributes)
    model.opset_import[0].version = opset
    with pytest.raises(NothingQuantizedError, match=why):
        convert(model, tmp_path, **options)


def test_an_attention_bias_stays_float_or_right(tmp_path: Path) -> None:
    model = attention({"e": (FLOAT, (B, HEADS, S, S))}, ["", "", "e"])
    feeds = {"x": values(B, S, H), "e": values(B, HEADS, S, S, seed=5)}
    done = convert(model, tmp_path, allow_nothing=True)
    assert not done.outcome("attention").quantized
    assert "bias" in done.outcome("attention").reason
    assert np.array_equal(run(done.path, feeds)[0], run(model, feeds)[0])


def test_float16_stays_float_with_a_reason(tmp_path: Path) -> None:
    model = build(
        [node("Attention", ["x", "w", "b"], ["y"], domain=MS, num_heads=HEADS)],
        {"x": (FLOAT16, (B, S, H))},
        {"y": (FLOAT16, None)},
        {"w": weight(H, 3 * H).astype(np.float16), "b": values(3 * H).astype(np.float16)},
    )
    with pytest.raises(NothingQuantizedError, match="16 bits"):
        convert(model, tmp_path)


@pytest.mark.parametrize("opset", [10, 12, 13, 18])
def test_opsets(tmp_path: Path, opset: int) -> None:
    model = attention({"m": (INT32, (B, S))}, ["m"])
    model.opset_import[0].version = opset
    feeds = {"x": values(B, S, H), "m": MASK}
    done = convert(model, tmp_path)
    assert done.report.opset == opset
    assert_close(run(done.path, feeds)[0], run(model, feeds)[0], INT8)
