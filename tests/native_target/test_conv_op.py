"""ai.octavo.Conv: the core's convolutions inside ONNX Runtime, with ONNX's attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from octavo.core.convolution import Conv1d, Conv2d, pack_filters
from octavo.core.kernels import checksum, quantize_weight
from octavo.core.qparams import Grid, QType
from tests import graphs
from tests.core.statement import ACTIVATIONS, assert_same_bits
from tests.core.test_convolution import CASES, Case
from tests.graphs import FLOAT, build, node, normal
from tests.native_target.nodes import inferred, refuses, run, session


def layer(w: np.ndarray, bias: np.ndarray | None = None, groups: int = 1, **more: Any) -> Any:
    """The constants and the attributes of a node over float filters [M, C / groups, ...]."""
    found = quantize_weight(w, Grid.of(QType.INT8, symmetric=True), 0)
    packed = pack_filters(found.q, groups)
    zeros = np.zeros(len(w), np.float32)
    held = {"W": packed.view(np.int8), "W_scale": found.qparams.scale}
    held["B"] = zeros if bias is None else bias
    given = {"M": len(w), "C": w.shape[1] * groups, "group": groups, "checksum": checksum(packed)}
    return held, {**given, "kernel_shape": list(w.shape[2:]), **more}


def convolved(x: np.ndarray, w: np.ndarray, *rest: Any, **more: Any) -> np.ndarray:
    held, given = layer(w, *rest, **more)
    return run("Conv", {"X": x}, held, **given)


def run_case(case: Case, x: np.ndarray, threads: int = 1) -> np.ndarray:
    options = {"strides": case.stride, "dilations": case.dilation, "pads": case.pads}
    options |= {"activation": case.activation, "pool": case.pool}
    held, given = layer(case.w(), case.b(), case.groups, **options)
    return run("Conv", {"X": x}, held, threads, **given)


ACTIVATED = [
    Case(c=8, o=24, size=(6, 21), kernel=(3, 2), groups=[1, 2, 8][i % 3], activation=name)
    for i, name in enumerate(ACTIVATIONS)
]


@pytest.mark.parametrize("case", [*CASES, *ACTIVATED], ids=str)
def test_it_has_the_bits_of_the_core(case: Case) -> None:
    x = case.x()
    y = run_case(case, x)
    assert_same_bits(y, case.layer()(x))
    assert_same_bits(y, run_case(case, x, threads=2))


@pytest.mark.parametrize("groups", [1, 4], ids=["dense", "depthwise"])
def test_one_axis(groups: int) -> None:
    x, w, b = normal(3, 4, 37), normal(8, 4 // groups, 5, seed=1), normal(8, seed=2)
    y = convolved(x, w, b, groups, strides=[2], dilations=[3], pads=[1, 4])
    core = Conv1d.from_float(w, b, stride=2, dilation=3, padding=(1, 4), groups=groups)
    assert_same_bits(y, core(x))


def test_left_out_attributes_have_the_defaults_of_onnx() -> None:
    case = Case(c=3, o=5, size=(7, 9), kernel=(3, 2), bias=False)
    assert_same_bits(convolved(case.x(), case.w()), case.layer()(case.x()))
    x, w = normal(2, 3, 40), normal(4, 3, 5, seed=1)  # as an image of height 1
    assert_same_bits(
        convolved(x, w), Conv2d.from_float(w[:, :, None], None)(x[:, :, None])[:, :, 0]
    )


def float_node(op: str, *held: np.ndarray, **options: Any) -> ort.InferenceSession:
    """One of ONNX Runtime's own nodes, from images X to y."""
    stored = {f"W{i}": w for i, w in enumerate(held)}
    made = node(op, ["X", *stored], ["y"], **options)
    return graphs.opened(build([made], {"X": (FLOAT, [None] * 4)}, ["y"], stored))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(
    ("stride", "groups"), [((1, 1), 1), ((2, 3), 1), ((1, 1), 6), ((2, 3), 6)], ids=str
)
def test_padding_follows_the_size_as_onnx_runtime_has_it(
    auto_pad: str, stride: tuple[int, int], groups: int
) -> None:
    """Within half a step of each product: the most that quantization may add, input by input."""
    w = normal(12, 6 // groups, 4, 3)
    options: dict[str, Any] = {"strides": stride, "auto_pad": auto_pad}
    held, given = layer(w, None, groups, **options)
    ours = session("Conv", {"X": (FLOAT, ["n", 6, "h", "w"])}, held, **given)
    theirs = float_node("Conv", w, group=groups, **options)
    for size in ((9, 20), (12, 7), (11, 11)):  # one session, several sizes
        x = normal(2, 6, *size, seed=3)
        y, wanted = ours.run(None, {"X": x})[0], theirs.run(None, {"X": x})[0]
        assert y.shape == wanted.shape
        for image, found, exact in zip(x, y, wanted, strict=True):
            step_x = (max(image.max(), 0) - min(image.min(), 0)) / 255
            step_w = np.abs(w).max() / 127
            most = w[0].size * (step_x * np.abs(w).max() + step_w * np.abs(image).max()) / 2
            assert np.abs(found - exact).max() <= most * 1.01
            assert np.abs(found - exact).std() <= exact.std() * 0.02


@pytest.mark.parametrize(
    ("rows", "upper", "lower"),
    [(9, [3, 1, 3, 1], [3, 1, 3, 1]), (8, [2, 1, 3, 1], [3, 1, 2, 1])],
)
def test_padding_by_size_counts_dilation(rows: int, upper: list[int], lower: list[int]) -> None:
    """ONNX Runtime refuses the two together.

    A span of (4 - 1) * 2 + 1 = 7 rows at stride 2, over 8 with 5 rows of padding, and 3 columns.
    """
    x, w = normal(2, 6, rows, 20), normal(12, 6, 4, 3, seed=1)
    options: dict[str, Any] = {"strides": [2, 1], "dilations": [2, 1]}
    for auto_pad, pads in (("SAME_UPPER", upper), ("SAME_LOWER", lower)):
        by_size = convolved(x, w, auto_pad=auto_pad, **options)
        assert_same_bits(by_size, convolved(x, w, pads=pads, **options))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_pools_follow_the_size_as_onnx_runtime_has_it(auto_pad: str) -> None:
    """Down to fewer results than a pool takes, which are one."""
    held, given = layer(normal(12, 6, 4, 3), strides=(1, 2), auto_pad=auto_pad)
    inputs = {"X": (FLOAT, ["n", 6, "h", "w"])}
    pooled = session("Conv", inputs, held, **{**given, "pool": [3, 2]})
    alone = session("Conv", inputs, held, **given)
    theirs = float_node("MaxPool", kernel_shape=[3, 2], strides=[3, 2])
    for size in ((9, 20), (12, 7), (5, 3), (4, 5)):  # one session, several sizes
        x = normal(2, 6, *size, seed=3)
        (whole,) = alone.run(None, {"X": x})
        assert_same_bits(pooled.run(None, {"X": x})[0], theirs.run(None, {"X": whole})[0])


def test_a_batch_of_none() -> None:
    case = Case(c=3, o=5, size=(7, 9), kernel=(3, 3))
    assert run_case(case, np.empty((0, 3, 7, 9), np.float32)).shape == (0, 5, 5, 7)


W = Case(c=3, o=5, kernel=(3, 3)).w()
DEPTHWISE = Case(c=4, o=8, kernel=(3, 3), groups=4).w()


@pytest.mark.parametrize(
    ("auto_pad", "shape", "wanted"),
    [
        ("NOTSET", ["n", 3, 7, "w"], ["n", 5, 3, None]),
        ("SAME_UPPER", ["n", 3, 7, 8], ["n", 5, 4, 4]),
        ("VALID", [2, 3, "h", 8], [2, 5, None, 3]),
    ],
)
@pytest.mark.parametrize("pool", [1, 2])
def test_shapes_are_inferred(auto_pad: str, shape: list[Any], wanted: list[Any], pool: int) -> None:
    held, given = layer(W, strides=[2, 2], auto_pad=auto_pad, pool=[1, pool])
    columns = None if wanted[3] is None else wanted[3] // pool
    assert inferred("Conv", {"X": shape}, held, **given) == [*wanted[:3], columns]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"M": 17}, "W has shape"),
        ({"C": 0}, "the attribute C is 0"),
        ({"group": 2}, "group is 2; it has to divide M 5 and C 3"),
        ({"kernel_shape": [3, 3, 3]}, r"kernel_shape is \[3, 3, 3\]"),
        ({"strides": [0, 1]}, r"strides is \[0, 1\]"),
        ({"pads": [0, -1, 0, 0]}, r"pads is \[0, -1, 0, 0\]"),
        ({"dilations": [1]}, r"dilations is \[1\]; it has to be 2"),
        ({"auto_pad": "SAME"}, "auto_pad is 'SAME'"),
        ({"auto_pad": "VALID", "pads": [1, 1, 1, 1]}, "auto_pad VALID takes none"),
        ({"activation": "swish"}, "activation 'swish' is unknown"),
        ({"weight_format": "int4"}, "the format 'int4'"),
        ({"checksum": 7}, "its checksum differs"),
        ({"pool": [2]}, r"pool is \[2\]; it has to be 2"),
        ({"pool": [2, 0]}, r"pool is \[2, 0\]"),
        ({"pool": [5, 13]}, r"pool is \[5, 13\]; .* at most 64"),
        ({"pool": [2**31 - 1, 2**31 - 1]}, "at most 64"),
        ({"kernel_shape": [2**31 - 1, 2**31 - 1]}, "filters are too large"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_attributes_are_refused(change: dict[str, Any], message: str) -> None:
    held, given = layer(W)
    refuses(message, "Conv", {"X": np.zeros((1, 3, 9, 9), np.float32)}, held, **given | change)


def test_other_nodes_that_are_refused() -> None:
    x, (held, given) = {"X": np.zeros((1, 4, 9, 9), np.float32)}, layer(DEPTHWISE, None, 4)
    message = r"pool is \[2, 2\]; filters of one channel and up to 512"
    refuses(message, "Conv", x, held, **given, pool=[2, 2])
    held["W_scale"] = np.where(np.arange(8) == 3, 0, held["W_scale"]).astype(np.float32)
    refuses(r"W_scale\[3\] is 0.0", "Conv", x, held, **given)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 4, 9, 9), r"X has shape \[2, 4, 9, 9\]; .*\[batch, 3, H, W\]"),
        ((3, 9, 9), r"X has shape \[3, 9, 9\]; .*\[batch, 3, H, W\]"),
        ((1, 3, 9, 2), r"axis 3 has 2 elements, and the kernel needs 3"),
    ],
    ids=str,
)
def test_wrong_inputs_are_refused(shape: tuple[int, ...], message: str) -> None:
    held, given = layer(W)
    refuses(message, "Conv", {"X": np.zeros(shape, np.float32)}, held, **given)
