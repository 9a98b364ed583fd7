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
from octavo.graph.emit import quantized_inputs as activations
from octavo.onnx.constants import Constants
from tests.graphs import FLOAT, INT64, MS, Array, build, convert, error, node, run, values

C, K = 4, 64
CONSTANTS: dict[str, Any] = {
    "zero": np.float32(0),
    "six": np.float32(6),
    "half": np.float32(0.5),
    "one": np.float32(1),
    "three": np.float32(3),
    "minus": np.float32(-1),
    "two": np.float32(2),
    "root": np.float32(np.sqrt(2)),
    "slopes": np.full(K, 0.2, np.float32),
    "edge": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "axes": np.array([1]),
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
RELU = "r = Relu (x) "
LEAKY = "r = LeakyRelu <alpha = 0.1> (x) "
SILU = "g = Sigmoid (x) r = Mul (x, g) "
LESS = "c = Greater (x, half) "

# The nodes from x [1, C, 4, K] to y, and the zero point of y's rows.
CASES: dict[str, tuple[str, int]] = {
    "ends that cross": (RELU + "y = Clip (r, three, one)", 0),
    "ends that cross below zero": (
        RELU + "c = Clip (r, zero, minus) y = Concat <axis = 1> (r, c)",
        80,
    ),
    "a quotient of nothing positive": (RELU + "m = Neg (r) c = Clip (m, one) y = Div (x, c)", 128),
    "an integer that is too large": (
        "e = Exp (x) h = Mul (e, huge) i = Cast <to = 6> (h) y = Cast <to = 1> (i)",
        128,
    ),
    "an integer that begins again": (
        "h = Mul (x, huge) i = Cast <to = 6> (h) j = Mul (i, i) y = Cast <to = 1> (j)",
        128,
    ),
    "a Selu that turns signs": (RELU + "y = Selu <alpha = 1.0, gamma = -1.0> (r)", 128),
    "input": ("y = Identity (x)", 128),
    "relu": ("y = Relu (x)", 0),
    "relu6": ("y = Clip (x, zero, six)", 0),
    "clip without an upper end": ("y = Clip (x, zero)", 0),
    "clip below zero": ("y = Clip (x, minus, six)", 32),
    "clip alike": ("y = Clip (x, minus, one)", 128),
    "leaky": ("y = LeakyRelu (x)", 32),
    "leaky 0.2": ("y = LeakyRelu <alpha = 0.2> (x)", 48),
    "leaky below zero": ("y = LeakyRelu <alpha = -0.2> (x)", 128),
    "prelu": ("y = PRelu (x, slopes)", 48),
    "elu": ("y = Elu (x)", 80),
    "elu 0.1": ("y = Elu <alpha = 0.1> (x)", 32),
    "selu": ("y = Selu (x)", 128),
    "hard swish": ("y = HardSwish (x)", 32),
    "hard swish of a hard sigmoid": (
        "g = HardSigmoid <alpha = 0.16666667> (x) y = Mul (g, x)",
        32,
    ),
    "hard swish written out": (
        "a = Add (x, three) g = Clip (a, zero, six) p = Mul (x, g) y = Div (p, six)",
        32,
    ),
    "silu": (SILU + "y = Identity (r)", 32),
    "mish": ("s = Softplus (x) g = Tanh (s) y = Mul (x, g)", 32),
    "gelu": (
        "d = Div (x, root) e = Erf (d) g = Add (e, one) m = Mul (x, g) y = Mul (m, half)",
        32,
    ),
    "fused gelu": (f"y = {MS}.Gelu (x)", 32),
    "a gate of another value": ("n = Neg (x) g = Sigmoid (n) y = Mul (x, g)", 128),
    "a number over a gated one": ("g = Sigmoid (x) m = Mul (x, g) y = Div (one, m)", 128),
    "softplus": ("y = Softplus (x)", 0),
    "tanh": ("y = Tanh (x)", 128),
    "square": ("y = Mul (x, x)", 0),
    "power": ("y = Pow (x, two)", 0),
    "odd power": ("y = Pow (x, three)", 128),
    "gated by a channel": (RELU + "p = GlobalAveragePool (x) g = Sigmoid (p) y = Mul (r, g)", 0),
    "one minus a sigmoid": ("g = Sigmoid (x) y = Sub (one, g)", 0),
    "a sum of two": (RELU + "s = Sigmoid (x) y = Add (r, s)", 0),
    "a sum with the input": (RELU + "y = Add (r, x)", 128),
    "less a half": (RELU + "y = Sub (r, half)", 48),
    "negated": (RELU + "y = Neg (r)", 128),
    "the larger": (RELU + "y = Max (x, r)", 0),
    "the smaller": (RELU + "y = Min (x, r)", 128),
    "max pool": (RELU + "y = MaxPool <kernel_shape = [2, 1]> (r)", 0),
    "average pool": (
        RELU + "y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r)",
        0,
    ),
    "split": (RELU + "s0, s1 = Split <axis = 1> (r, parts) y = Mul (s1, half)", 0),
    "concat": (RELU + "y = Concat <axis = 1> (r, r)", 0),
    "concat with the input": (RELU + "y = Concat <axis = 1> (r, x)", 128),
    "concat of two kinds": (LEAKY + "q = Relu (x) y = Concat <axis = 1> (q, r)", 32),
    "resize": (RELU + 'y = Resize <mode = "linear"> (r, none, twice)', 0),
    "cubic resize": (RELU + 'y = Resize <mode = "cubic"> (r, none, twice)', 128),
    "reshape": (RELU + "y = Reshape (r, whole)", 0),
    "transpose": (RELU + "y = Transpose <perm = [0, 2, 1, 3]> (r)", 0),
    "slice": (RELU + "y = Slice (r, first, second, third)", 0),
    "gather": (RELU + "y = Gather <axis = 1> (r, pick)", 0),
    "squeezed": (SILU + "u = Unsqueeze (r, axes) y = Squeeze (u, axes)", 32),
    "flattened": (LEAKY + "y = Flatten <axis = 3> (r)", 32),
    "pad by zero": (RELU + "y = Pad (r, edge)", 0),
    "pad by one": (RELU + "y = Pad (r, edge, one)", 0),
    "pad by less": (RELU + "y = Pad (r, edge, minus)", 80),
    "expand": (RELU + "y = Expand (r, like)", 0),
    "where": (RELU + LESS + "y = Where (c, r, zero)", 0),
    "mean": (RELU + "y = ReduceMean <axes = [1]> (r)", 0),
    "mask": (LESS + "y = Cast <to = 1> (c)", 0),
}


def nodes_of(text: str) -> list[onnx.NodeProto]:
    return list(onnx.parser.parse_graph(f"g (float x) => (float y) {{ {text} }}").node)


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
    text, expected = CASES[case]
    assert zero_point_for(bounds_of(model(nodes_of(text)))) == expected


@pytest.mark.parametrize("case", CASES)
def test_every_value_lies_within_its_bounds(case: str) -> None:
    """Of all nodes, over inputs of several sizes."""
    nodes = nodes_of(CASES[case][0])
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


GAINS = {"relu6": 0.6, "leaky": 0.8, "hard swish written out": 0.8, "split": 0.6, "resize": 0.6}


@pytest.mark.parametrize("case", GAINS)
def test_rows_gain_from_it(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against rows that are symmetric: the error's square falls to a quarter where z is 0."""
    made = model([*nodes_of(CASES[case][0]), node("MatMul", ["y", "w"], ["out"])], ["out"])
    made.graph.initializer.append(onnx.numpy_helper.from_array(exact(K, 32), "w"))
    x = 2 * values(1, C, 4, K)
    assert layer_error(made, x, tmp_path / "a") < GAINS[case] * symmetric_error(
        made, x, tmp_path / "b", monkeypatch
    )


def test_images_of_integer_convolutions_gain_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = model([*nodes_of(RELU), node("Conv", ["r", "w"], ["out"], pads=[1, 1, 1, 1])], ["out"])
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
