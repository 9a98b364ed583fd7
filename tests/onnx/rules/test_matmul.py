"""MatMul with a constant right operand of any rank, and of two activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.errors import NothingQuantizedError
from tests.graphs import (
    EXACT,
    FLOAT,
    INT8,
    PER_TENSOR,
    Array,
    assert_close,
    assert_near_float,
    convert,
    per_row,
    run,
    sizes,
    text,
    values,
    weight,
)

K, N, B = 48, 20, 3

SHAPES = {
    "x[K]-W[K,N]": ((K,), (K, N)),
    "x[M,K]-W[K,N]": ((5, K), (K, N)),
    "x[1,K]-W[K,N]": ((1, K), (K, N)),
    "x[B,M,K]-W[K,N]": ((2, 5, K), (K, N)),
    "x[A,B,M,K]-W[K,N]": ((2, 3, 5, K), (K, N)),
    "x[M,K]-W[K,1]": ((5, K), (K, 1)),
    "x[K]-W[K]": ((K,), (K,)),
    "x[M,K]-W[K]": ((5, K), (K,)),
    "x[B,M,K]-W[K]": ((2, 5, K), (K,)),
    "x[A,B,M,K]-W[K]": ((2, 3, 5, K), (K,)),
    "x[K]-W[B,K,N]": ((K,), (B, K, N)),
    "x[M,K]-W[B,K,N]": ((5, K), (B, K, N)),
    "x[B,M,K]-W[B,K,N]": ((B, 5, K), (B, K, N)),
    "x[1,M,K]-W[B,K,N]": ((1, 5, K), (B, K, N)),
    "x[B,M,K]-W[1,K,N]": ((B, 5, K), (1, K, N)),
    "x[A,B,M,K]-W[B,K,N]": ((2, B, 5, K), (B, K, N)),
    "x[M,K]-W[A,B,K,N]": ((5, K), (2, B, K, N)),
    "x[A,B,M,K]-W[A,B,K,N]": ((2, B, 5, K), (2, B, K, N)),
    "x[K]-W[A,B,K,N]": ((K,), (2, B, K, N)),
}


def of(shape: tuple[Any, ...]) -> str:
    """The type in ONNX's text."""
    return f"float[{', '.join(map(str, shape))}]"


def matmul(x: tuple[Any, ...], w: Array, opset: int = 17) -> onnx.ModelProto:
    return text("[layer] y = MatMul (x, w)", f"{of(x)} x", weights={"w": w}, opset=opset)


