"""MatMul with a constant right operand of any rank, and of two activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from octavo.errors import NothingQuantizedError
from tests.graphs import (
    EXACT,
    FLOAT,
    INT8,
    PER_TENSOR,
    assert_close,
    build,
    convert,
    node,
    per_row,
    run,
    sizes,
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


def matmul(x: tuple[int, ...], w: Any, opset: int = 17) -> Any:
    return build(
        [node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, x)}, ["y"], {"w": w}, opset=opset
    )


@pytest.mark.parametrize(("x_shape", "w_shape"), SHAPES.values(), ids=SHAPES.keys())
def test_ranks(tmp_path: Path, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> None:
    w = weight(*w_shape)
    size = sizes(w) if w.ndim > 1 else 1.0
    if len(x_shape) == 1 and w.ndim > 2:
        size = size[..., 0, :]  # type: ignore[index]
    model, feeds = matmul(x_shape, w), {"x": values(*x_shape)}
    done = convert(model, tmp_path, op_types_to_quantize=["MatMul"])  # one output has to be asked
    assert done.outcome("y_node").quantized
    actual, expected = run(done.path, feeds)[0], run(model, feeds)[0]
    assert_close(actual, expected, INT8, size)
    assert_close(actual, per_row(done, feeds["x"], feeds).astype(np.float32), EXACT, size)


@pytest.mark.parametrize("x_shape", [(1024,), (4, 1500), (2, 3, 2048)], ids=str)
@pytest.mark.parametrize("opset", [10, 12, 13, 18, 21])
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


@pytest.mark.parametrize("k", [K, 1500], ids=["narrow", "wide"])
def test_rows_of_any_number(tmp_path: Path, k: int) -> None:
    w = weight(k, N)
    model = matmul(("a", "b", k), w)
    done = convert(model, tmp_path)
    for shape in ((1, 1, k), (3, 7, k), (1, 200, k)):
        x = values(*shape)
        expected = run(model, {"x": x})[0]
        assert_close(run(done.path, {"x": x})[0], expected, INT8, sizes(w))


@pytest.mark.parametrize("k", [K, 1500], ids=["narrow", "wide"])
@pytest.mark.parametrize("opset", [10, 13, 18])
@pytest.mark.parametrize("after", ["x", "Relu", "LayerNormalization"])
def test_a_selection_may_select_nothing(tmp_path: Path, k: int, opset: int, after: str) -> None:
    """Such as the boxes that a detector found: ONNX Runtime's reductions of nothing are odd."""
    w, ones = weight(k, N), np.ones(k, np.float32)
    selected = [
        node("Greater", ["s", "zero"], ["keep"]),
        node("Compress", ["x", "keep"], ["some"], axis=0),
    ]
    if after == "x":
        selected[1].output[0] = "h"
    elif after == "Relu":
        selected.append(node("Relu", ["some"], ["h"]))
    else:
        selected.append(node("LayerNormalization", ["some", "ones"], ["h"]))
    model = build(
        [*selected, node("MatMul", ["h", "w"], ["y"])],
        {"x": (FLOAT, ("n", 3, k)), "s": (FLOAT, ("n",))},
        ["y"],
        {"w": w, "zero": np.float32(0), "ones": ones},
        opset=opset,
    )
    done = convert(model, tmp_path)
    for scores in ([-1.0, -1.0], [1.0, -1.0]):
        feeds = {"x": values(2, 3, k), "s": np.array(scores, np.float32)}
        expected = run(model, feeds)[0]
        assert expected.shape == (scores.count(1.0), 3, N)
        assert_close(run(done.path, feeds)[0], expected, INT8, sizes(w))


def test_one_input_only(tmp_path: Path) -> None:
    """K = 1: every row is its own maximum, so that only the weight is rounded."""
    w = weight(1, 64, spread=False)
    model = matmul((9, 1), w)
    x = values(9, 1)
    actual = run(convert(model, tmp_path).path, {"x": x})[0]
    assert_close(actual, x @ w, EXACT, np.abs(w[0]))  # one weight a channel: exact too


def test_constant_left_operand_stays_float(tmp_path: Path) -> None:
    model = build(
        [node("MatMul", ["w", "x"], ["y"]), node("MatMul", ["y", "v"], ["z"])],
        {"x": (FLOAT, (16, K))},
        ["z"],
        {"w": weight(8, 16), "v": weight(K, N)},
    )
    done = convert(model, tmp_path)
    assert not done.outcome("y_node").quantized
    assert "left operand" in done.outcome("y_node").reason
    feeds = {"x": values(16, K)}
    assert_close(run(done.path, feeds)[0], run(model, feeds)[0], INT8)


def test_weight_without_elements_stays_float(tmp_path: Path) -> None:
    model = build(
        [node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["x", "v"], ["z"])],
        {"x": (FLOAT, (2, K))},
        ["y", "z"],
        {"w": np.zeros((K, 0), np.float32), "v": weight(K, N)},
    )
    done = convert(model, tmp_path)
    assert "no elements" in done.outcome("y_node").reason
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


def activations(a: tuple[int, ...], b: tuple[int, ...], opset: int = 17) -> Any:
    return build(
        [node("MatMul", ["a", "b"], ["y"])],
        {"a": (FLOAT, a), "b": (FLOAT, b)},
        ["y"],
        opset=opset,
    )


def test_two_activations_stay_float_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(NothingQuantizedError, match="two activations"):
        convert(activations((4, K), (K, N)), tmp_path)


@pytest.mark.parametrize(
    ("a", "b"),
    [((4, K), (K, N)), ((2, 3, 4, K), (2, 3, K, N)), ((K,), (K, N)), ((2, 4, K), (K, N))],
    ids=str,
)
@pytest.mark.parametrize(
    ("options", "op"),
    [
        ({"extra_options": {"MatMulConstBOnly": False}}, "MatMulIntegerToFloat"),
        ({"nodes_to_quantize": ["y_node"]}, "MatMulIntegerToFloat"),
        (
            {"extra_options": {"MatMulConstBOnly": False}, "recipe": "int8-per-tensor"},
            "MatMulInteger",
        ),
        ({"extra_options": {"MatMulConstBOnly": False}, "quant_format": "qdq"}, "MatMul"),
    ],
    ids=["MatMulConstBOnly", "by-name", "per-tensor", "qdq"],
)
def test_two_activations_when_asked_for(
    tmp_path: Path, a: tuple[int, ...], b: tuple[int, ...], options: dict[str, Any], op: str
) -> None:
    model, feeds = activations(a, b), {"a": values(*a), "b": values(*b, seed=9)}
    done = convert(model, tmp_path, **options)
    assert op in done.ops
    assert "DynamicQuantizeLinear" in done.ops
    assert_close(run(done.path, feeds)[0], run(model, feeds)[0], PER_TENSOR)


def test_two_activations_at_opset_10_stay_float(tmp_path: Path) -> None:
    """The right operand needs DynamicQuantizeLinear, which is of opset 11."""
    model = build(
        [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "b"], ["y"])],
        {"x": (FLOAT, (4, K)), "b": (FLOAT, (N, 8))},
        ["y"],
        {"w": weight(K, N)},
        opset=10,
    )
    model.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, (4, N)))
    done = convert(model, tmp_path, extra_options={"MatMulConstBOnly": False})
    assert "DynamicQuantizeLinear" in done.outcome("y_node").reason
    feeds = {"x": values(4, K), "b": values(N, 8, seed=5)}
    assert_close(run(done.path, feeds)[0], run(model, feeds)[0], INT8)
