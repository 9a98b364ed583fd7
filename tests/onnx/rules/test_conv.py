"""Conv as ConvInteger, a scale an image, when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from octavo.errors import NothingQuantizedError
from tests.graphs import (
    EXACT,
    FLOAT,
    FLOAT16,
    INT8,
    Array,
    assert_close,
    build,
    convert,
    error,
    integer_tensors,
    node,
    run,
    text,
    values,
    weight,
)
from tests.onnx.references.conv import reference_portable as reference

ASKED = {"op_types_to_quantize": ["Conv"]}
C, M, B = 8, 12, 3


def filters(*shape: int) -> Array:
    """[M, C/group, k...]; output channels differ in size a hundredfold."""
    flat = weight(shape[0], int(np.prod(shape[1:])), axis=0, spread=True)
    return np.asarray(flat.reshape(shape) / np.sqrt(np.prod(shape[1:]) / shape[0]), np.float32)


def conv(
    x: tuple[Any, ...],
    w: Array,
    bias: bool = False,
    *,
    dtype: int = FLOAT,
    opset: int = 17,
    **attributes: Any,
) -> onnx.ModelProto:
    kind = np.float16 if dtype == FLOAT16 else np.float32
    weights = {"w": w.astype(kind), "b": (0.1 * values(w.shape[0], seed=3)).astype(kind)}
    names = ["x", "w", "b"] if bias else ["x", "w"]
    kept = {name: weights[name] for name in names[1:]}
    layer = node("Conv", names, ["y"], **attributes)
    return build([layer], {"x": (dtype, x)}, {"y": (dtype, None)}, kept, opset)


def per_channel_size(w: Array, rank: int) -> Array:
    """How large each output channel is."""
    size = np.sqrt(np.square(w.astype(np.float64)).sum(axis=tuple(range(1, w.ndim))))
    return np.asarray(size.reshape(1, -1, *[1] * (rank - 2)))


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((B, C, 20), (M, C, 3), {}),
    "1-D-strides": ((B, C, 21), (M, C, 4), {"strides": [2], "pads": [1, 2]}),
    "2-D": ((B, C, 9, 7), (M, C, 3, 3), {}),
    "1x1": ((B, C, 5, 5), (M, C, 1, 1), {}),
    "pads": ((B, C, 9, 7), (M, C, 3, 3), {"pads": [1, 2, 0, 1]}),
    "same": ((B, C, 9, 7), (M, C, 3, 3), {"auto_pad": "SAME_UPPER"}),
    "strides": ((B, C, 9, 8), (M, C, 3, 2), {"strides": [2, 3]}),
    "dilations": ((B, C, 12, 12), (M, C, 3, 3), {"dilations": [2, 3]}),
    "groups": ((B, C, 9, 7), (M, C // 4, 3, 3), {"group": 4}),
    "depthwise": ((B, C, 9, 7), (C, 1, 3, 3), {"group": C, "pads": [1, 1, 1, 1]}),
    "depthwise-1-D": ((B, C, 30), (C, 1, 5), {"group": C}),
    "3-D": ((B, 2, 5, 6, 7), (M, 2, 3, 3, 3), {}),
    "one-image": ((1, C, 9, 7), (M, C, 3, 3), {}),
    "one-channel": ((B, 1, 9, 7), (M, 1, 3, 3), {}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(tmp_path: Path, name: str) -> None:
    """Every second one has a bias."""
    x, w, attributes = SHAPES[name]
    bias = list(SHAPES).index(name) % 2 == 0
    stored = filters(*w)
    model = conv(x, stored, bias, **attributes)
    feeds = {"x": values(*x)}
    done = convert(model, tmp_path, **ASKED)
    assert "ConvInteger" in done.ops
    size = per_channel_size(stored, len(x))
    added = 0.1 * values(w[0], seed=3).reshape(size.shape) if bias else 0.0
    actual, expected = run(done.path, feeds)[0], run(model, feeds)[0]
    assert actual.dtype == np.float32
    # Few numbers a sum: their noise is closer to the bound than that of long rows.
    assert error((actual - added) / size, (expected - added) / size) <= 1.5 * INT8


def test_follows_the_rules_reference(tmp_path: Path) -> None:
    w = filters(M, C, 1, 1)
    x = values(B, C, 6, 5)
    done = convert(conv(x.shape, w), tmp_path, **ASKED)
    found = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    q = found["w_quantized"].astype(np.int32) - found["w_zero_point"].astype(np.int32)
    assert found["w_quantized"].dtype == np.uint8  # ONNX Runtime's int8 filters are slow
    by_rule = reference(x.reshape(B, C, -1), q.reshape(M, C), found["w_scale"].reshape(M))
    actual = run(done.path, {"x": x})[0].reshape(B, M, -1)
    size = per_channel_size(w, 3)
    assert error(actual / size, by_rule / size) <= EXACT


def test_stays_float_unless_asked_for(tmp_path: Path) -> None:
    model = conv((B, C, 9, 7), filters(M, C, 3, 3))
    with pytest.raises(NothingQuantizedError, match="no faster than its float one"):
        convert(model, tmp_path)
    for asked in (ASKED, {"nodes_to_quantize": ["y_node"]}):
        assert "ConvInteger" in convert(model, tmp_path, **asked).ops


@pytest.mark.parametrize("recipe", ["int8", "int8-accurate", "int8-block"])
def test_asking_among_other_layers(tmp_path: Path, recipe: str) -> None:
    w = filters(M, C, 3, 3)
    body = """[h_node] h = Conv <pads = [1, 1, 1, 1]> (x, w)
        r = Relu (h)
        p = GlobalAveragePool (r)
        f = Flatten (p)
        [y_node] y = Gemm (f, v)"""
    model = text(body, f"float[{B}, {C}, 9, 7] x", weights={"w": w, "v": weight(M, 40)})
    done = convert(model, tmp_path, recipe=recipe)
    assert not done.outcome("h_node").quantized
    assert done.outcome("y_node").quantized
    done = convert(model, tmp_path, recipe=recipe, op_types_to_quantize=["Conv", "Gemm"])
    assert done.outcome("h_node").quantized
    feeds = {"x": values(B, C, 9, 7)}
    assert error(run(done.path, feeds)[0], run(model, feeds)[0]) <= 2 * INT8


@pytest.mark.parametrize("bad", [100.0, 0.0, np.nan, np.inf, 1e30], ids=str)
def test_an_image_does_not_touch_the_others(tmp_path: Path, bad: float) -> None:
    done = convert(conv(("b", C, 9, 7), filters(M, C, 3, 3), True), tmp_path, **ASKED)
    x = values(4, C, 9, 7)
    before = run(done.path, {"x": x})[0]
    if np.isfinite(bad):
        x[2] *= np.float32(bad)
    else:
        x[2, 3, 4, 5] = bad
    after = run(done.path, {"x": x})[0]
    others = [0, 1, 3]
    assert np.array_equal(before[others], after[others])
    assert np.isfinite(after[2]).all() if np.isfinite(bad) else not np.isfinite(after[2]).any()
    assert np.array_equal(run(done.path, {"x": x[:1]})[0], after[:1])
    if bad == 0.0:
        bias = 0.1 * values(M, seed=3)
        assert np.array_equal(after[2], np.broadcast_to(bias[:, None, None], after[2].shape))


@pytest.mark.parametrize(
    ("opset", "dtype"), [(10, FLOAT), (11, FLOAT), (13, FLOAT), (17, FLOAT16), (21, FLOAT)]
)
def test_opsets_and_float16(tmp_path: Path, opset: int, dtype: int) -> None:
    w = filters(M, C, 3, 3)
    model = conv((B, C, 9, 7), w, True, opset=opset, dtype=dtype)
    feeds = {"x": values(B, C, 9, 7).astype(np.float16 if dtype == FLOAT16 else np.float32)}
    done = convert(model, tmp_path, **ASKED)
    assert done.report.opset == opset
    actual, expected = run(done.path, feeds)[0], run(model, feeds)[0]
    assert actual.dtype == feeds["x"].dtype
    size = per_channel_size(w, 4)
    assert error(actual / size, expected / size) <= 1.5 * INT8


OPTIONS: list[dict[str, Any]] = [
    {"cpu": "any"},
    {"weight_type": "QUInt8"},
    {"weight_type": "QInt8"},
    {"extra_options": {"WeightSymmetric": False}},
    {"per_channel": False},
    {"reduce_range": True},
    {"recipe": "int8-block"},
    {"recipe": "int8-per-tensor"},
    {"recipe": "int8-per-tensor", "weight_type": "QUInt8"},
    {"recipe": "int8-per-tensor", "per_channel": True},
    {"recipe": "int8-per-tensor", "cpu": "any"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_weight_types(tmp_path: Path, options: dict[str, Any]) -> None:
    w = filters(M, C, 3, 3)
    w = np.asarray(w / per_channel_size(w, 4).reshape(M, 1, 1, 1), np.float32)  # of one size
    model = conv((B, C, 9, 7), w, True)
    feeds = {"x": values(B, C, 9, 7)}
    done = convert(model, tmp_path, **options, **ASKED)
    (held,) = integer_tensors(done).values()
    assert held.dtype == np.uint8
    coarse = 2.0 if "reduce_range" in options else 1.0
    assert error(run(done.path, feeds)[0], run(model, feeds)[0]) <= 2 * coarse * INT8


def test_qdq_leaves_it_float_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NothingQuantizedError, match="held with int8 activations or not at all"):
        convert(conv((B, C, 9), filters(M, C, 3)), tmp_path, quant_format="qdq", **ASKED)


def test_two_convolutions_share_filters(tmp_path: Path) -> None:
    w = filters(C, C, 3, 3)
    body = "a = Conv <pads = [1, 1, 1, 1]> (x, w) y = Conv <dilations = [2, 2]> (a, w)"
    model = text(body, f"float[{B}, {C}, 9, 9] x", "float[] a, float[] y", {"w": w})
    done = convert(model, tmp_path, **ASKED)
    assert len(integer_tensors(done)) == 1
    feeds = {"x": values(B, C, 9, 9)}
    size = per_channel_size(w, 4)
    actual, expected = run(done.path, feeds), run(model, feeds)
    assert error(actual[0] / size, expected[0] / size) <= 1.5 * INT8
    assert_close(actual[1], expected[1], 2 * INT8)
