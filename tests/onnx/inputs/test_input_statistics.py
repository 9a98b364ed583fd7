"""Mean squares and products of what comes to layers, and weights of ONNX files rounded by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import octavo.onnx
from octavo.core.metrics import relative_error
from octavo.errors import OptionError
from octavo.onnx.input_statistics import InputStatistics
from tests.graphs import text

SIZE = 128


def _model(dtype: Any = np.float32) -> onnx.ModelProto:
    """Two layers over one input, one behind them, and one in a branch; inputs of unlike sizes."""
    rng = np.random.default_rng(0)
    shapes = {"left": (SIZE, SIZE), "right": (SIZE, SIZE), "last": (192, SIZE), "inner": (192, 192)}
    weights: dict[str, Any] = {
        n: rng.normal(size=shape).astype(dtype) for n, shape in shapes.items()
    }
    kind = "float" if dtype is np.float32 else "float16"
    body = f"""[left] a = MatMul (x, left)
        [right] b = MatMul (x, right)
        h = Mul (a, b)
        f = Reshape (h, flat)
        [last] y = Gemm <transB = 1> (f, last)
        z = If (on) <then_branch = t () => ({kind}[] o) {{ [inner] o = MatMul (y, inner) }},
                     else_branch = e () => ({kind}[] o) {{ o = Identity (y) }}>"""
    weights["flat"] = np.array([-1, SIZE])
    return text(body, f"{kind}[batch, rows, {SIZE}] x, bool on", f"{kind}[] z", weights)


def _feeds(count: int, seed: int = 1, dtype: Any = np.float32) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(7).normal(size=(12, SIZE)) * np.logspace(-1, 1, SIZE)
    return [
        {"x": (rng.normal(size=(2, 3 + i, 12)) @ mixing).astype(dtype), "on": np.array(False)}
        for i in range(count)
    ]


@pytest.mark.parametrize("products", [False, True])
def test_statistics_are_means_over_all_rows(products: bool) -> None:
    model, feeds = _model(), _feeds(3)
    names = ["left", "right", "last", "inner"]
    found = InputStatistics(model, names, feeds, products=products)
    rows = np.concatenate([feed["x"].reshape(-1, SIZE) for feed in feeds]).astype(np.float64)
    expected = rows.T @ rows / len(rows) if products else np.square(rows).mean(0)
    left, right, last = (found.of(name) for name in ("left", "right", "last"))
    assert left is not None
    assert right is not None
    assert last is not None
    np.testing.assert_allclose(left, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_array_equal(left, right)
    assert last.shape == expected.shape
    assert found.of("inner") is None
    assert found.of("unknown") is None
    assert found.notes({"left", "right", "last"})[1].endswith("comes to 1 layer: inner")


def _error(tmp_path: Path, target: str, **how: Any) -> tuple[float, list[str]]:
    model, recipe = _model(), "int4"
    report = octavo.onnx.quantize_dynamic(
        model, tmp_path / "m.onnx", recipe=recipe, target=target, **how
    )
    (feed,) = _feeds(1, seed=9)
    exact = onnx.reference.ReferenceEvaluator(model).run(None, feed)[0]
    found = octavo.onnx.session(tmp_path / "m.onnx").run(None, feed)[0]
    return relative_error(np.asarray(exact), np.asarray(found)), list(report.notes)


@pytest.mark.parametrize("target", ["native", "portable"])
def test_samples_lower_the_error_and_feedback_lowers_it_further(
    tmp_path: Path, target: str
) -> None:
    plain, _ = _error(tmp_path, target)
    squares, notes = _error(tmp_path, target, check_inputs=_feeds(8))
    assert any("3 layers were rounded by the mean squares" in note for note in notes)
    assert any("what comes to 1 layer: inner" in note for note in notes)
    fed_back, notes = _error(tmp_path, target, check_inputs=_feeds(8), error_feedback=True)
    assert any("3 layers were rounded with error feedback, of 8 given" in n for n in notes)
    assert squares < 0.95 * plain
    assert fed_back < 0.9 * squares


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"error_feedback": True}, "give check_inputs"),
        ({"error_feedback": True, "check_inputs": _feeds(1)}, "changes nothing"),
        ({"verify": False, "check_inputs": _feeds(1)}, "leave one of them out"),
    ],
)
def test_feedback_and_inputs_that_would_change_nothing_are_refused(
    tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(OptionError, match=named):
        octavo.onnx.quantize_dynamic(_model(), tmp_path / "m.onnx", **options)


def test_half_precision_has_statistics_too() -> None:
    found = InputStatistics(
        _model(np.float16), ["left"], _feeds(2, dtype=np.float16), products=False
    ).of("left")
    assert found is not None
    assert found.dtype == np.float32


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("kind", [np.int64, np.bool_, np.float32])
def test_padding_does_not_count_where_rows_are_tokens(kind: Any, products: bool) -> None:
    model = _model()
    given = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    mask = helper.make_tensor_value_info("attention_mask", given, ["batch", "tokens"])
    model.graph.input.append(mask)
    seen = np.array([[1, 1, 0], [1, 0, 0]])
    (feed,) = _feeds(1)
    assert feed["x"].shape[:2] == seen.shape
    pooled = {**_feeds(2)[1], "attention_mask": seen.astype(kind)}  # rows are no tokens: all count
    feeds = [{**feed, "attention_mask": seen.astype(kind)}, pooled]
    rows = np.concatenate([feed["x"][seen == 1], pooled["x"].reshape(-1, SIZE)]).astype(np.float64)
    expected = rows.T @ rows / len(rows) if products else np.square(rows).mean(0)
    found = InputStatistics(model, ["left"], feeds, products=products).of("left")
    assert found is not None
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("products", [False, True])
def test_a_weight_of_two_layers_has_statistics_of_both_inputs(products: bool) -> None:
    w = np.random.default_rng(3).normal(size=(SIZE, SIZE)).astype(np.float32)
    body = "[first] a = MatMul (x, w) r = Relu (a) [second] y = MatMul (r, w)"
    model = text(body, f"float[batch, rows, {SIZE}] x", weights={"w": w})
    feeds = [{"x": feed["x"]} for feed in _feeds(2)]
    found = InputStatistics(model, ["first", "second"], feeds, products=products)
    x = np.concatenate([feed["x"].reshape(-1, SIZE) for feed in feeds])
    rows = np.concatenate([x, np.maximum(x @ w, 0)]).astype(np.float64)
    expected = rows.T @ rows / len(rows) if products else np.square(rows).mean(0)
    mean = found.of("w")
    assert mean is not None
    np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    (note,) = found.notes({"w"})
    assert note.startswith("weights of 2 layers")


def test_a_weight_that_is_asked_for_again_has_the_same_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("octavo.onnx.input_statistics._ROOM", 1)  # one weight at a time
    found = InputStatistics(_model(), ["left", "last"], _feeds(1), products=True)
    before = found.of("left")
    assert before is not None
    assert found.of("last") is not None
    again = found.of("left")
    assert again is not None
    np.testing.assert_array_equal(again, before)


def test_inputs_without_a_check_are_for_rounding_alone(tmp_path: Path) -> None:
    _, notes = _error(tmp_path, "portable", check_inputs=_feeds(1), verify=False)
    assert any("rounded by the mean squares" in note for note in notes)
