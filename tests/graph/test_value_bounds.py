"""What the graph says about numbers holds, and rows take their zero points from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from octavo.graph.analysis.bounds import Bounds, ValueBounds
from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.zero_points import zero_point_for
from octavo.graph.lower import quantized_inputs as activations
from octavo.onnx.constants import Constants
from tests.graphs import (
    FLOAT,
    INT64,
    MS,
    Array,
    build,
    convert,
    error,
    node,
    run,
    values,
)

C, K = 4, 64
LOW, HIGH, HALF, SLOPES, EDGE, AXES = (
    np.float32(0),
    np.float32(6),
    np.float32(0.5),
    np.full(K, 0.2, np.float32),
    np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    np.array([1]),
)
CONSTANTS: dict[str, Any] = {
    "zero": LOW,
    "six": HIGH,
    "half": HALF,
    "one": np.float32(1),
    "three": np.float32(3),
    "minus": np.float32(-1),
    "two": np.float32(2),
    "root": np.float32(np.sqrt(2)),
    "slopes": SLOPES,
    "edge": EDGE,
    "axes": AXES,
    "whole": np.array([0, 0, -1, K]),
    "none": np.array([], np.float32),
    "twice": np.array([1, 1, 2, 1], np.float32),
    "first": np.array([0]),
    "second": np.array([2]),
    "third": np.array([3]),
    "parts": np.array([2, 2]),
    "like": np.array([1, 1, 4, K]),
    "pick": np.array([1, 0]),
    "huge": np.float32(1e5),
}
RELU = [node("Relu", ["x"], ["r"])]
LEAKY = [node("LeakyRelu", ["x"], ["r"], alpha=0.1)]
SILU = [node("Sigmoid", ["x"], ["g"]), node("Mul", ["x", "g"], ["r"])]


def then(*nodes: onnx.NodeProto, first: Sequence[onnx.NodeProto] = RELU) -> list[onnx.NodeProto]:
    return [*first, *nodes]


# The nodes from x [1, C, 4, K] to y, and the zero point of y's rows.
CASES: dict[str, tuple[list[onnx.NodeProto], int]] = {
    "ends that cross": (then(node("Clip", ["r", "three", "one"], ["y"])), 0),
    "ends that cross below zero": (
        then(
            node("Clip", ["r", "zero", "minus"], ["c"]), node("Concat", ["r", "c"], ["y"], axis=1)
        ),
        80,
    ),
    "a quotient of nothing positive": (
        then(
            node("Neg", ["r"], ["m"]),
            node("Clip", ["m", "one"], ["c"]),
            node("Div", ["x", "c"], ["y"]),
        ),
        128,
    ),
    "an integer that is too large": (
        then(
            node("Exp", ["x"], ["e"]),
            node("Mul", ["e", "huge"], ["h"]),
            node("Cast", ["h"], ["i"], to=6),
            node("Cast", ["i"], ["y"], to=1),
        ),
        128,
    ),
    "an integer that begins again": (
        then(
            node("Mul", ["x", "huge"], ["h"]),
            node("Cast", ["h"], ["i"], to=6),
            node("Mul", ["i", "i"], ["j"]),
            node("Cast", ["j"], ["y"], to=1),
        ),
        128,
    ),
    "a Selu that turns signs": (then(node("Selu", ["r"], ["y"], alpha=1.0, gamma=-1.0)), 128),
    "input": ([node("Identity", ["x"], ["y"])], 128),
    "relu": ([node("Relu", ["x"], ["y"])], 0),
    "relu6": ([node("Clip", ["x", "zero", "six"], ["y"])], 0),
    "clip without an upper end": ([node("Clip", ["x", "zero"], ["y"])], 0),
    "clip below zero": ([node("Clip", ["x", "minus", "six"], ["y"])], 32),
    "clip alike": ([node("Clip", ["x", "minus", "one"], ["y"])], 128),
    "leaky": ([node("LeakyRelu", ["x"], ["y"])], 32),
    "leaky 0.2": ([node("LeakyRelu", ["x"], ["y"], alpha=0.2)], 48),
    "leaky below zero": ([node("LeakyRelu", ["x"], ["y"], alpha=-0.2)], 128),
    "prelu": ([node("PRelu", ["x", "slopes"], ["y"])], 48),
    "elu": ([node("Elu", ["x"], ["y"])], 80),
    "elu 0.1": ([node("Elu", ["x"], ["y"], alpha=0.1)], 32),
    "selu": ([node("Selu", ["x"], ["y"])], 128),
    "hard swish": ([node("HardSwish", ["x"], ["y"])], 32),
    "hard swish of a hard sigmoid": (
        [node("HardSigmoid", ["x"], ["g"], alpha=1 / 6), node("Mul", ["g", "x"], ["y"])],
        32,
    ),
    "hard swish written out": (
        [
            node("Add", ["x", "three"], ["a"]),
            node("Clip", ["a", "zero", "six"], ["g"]),
            node("Mul", ["x", "g"], ["p"]),
            node("Div", ["p", "six"], ["y"]),
        ],
        32,
    ),
    "silu": ([*SILU, node("Identity", ["r"], ["y"])], 32),
    "mish": (
        [
            node("Softplus", ["x"], ["s"]),
            node("Tanh", ["s"], ["g"]),
            node("Mul", ["x", "g"], ["y"]),
        ],
        32,
    ),
    "gelu": (
        [
            node("Div", ["x", "root"], ["d"]),
            node("Erf", ["d"], ["e"]),
            node("Add", ["e", "one"], ["g"]),
            node("Mul", ["x", "g"], ["m"]),
            node("Mul", ["m", "half"], ["y"]),
        ],
        32,
    ),
    "fused gelu": ([node("Gelu", ["x"], ["y"], domain=MS)], 32),
    "a gate of another value": (
        [
            node("Neg", ["x"], ["n"]),
            node("Sigmoid", ["n"], ["g"]),
            node("Mul", ["x", "g"], ["y"]),
        ],
        128,
    ),
    "a number over a gated one": (
        [
            node("Sigmoid", ["x"], ["g"]),
            node("Mul", ["x", "g"], ["m"]),
            node("Div", ["one", "m"], ["y"]),
        ],
        128,
    ),
    "softplus": ([node("Softplus", ["x"], ["y"])], 0),
    "tanh": ([node("Tanh", ["x"], ["y"])], 128),
    "square": ([node("Mul", ["x", "x"], ["y"])], 0),
    "power": ([node("Pow", ["x", "two"], ["y"])], 0),
    "odd power": ([node("Pow", ["x", "three"], ["y"])], 128),
    "gated by a channel": (
        then(
            node("GlobalAveragePool", ["x"], ["p"]),
            node("Sigmoid", ["p"], ["g"]),
            node("Mul", ["r", "g"], ["y"]),
        ),
        0,
    ),
    "one minus a sigmoid": (
        [node("Sigmoid", ["x"], ["g"]), node("Sub", ["one", "g"], ["y"])],
        0,
    ),
    "a sum of two": (then(node("Sigmoid", ["x"], ["s"]), node("Add", ["r", "s"], ["y"])), 0),
    "a sum with the input": (then(node("Add", ["r", "x"], ["y"])), 128),
    "less a half": (then(node("Sub", ["r", "half"], ["y"])), 48),
    "negated": (then(node("Neg", ["r"], ["y"])), 128),
    "the larger": (then(node("Max", ["x", "r"], ["y"])), 0),
    "the smaller": (then(node("Min", ["x", "r"], ["y"])), 128),
    "max pool": (
        then(node("MaxPool", ["r"], ["y"], kernel_shape=[2, 1])),
        0,
    ),
    "average pool": (
        then(node("AveragePool", ["r"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
        0,
    ),
    "split": (
        then(
            node("Split", ["r", "parts"], ["s0", "s1"], axis=1),
            node("Mul", ["s1", "half"], ["y"]),
        ),
        0,
    ),
    "concat": (then(node("Concat", ["r", "r"], ["y"], axis=1)), 0),
    "concat with the input": (then(node("Concat", ["r", "x"], ["y"], axis=1)), 128),
    "concat of two kinds": (
        then(
            node("Relu", ["x"], ["q"]),
            node("Concat", ["q", "r"], ["y"], axis=1),
            first=LEAKY,
        ),
        32,
    ),
    "resize": (
        then(node("Resize", ["r", "none", "twice"], ["y"], mode="linear")),
        0,
    ),
    "cubic resize": (
        then(node("Resize", ["r", "none", "twice"], ["y"], mode="cubic")),
        128,
    ),
    "reshape": (then(node("Reshape", ["r", "whole"], ["y"])), 0),
    "transpose": (then(node("Transpose", ["r"], ["y"], perm=[0, 2, 1, 3])), 0),
    "slice": (then(node("Slice", ["r", "first", "second", "third"], ["y"])), 0),
    "gather": (then(node("Gather", ["r", "pick"], ["y"], axis=1)), 0),
    "squeezed": (
        then(
            node("Unsqueeze", ["r", "axes"], ["u"]),
            node("Squeeze", ["u", "axes"], ["y"]),
            first=SILU,
        ),
        32,
    ),
    "flattened": (then(node("Flatten", ["r"], ["y"], axis=3), first=LEAKY), 32),
    "pad by zero": (then(node("Pad", ["r", "edge"], ["y"])), 0),
    "pad by one": (then(node("Pad", ["r", "edge", "one"], ["y"])), 0),
    "pad by less": (then(node("Pad", ["r", "edge", "minus"], ["y"])), 80),
    "expand": (then(node("Expand", ["r", "like"], ["y"])), 0),
    "where": (
        then(
            node("Greater", ["x", "half"], ["c"]),
            node("Where", ["c", "r", "zero"], ["y"]),
        ),
        0,
    ),
    "mean": (then(node("ReduceMean", ["r"], ["y"], axes=[1])), 0),
    "mask": (
        [
            node("Greater", ["x", "half"], ["c"]),
            node("Cast", ["c"], ["y"], to=FLOAT),
        ],
        0,
    ),
    "another domain's relu": ([node("Identity", ["x"], ["y"])], 128),
}


def model(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)) -> onnx.ModelProto:
    read = {name for n in nodes for name in n.input}
    used = {k: np.asarray(v) for k, v in CONSTANTS.items() if k in read}
    opset = 14 if any(n.op_type == "HardSwish" for n in nodes) else 13
    return build(nodes, {"x": (FLOAT, [1, C, 4, K])}, list(outputs), used, opset=opset)


def bounds_of(made: onnx.ModelProto, name: str = "y") -> Bounds:
    read = ir.from_proto(made)
    found = ValueBounds(Fixed(Constants(13)))
    return found(next(v for n in read.graph for v in n.outputs if v.name == name))


@pytest.mark.parametrize("case", CASES)
def test_the_zero_point_of_rows(case: str) -> None:
    nodes, expected = CASES[case]
    assert zero_point_for(bounds_of(model(nodes))) == expected


@pytest.mark.parametrize("case", CASES)
def test_every_value_lies_within_its_bounds(case: str) -> None:
    """Of all nodes, over inputs of several sizes."""
    nodes, _ = CASES[case]
    floats = [n for n in nodes if n.op_type != "Greater" and not set(n.output) & {"i", "j"}]
    names = [name for n in floats for name in n.output]
    made = model(nodes, names)
    for scale in (0.01, 1.0, 30.0):
        x = scale * values(1, C, 4, K)
        for name, y in zip(names, run(made, {"x": x}), strict=True):
            found = bounds_of(made, name)
            slack = 1e-6 * (1 + np.abs(y.astype(np.float64)).max())
            assert y.min() >= found.low - slack, name
            assert y.max() <= found.high + slack, name


def test_an_operator_of_another_domain_says_nothing() -> None:
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"], domain="mine")]
    assert bounds_of(model(nodes)) == Bounds()


def test_an_end_that_a_run_may_change_says_nothing() -> None:
    made = model([node("Clip", ["x", "zero"], ["y"])])
    made.graph.input.append(onnx.helper.make_tensor_value_info("zero", FLOAT, []))
    assert bounds_of(made).low == -np.inf


def test_unsigned_integers_are_not_negative() -> None:
    made = build(
        [
            node("Cast", ["x"], ["u"], to=onnx.TensorProto.UINT8),
            node("Cast", ["u"], ["y"], to=FLOAT),
        ],
        {"x": (INT64, [1, K])},
        ["y"],
        {},
    )
    assert bounds_of(made).low == 0.0


def exact(*shape: int) -> Array:
    """A weight that integers hold without an error."""
    w = np.random.default_rng(0).integers(-127, 128, shape)
    w[0], w[:, 0] = 127, 127
    return w.astype(np.float32)


GAINS = {
    "relu6": 0.6,
    "leaky": 0.8,
    "elu 0.1": 0.8,
    "hard swish written out": 0.8,
    "split": 0.6,
    "concat": 0.6,
    "resize": 0.6,
    "transpose": 0.6,
    "max pool": 0.6,
}


@pytest.mark.parametrize("case", GAINS)
def test_rows_gain_from_it(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against rows that are symmetric: the error's square falls to a quarter where z is 0."""
    made = model([*CASES[case][0], node("MatMul", ["y", "w"], ["out"])], ["out"])
    made.graph.initializer.append(onnx.numpy_helper.from_array(exact(K, 32), "w"))
    x = 2 * values(1, C, 4, K)
    assert layer_error(made, x, tmp_path / "a") < GAINS[case] * symmetric_error(
        made, x, tmp_path / "b", monkeypatch
    )


def test_images_of_integer_convolutions_gain_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = model([*RELU, node("Conv", ["r", "w"], ["out"], pads=[1, 1, 1, 1])], ["out"])
    made.graph.initializer.append(onnx.numpy_helper.from_array(exact(8, C, 3, 3), "w"))
    x = values(1, C, 4, K)
    asked = {"op_types_to_quantize": ["Conv"]}
    assert layer_error(made, x, tmp_path / "a", **asked) < 0.6 * symmetric_error(
        made, x, tmp_path / "b", monkeypatch, **asked
    )


def layer_error(made: onnx.ModelProto, x: Array, folder: Path, **options: Any) -> float:
    folder.mkdir()
    done = convert(made, folder, **options)
    return float(error(run(done.path, {"x": x})[0], run(made, {"x": x})[0]))


def symmetric_error(
    made: onnx.ModelProto, x: Array, folder: Path, patch: pytest.MonkeyPatch, **options: Any
) -> float:
    patch.setattr(activations, "zero_point_for", lambda found: 128)
    return layer_error(made, x, folder, **options)
