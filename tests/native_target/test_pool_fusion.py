"""MaxPool behind convolutions in the native target: one node, and the same results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.pool import reference
from tests.graphs import (
    FLOAT,
    FLOAT16,
    INT8,
    assert_close,
    build,
    node,
    values,
    weight,
)
from tests.graphs import run as run_float
from tests.native_target.forms import attributes, ours, run
from tests.native_target.forms import convert_convolutions as convert
from tests.native_target.test_conv_fusions import Tail, image, model, one

SAME = {"pads": [1, 1, 1, 1]}


def relu_and_pool(c: str, **options: Any) -> Sequence[onnx.NodeProto]:
    return [node("Relu", [c], ["r"]), node("MaxPool", ["r"], ["y"], **options)]


def behind(*, activated: bool = True, **options: Any) -> Tail:
    """MaxPool behind the convolution, or behind a Relu of it."""
    if activated:
        return lambda c: relu_and_pool(c, **options)
    return one("MaxPool", **options)


@pytest.mark.parametrize("activated", [True, False], ids=["relu", "alone"])
@pytest.mark.parametrize("pool", [(2, 2), (1, 3), (4, 1)], ids=str)
def test_a_pool_is_one_with_the_convolution(
    tmp_path: Path, pool: tuple[int, int], activated: bool
) -> None:
    tail = behind(activated=activated, kernel_shape=pool, strides=pool)
    done, alone = convert(model(tail), tmp_path), convert(model(one("Identity")), tmp_path)
    (layer,) = done.proto.graph.node
    assert layer.op_type == "Conv" and layer.domain == "ai.octavo"
    assert tuple(attributes(layer)["pool"]) == pool
    (y,), (before,) = run(done, {"x": image()}), run(alone, {"x": image()})
    largest = reference(before, pool).astype(np.float32)
    assert np.array_equal(y, np.maximum(largest, 0.0) if activated else largest)
    assert_close(y, run_float(model(tail), {"x": image()})[0], INT8)


def test_of_one_axis(tmp_path: Path) -> None:
    proto = build(
        [
            node("Conv", ["x", "w"], ["c"], pads=[2, 2]),
            node("MaxPool", ["c"], ["y"], kernel_shape=[3], strides=[3], auto_pad="VALID"),
        ],
        {"x": (FLOAT, ["n", 16, "l"])},
        {"y": (FLOAT, None)},
        {"w": weight(24, 16, 5, axis=0, spread=False)},
    )
    done = convert(proto, tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv"]
    x = values(2, 16, 32)
    assert_close(run(done, {"x": x})[0], run_float(proto, {"x": x})[0], INT8)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [3, 3], "strides": [2, 2]},
        {"kernel_shape": [2, 2]},
        {"kernel_shape": [1, 1], "strides": [2, 2]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 0, 0]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "strides": [2, 2], "dilations": [2, 1]},
        {"kernel_shape": [9, 8], "strides": [9, 8]},
    ],
    ids=lambda o: " ".join(f"{k} {v}" for k, v in o.items()),
)
def test_other_pools_stay_apart(tmp_path: Path, options: dict[str, Any]) -> None:
    proto = model(behind(**options), **SAME)
    done = convert(proto, tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "MaxPool"]
    x = values(1, 16, 18, 16)
    assert_close(run(done, {"x": x})[0], run_float(proto, {"x": x})[0], INT8)


@pytest.mark.parametrize("size", [(1, 8), (8, 1), (1, 1), (3, 5)], ids=str)
def test_images_smaller_than_a_pool_are_taken_as_onnx_runtime_takes_them(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    proto = model(behind(kernel_shape=[2, 2], strides=[2, 2]), **SAME)
    done = convert(proto, tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv"]
    x = values(2, 16, *size)
    (y,), (wanted,) = run(done, {"x": x}), run_float(proto, {"x": x})
    assert y.shape == wanted.shape
    assert_close(y, wanted, INT8)


def test_relu_behind_the_pool_is_taken_too(tmp_path: Path) -> None:
    def tail(c: str) -> Sequence[onnx.NodeProto]:
        pool = node("MaxPool", [c], ["m"], kernel_shape=[2, 2], strides=[2, 2])
        return [pool, node("Relu", ["m"], ["y"])]

    done = convert(model(tail), tmp_path)
    first = convert(model(behind(kernel_shape=[2, 2], strides=[2, 2])), tmp_path)
    (layer,) = done.proto.graph.node
    assert attributes(layer)["activation"] == b"relu" and attributes(layer)["pool"] == [2, 2]
    (y,), (same,) = run(done, {"x": image()}), run(first, {"x": image()})
    assert np.array_equal(y, same)


def test_a_result_of_the_model_stays(tmp_path: Path) -> None:
    proto = model(behind(activated=False, kernel_shape=[2, 2], strides=[2, 2]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("c", FLOAT, None))
    done = convert(proto, tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "MaxPool"]


def test_where_the_largest_was_may_be_named_if_nobody_asks(tmp_path: Path) -> None:
    def tail(c: str) -> Sequence[onnx.NodeProto]:
        return [node("MaxPool", [c], ["y", "where"], kernel_shape=[2, 2], strides=[2, 2])]

    assert len(convert(model(tail), tmp_path).proto.graph.node) == 1


def test_float16_models_keep_both_behind_the_cast(tmp_path: Path) -> None:
    tail = behind(kernel_shape=[2, 2], strides=[2, 2])
    done = convert(model(tail, dtype=FLOAT16), tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Cast", "Conv", "Cast", "Relu", "MaxPool"]


def test_a_pool_that_says_where_stays_apart(tmp_path: Path) -> None:
    def tail(c: str) -> Sequence[onnx.NodeProto]:
        return [
            node("MaxPool", [c], ["m", "where"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Cast", ["where"], ["f"], to=FLOAT),
            node("Add", ["m", "f"], ["y"]),
        ]

    done = convert(model(tail), tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "MaxPool", "Cast", "Add"]


def test_what_another_node_reads_stays_apart(tmp_path: Path) -> None:
    def tail(c: str) -> Sequence[onnx.NodeProto]:
        pool = node("MaxPool", [c], ["m"], kernel_shape=[1, 1], strides=[1, 1])
        return [pool, node("Sub", ["m", c], ["y"])]

    done = convert(model(tail), tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "MaxPool", "Sub"]
    assert not run(done, {"x": image()})[0].any()


def test_an_activation_behind_the_pool_stays(tmp_path: Path) -> None:
    def tail(c: str) -> Sequence[onnx.NodeProto]:
        pool = node("MaxPool", [c], ["m"], kernel_shape=[2, 2], strides=[2, 2])
        return [pool, node("Gelu", ["m"], ["y"])]

    proto = model(tail)
    done = convert(proto, tmp_path)
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "Gelu"]
    assert_close(run(done, {"x": image()})[0], run_float(proto, {"x": image()})[0], INT8)


def test_filters_over_one_channel_keep_it_behind_them(tmp_path: Path) -> None:
    proto = build(
        [
            node("Conv", ["x", "w"], ["c"], group=16),
            node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
        ],
        {"x": (FLOAT, [1, 16, 9, 9])},
        {"y": (FLOAT, None)},
        {"w": weight(16, 1, 3, 3, axis=0, spread=False)},
    )
    done = convert(proto, tmp_path)
    assert [n.op_type for n in ours(done)] == ["Conv"]
    assert [n.op_type for n in done.proto.graph.node] == ["Conv", "MaxPool"]
    x = values(1, 16, 9, 9)
    assert_close(run(done, {"x": x})[0], run_float(proto, {"x": x})[0], INT8)
