"""ai.octavo.Conv: the core's convolutions inside ONNX Runtime, with ONNX's attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from octavo.core.convolution import Conv1d, Conv2d, pack_filters
from octavo.core.kernels import checksum, quantize_weight
from octavo.core.qparams import Grid, QType
from tests.core.statement import ACTIVATIONS, assert_same_bits, assert_states
from tests.core.test_convolution import CASES, Case
from tests.native_target.nodes import REFUSALS, inferred, run, session
from tests.onnx.operator_cases import operator_cases

FLOAT = np.dtype(np.float32)


def constants(w: np.ndarray, bias: np.ndarray | None, groups: int) -> dict[str, np.ndarray]:
    """W, W_scale and B of float filters [M, C / groups, ...]."""
    found = quantize_weight(w, Grid.of(QType.INT8, symmetric=True), 0)
    zeros = np.zeros(len(w), np.float32)
    return {
        "W": pack_filters(found.q, groups).view(np.int8),
        "W_scale": found.qparams.scale,
        "B": zeros if bias is None else bias,
    }


def attributes(w: np.ndarray, groups: int, **more: Any) -> dict[str, Any]:
    digest = checksum(constants(w, None, groups)["W"].view(np.uint8))
    kernel = list(w.shape[2:])
    channels = {"M": w.shape[0], "C": w.shape[1] * groups, "group": groups}
    return {**channels, "kernel_shape": kernel, "checksum": digest, **more}


def run_case(case: Case, x: np.ndarray, threads: int = 1) -> np.ndarray:
    options = {"strides": case.stride, "dilations": case.dilation, "pads": case.pads}
    return run(
        "Conv",
        {"X": x},
        constants(case.w(), case.b(), case.groups),
        threads,
        activation=case.activation,
        pool=case.pool,
        **attributes(case.w(), case.groups, **options),
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_has_the_bits_of_the_core_and_states_the_definition(case: Case) -> None:
    x = case.x()
    y = run_case(case, x)
    assert_same_bits(y, case.layer()(x))
    assert_same_bits(y, run_case(case, x, threads=2))
    assert_states(y, case.expected(x))


@pytest.mark.parametrize("groups", [1, 2, 8], ids=["one", "grouped", "depthwise"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str, groups: int) -> None:
    case = Case(c=8, o=24, size=(6, 21), kernel=(3, 2), groups=groups, activation=activation)
    x = case.x()
    assert_states(run_case(case, x), case.expected(x))


@pytest.mark.parametrize("groups", [1, 4], ids=["dense", "depthwise"])
def test_one_axis(groups: int) -> None:
    r = np.random.default_rng(5)
    x = r.standard_normal((3, 4, 37)).astype(np.float32)
    w = r.standard_normal((8, 4 // groups, 5)).astype(np.float32)
    b = r.standard_normal(8).astype(np.float32)
    options = {"strides": [2], "dilations": [3], "pads": [1, 4]}
    y = run("Conv", {"X": x}, constants(w, b, groups), **attributes(w, groups, **options))
    layer = Conv1d.from_float(w, b, stride=2, dilation=3, padding=(1, 4), groups=groups)
    assert_same_bits(y, layer(x))


def test_left_out_attributes_have_the_defaults_of_onnx() -> None:
    case = Case(c=3, o=5, size=(7, 9), kernel=(3, 2), bias=False)
    x = case.x()
    y = run("Conv", {"X": x}, constants(case.w(), None, 1), **attributes(case.w(), 1))
    assert_same_bits(y, case.layer()(x))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("groups", [1, 6], ids=["dense", "depthwise"])
def test_padding_follows_the_size_as_onnx_runtime_has_it(
    auto_pad: str, stride: tuple[int, int], groups: int
) -> None:
    r = np.random.default_rng(3)
    w = r.standard_normal((12, 6 // groups, 4, 3)).astype(np.float32)
    options: dict[str, Any] = {"strides": stride, "auto_pad": auto_pad}
    ours = session(
        "Conv",
        {"X": FLOAT},
        {"X": ["n", 6, "h", "w"]},
        constants(w, None, groups),
        **attributes(w, groups, **options),
    )
    theirs = float_conv(w, 4, group=groups, **options)
    for h, width in ((9, 20), (12, 7), (11, 11)):  # one session, several sizes
        x = r.standard_normal((2, 6, h, width)).astype(np.float32)
        y, wanted = ours.run(None, {"X": x})[0], theirs.run(None, {"X": x})[0]
        assert_close(y, wanted, x, w)


def test_padding_by_size_counts_dilation() -> None:
    """ONNX Runtime refuses the two together."""
    r = np.random.default_rng(3)
    x = r.standard_normal((2, 6, 9, 20)).astype(np.float32)
    w = r.standard_normal((12, 6, 4, 3)).astype(np.float32)
    held = constants(w, None, 1)
    # A span of 3 * 2 + 1 = 7 rows at stride 2 over 9, and of 3 columns at stride 1 over 20.
    options: dict[str, Any] = {"strides": [2, 1], "dilations": [2, 1]}
    for auto_pad, pads in (("SAME_UPPER", [3, 1, 3, 1]), ("SAME_LOWER", [3, 1, 3, 1])):
        by_size = attributes(w, 1, auto_pad=auto_pad, **options)
        given = attributes(w, 1, pads=pads, **options)
        assert_same_bits(
            run("Conv", {"X": x}, held, **by_size), run("Conv", {"X": x}, held, **given)
        )
    x = x[:, :, :8]  # (4 - 1) * 2 + 7 - 8 = 5 rows of padding
    for auto_pad, pads in (("SAME_UPPER", [2, 1, 3, 1]), ("SAME_LOWER", [3, 1, 2, 1])):
        by_size = attributes(w, 1, auto_pad=auto_pad, **options)
        given = attributes(w, 1, pads=pads, **options)
        assert_same_bits(
            run("Conv", {"X": x}, held, **by_size), run("Conv", {"X": x}, held, **given)
        )


def float_conv(w: np.ndarray, rank: int, **options: Any) -> ort.InferenceSession:
    """ONNX Runtime's own Conv."""
    return float_node(helper.make_node("Conv", ["X", "W"], ["y"], **options), rank, W=w)