@pytest.mark.parametrize(("x_shape", "w_shape"), SHAPES.values(), ids=SHAPES.keys())
def test_ranks(tmp_path: Path, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> None:
    w = weight(*w_shape)
    size = sizes(w) if w.ndim > 1 else 1.0
    if len(x_shape) == 1 and w.ndim > 2:
        size = size[..., 0, :]  # type: ignore[index]
    model, feeds = matmul(x_shape, w), {"x": values(*x_shape)}
    done = convert(model, tmp_path, op_types_to_quantize=["MatMul"])  # one output has to be asked
    assert done.outcome("layer").quantized
    actual, expected = run(done.path, feeds)[0], run(model, feeds)[0]
    assert_close(actual, expected, INT8, size)
    assert_close(actual, per_row(done, feeds["x"], feeds).astype(np.float32), EXACT, size)


@pytest.mark.parametrize(
    ("x_shape", "opset"),
    [((1024,), 12), ((4, 1500), 10), ((1024,), 13), ((4, 1500), 18), ((2, 3, 2048), 21)],
)
def test_long_rows(tmp_path: Path, x_shape: tuple[int, ...], opset: int) -> None:
    """From 1024 inputs on another form is drawn, from opset 13 on."""
    w = weight(x_shape[-1], N)
    model = matmul(x_shape, w, opset)
    feeds = {"x": values(*x_shape)}
    done = convert(model, tmp_path)
    assert ("ConstantOfShape" in done.ops) == ("Reciprocal" not in done.ops) == (opset >= 13)
    actual, expected = run(done.path, feeds)[0], run(model, feeds)[0]
    assert_close(actual, expected, INT8, sizes(w))
    assert_close(actual, per_row(done, feeds["x"], feeds).astype(np.float32), EXACT, sizes(w))


def test_one_zero_point_for_all_channels(tmp_path: Path) -> None:
    """Products per row take it as a number, where the channels' are the same."""
    model = matmul((3, K), weight(K, N))
    for recipe, ndim in (("int8", 0), ("int8-accurate", 1)):
        done = convert(model, tmp_path, recipe=recipe)
        stored = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
        assert stored["w_zero_point"].ndim == ndim


SELECTED = "keep = Greater (s, zero) some = Compress <axis = 0> (x, keep)"
AFTER = {
    "x": "h = Identity (some)",
    "Relu": "h = Relu (some)",
    "LayerNormalization": "h = LayerNormalization (some, ones)",
}


@pytest.mark.parametrize(
    ("k", "opset", "after"),
    [
        (K, 10, "x"),
        (K, 13, "Relu"),
        (K, 18, "LayerNormalization"),
        (1500, 10, "Relu"),
        (1500, 13, "x"),
        (1500, 18, "Relu"),
        (1500, 18, "LayerNormalization"),
    ],
)
def test_a_selection_may_select_nothing(tmp_path: Path, k: int, opset: int, after: str) -> None:
    """Such as the boxes that a detector found: ONNX Runtime's reductions of nothing are odd."""
    w = weight(k, N)
    weights = {"w": w, "zero": np.float32(0), "ones": np.ones(k, np.float32)}
    body = f"{SELECTED} {AFTER[after]} y = MatMul (h, w)"
    model = text(body, f"float[n, 3, {k}] x, float[n] s", weights=weights, opset=opset)
    done = convert(model, tmp_path)
    for scores in ([-1.0, -1.0], [1.0, -1.0]):
        feeds = {"x": values(2, 3, k), "s": np.array(scores, np.float32)}
        expected = run(model, feeds)[0]
        assert expected.shape == (scores.count(1.0), 3, N)
        assert_close(run(done.path, feeds)[0], expected, INT8, sizes(w))


def test_constant_left_operand_stays_float(tmp_path: Path) -> None:
    weights = {"w": weight(8, 16), "v": weight(K, N)}
    model = text("[left] h = MatMul (w, x) y = MatMul (h, v)", f"float[16, {K}] x", weights=weights)
    done = convert(model, tmp_path)
    assert not done.outcome("left").quantized
    assert "left operand" in done.outcome("left").reason
    assert_near_float(done, model, {"x": values(16, K)}, INT8)


def test_weight_without_elements_stays_float(tmp_path: Path) -> None:
    weights = {"w": np.zeros((K, 0), np.float32), "v": weight(K, N)}
    body, outs = "[empty] y = MatMul (x, w) z = MatMul (x, v)", "float[] y, float[] z"
    done = convert(text(body, f"float[2, {K}] x", outs, weights), tmp_path)
    assert "no elements" in done.outcome("empty").reason
    assert run(done.path, {"x": values(2, K)})[0].shape == (2, 0)


def test_more_inputs_than_int32_can_sum_stay_float(tmp_path: Path) -> None:
    model = matmul((1, 70_000), np.ones((70_000, 1), np.float32))
    with pytest.raises(NothingQuantizedError, match="70000 inputs"):
        convert(model, tmp_path)


def test_extreme_sums_do_not_overflow(tmp_path: Path) -> None:
    """65,536 products of the largest integers of one sign: 65536 * 127 * 127 fits into int32."""
    k = 65_536
    model = matmul((1, k), np.ones((k, 1), np.float32))
    x = np.full((1, k), 3.0, np.float32)
    actual = run(convert(model, tmp_path).path, {"x": x})[0]
    np.testing.assert_allclose(actual, [[3.0 * k]], rtol=1e-6)


def activations(a: tuple[int, ...], b: tuple[int, ...]) -> onnx.ModelProto:
    return text("[layer] y = MatMul (a, b)", f"{of(a)} a, {of(b)} b")


def test_two_activations_stay_float_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(NothingQuantizedError, match="two activations"):
        convert(activations((4, K), (K, N)), tmp_path)


ALL: dict[str, Any] = {"extra_options": {"MatMulConstBOnly": False}}


@pytest.mark.parametrize(
    ("a", "b", "options", "op"),
    [
        ((4, K), (K, N), ALL, "MatMulIntegerToFloat"),
        ((2, 4, K), (K, N), ALL, "MatMulIntegerToFloat"),
        ((2, 3, 4, K), (2, 3, K, N), {"nodes_to_quantize": ["layer"]}, "MatMulIntegerToFloat"),
        ((K,), (K, N), {"nodes_to_quantize": ["layer"]}, "MatMulIntegerToFloat"),
        ((2, 3, 4, K), (2, 3, K, N), ALL | {"recipe": "int8-per-tensor"}, "MatMulInteger"),
        ((K,), (K, N), ALL | {"recipe": "int8-per-tensor"}, "MatMulInteger"),
        ((2, 4, K), (K, N), ALL | {"quant_format": "qdq"}, "MatMul"),
        ((2, 3, 4, K), (2, 3, K, N), ALL | {"quant_format": "qdq"}, "MatMul"),
    ],
    ids=str,
)
def test_two_activations_when_asked_for(
    tmp_path: Path, a: tuple[int, ...], b: tuple[int, ...], options: dict[str, Any], op: str
) -> None:
    model, feeds = activations(a, b), {"a": values(*a), "b": values(*b, seed=9)}
    done = convert(model, tmp_path, **options)
    assert op in done.ops
    assert "DynamicQuantizeLinear" in done.ops
    assert_near_float(done, model, feeds, PER_TENSOR)


def test_two_activations_at_opset_10_stay_float(tmp_path: Path) -> None:
    """The right operand needs DynamicQuantizeLinear, which is of opset 11."""
    body, inputs = "h = MatMul (x, w) [both] y = MatMul (h, b)", f"float[4, {K}] x, float[{N}, 8] b"
    model = text(body, inputs, weights={"w": weight(K, N)}, opset=10)
    model.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, (4, N)))
    done = convert(model, tmp_path, **ALL)
    assert "DynamicQuantizeLinear" in done.outcome("both").reason
    assert_near_float(done, model, {"x": values(4, K), "b": values(N, 8, seed=5)}, INT8)