def float_node(node: onnx.NodeProto, rank: int, **held: np.ndarray) -> ort.InferenceSession:
    """One of ONNX Runtime's own nodes, from X with `rank` axes to y."""
    graph = helper.make_graph(
        [node],
        "float",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None] * rank)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def assert_close(y: np.ndarray, wanted: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """Within half a step of each product: the most that quantization may add, input by input."""
    assert y.shape == wanted.shape
    k = w[0].size
    for i, image in enumerate(x):
        step_x = (max(image.max(), 0) - min(image.min(), 0)) / 255
        step_w = np.abs(w).max() / 127
        most = k * (step_x * np.abs(w).max() + step_w * np.abs(image).max()) / 2
        assert np.abs(y[i] - wanted[i]).max() <= most * 1.01
        assert np.abs(y[i] - wanted[i]).std() <= wanted[i].std() * 0.02


OPERATOR_CASES = [
    "test_basic_conv_with_padding",
    "test_basic_conv_without_padding",
    "test_conv_with_autopad_same",
    "test_conv_with_strides_and_asymmetric_padding",
    "test_conv_with_strides_no_padding",
    "test_conv_with_strides_padding",
]


@pytest.mark.parametrize("name", OPERATOR_CASES)
def test_operator_cases_of_onnx(name: str) -> None:
    case = operator_cases()[name.removeprefix("test_")]
    node = case.model.graph.node[0]
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    options = {k: v.decode() if isinstance(v, bytes) else v for k, v in given.items()}
    options.pop("kernel_shape")
    ((x, w), (wanted,)) = case.data_sets[0]
    y = run("Conv", {"X": x}, constants(w, None, 1), **attributes(w, 1, **options))
    # Filters of ones are held exactly, so that only the image's steps are off.
    step = (x.max() - x.min()) / 255
    assert y.shape == wanted.shape
    assert np.abs(y - wanted).max() <= w[0].size * step / 2 * 1.001


# --- shapes ---


def test_a_batch_of_none() -> None:
    case = Case(c=3, o=5, size=(7, 9), kernel=(3, 3))
    assert run_case(case, np.empty((0, 3, 7, 9), np.float32)).shape == (0, 5, 5, 7)


def test_an_image_with_nan_gives_nan_and_leaves_the_others() -> None:
    case = Case(n=3, c=3, o=5, size=(7, 9), kernel=(3, 3))
    x = case.x()
    clean = run_case(case, x)
    x[1, 2, 3, 4] = np.nan
    y = run_case(case, x)
    assert np.isnan(y[1]).all()
    assert_same_bits(y[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize(
    "auto_pad,shape,wanted",
    [
        ("NOTSET", ["n", 3, 7, "w"], ["n", 5, 3, None]),
        ("SAME_UPPER", ["n", 3, 7, 8], ["n", 5, 4, 4]),
        ("VALID", [2, 3, "h", 8], [2, 5, None, 3]),
    ],
)
@pytest.mark.parametrize("pool", [1, 2])
def test_shapes_are_inferred(auto_pad: str, shape: list[Any], wanted: list[Any], pool: int) -> None:
    w = Case(c=3, o=5, kernel=(3, 3)).w()
    options = attributes(w, 1, strides=[2, 2], auto_pad=auto_pad, pool=[1, pool])
    found = inferred("Conv", {"X": FLOAT}, {"X": shape}, constants(w, None, 1), **options)
    assert found[:3] == wanted[:3]
    assert found[3] == (None if wanted[3] is None else wanted[3] // pool)


# --- refusals ---


@pytest.mark.parametrize(
    "change,message",
    [
        ({"M": 17}, "W has shape"),
        ({"C": 0}, "the attribute C is 0"),
        ({"group": 2}, "the attribute group is 2; it has to divide M 5 and C 3"),
        ({"kernel_shape": [3, 3, 3]}, r"kernel_shape is \[3, 3, 3\]; it has to be one number, or"),
        ({"strides": [0, 1]}, r"strides is \[0, 1\]; it has to be 2 numbers of 1 or more"),
        ({"pads": [0, -1, 0, 0]}, r"pads is \[0, -1, 0, 0\]; it has to be 4 numbers of 0 or more"),
        ({"dilations": [1]}, r"dilations is \[1\]; it has to be 2 numbers"),
        ({"auto_pad": "SAME"}, "auto_pad is 'SAME'; there are NOTSET, SAME_UPPER"),
        ({"auto_pad": "VALID", "pads": [1, 1, 1, 1]}, "auto_pad VALID takes none"),
        ({"activation": "swish"}, "the activation 'swish' is unknown"),
        ({"weight_format": "int4"}, "weights are in the format 'int4', which this release"),
        ({"checksum": 7}, "its checksum differs"),
        ({"pool": [2]}, r"pool is \[2\]; it has to be 2 numbers of 1 or more"),
        ({"pool": [2, 0]}, r"pool is \[2, 0\]; it has to be 2 numbers of 1 or more"),
        ({"pool": [5, 13]}, r"pool is \[5, 13\]; a pool has at most 64 results"),
        ({"pool": [2**31 - 1, 2**31 - 1]}, "a pool has at most 64 results"),
        ({"kernel_shape": [2**31 - 1, 2**31 - 1]}, "its filters are too large"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_attributes_are_refused(change: dict[str, Any], message: str) -> None:
    w = Case(c=3, o=5, kernel=(3, 3)).w()
    with pytest.raises(REFUSALS, match=rf"node 'layer' \(ai.octavo.Conv\): .*{message}"):
        session(
            "Conv",
            {"X": FLOAT},
            {"X": [1, 3, 9, 9]},
            constants(w, None, 1),
            **{**attributes(w, 1), **change},
        )


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_pools_follow_the_size_as_onnx_runtime_has_it(auto_pad: str) -> None:
    """Down to fewer results than a pool takes, which are one."""
    r = np.random.default_rng(3)
    w = r.standard_normal((12, 6, 4, 3)).astype(np.float32)
    options: dict[str, Any] = {"strides": (1, 2), "auto_pad": auto_pad}
    held, given = constants(w, None, 1), attributes(w, 1, **options)
    named = {"X": FLOAT}, {"X": ["n", 6, "h", "w"]}
    pooled = session("Conv", *named, held, **{**given, "pool": [3, 2]})
    alone = session("Conv", *named, held, **given)
    pool = helper.make_node("MaxPool", ["X"], ["y"], kernel_shape=[3, 2], strides=[3, 2])
    theirs = float_node(pool, 4)
    for size in ((9, 20), (12, 7), (5, 3), (4, 5)):  # one session, several sizes
        x = r.standard_normal((2, 6, *size)).astype(np.float32)
        (whole,) = alone.run(None, {"X": x})
        assert_same_bits(pooled.run(None, {"X": x})[0], theirs.run(None, {"X": whole})[0])


def test_filters_over_one_channel_have_no_pools() -> None:
    w = Case(c=4, o=8, kernel=(3, 3), groups=4).w()
    with pytest.raises(REFUSALS, match=r"pool is \[2, 2\]; filters of one channel and up to 512"):
        session(
            "Conv",
            {"X": FLOAT},
            {"X": [1, 4, 9, 9]},
            constants(w, None, 4),
            **attributes(w, 4, pool=[2, 2]),
        )


def test_scales_are_checked() -> None:
    case = Case(c=3, o=5, kernel=(3, 3))
    held = constants(case.w(), None, 1)
    held["W_scale"] = np.where(np.arange(5) == 3, 0, held["W_scale"]).astype(np.float32)
    with pytest.raises(REFUSALS, match=r"W_scale\[3\] is 0.0+; scales are finite and above 0"):
        session("Conv", {"X": FLOAT}, {"X": [1, 3, 9, 9]}, held, **attributes(case.w(), 1))


@pytest.mark.parametrize(
    "shape,message",
    [
        ((2, 4, 9, 9), r"X has shape \[2, 4, 9, 9\]; it has to be \[batch, 3, H, W\]"),
        ((3, 9, 9), r"X has shape \[3, 9, 9\]; it has to be \[batch, 3, H, W\]"),
        ((1, 3, 9, 2), r"with padding, axis 3 has 2 elements, and the kernel needs 3"),
    ],
    ids=str,
)
def test_wrong_inputs_are_refused(shape: tuple[int, ...], message: str) -> None:
    case = replace(Case(c=3, o=5, kernel=(3, 3)), size=shape[-2:])
    with pytest.raises(REFUSALS, match=message):
        run_case(case, np.zeros(shape, np.float32))


def test_the_core_has_the_same_kernel_for_a_height_of_one() -> None:
    r = np.random.default_rng(2)
    x, w = (r.standard_normal(s).astype(np.float32) for s in ((2, 3, 40), (4, 3, 5)))
    y = run("Conv", {"X": x}, constants(w, None, 1), **attributes(w, 1))
    assert_same_bits(y, Conv2d.from_float(w[:, :, None], None)(x[:, :, None])[:, :, 0])
