"""Recipe `int8-per-tensor` beside `onnxruntime.quantization.quantize_dynamic`: nodes, names, bits.

Where the two differ on purpose, a test at the end says so:

- Gemm: the same node types and bits; ours keeps the Gemm's name, theirs makes it MatMul and Add.
- Filters in int8 are stored plus 128: the same bits, which run before ONNX Runtime 1.24 too, and
  four times as fast. Theirs do not.
- `per_channel` reaches Conv and Gather in ours; theirs ignores it there.
- uint8 weights that are to be symmetric (`WeightSymmetric`) are the int8 ones plus 128, with as
  many steps on both sides; theirs have half a step more below.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType
from onnxruntime.quantization import quantize_dynamic as theirs

from tests.graphs import (
    MS,
    Array,
    Converted,
    assert_close,
    convert,
    error,
    run,
    text,
    values,
    weight,
)
from tests.onnx.test_compared_ranges import stored

Case = tuple[onnx.ModelProto, dict[str, Array]]
K, N, M = 64, 48, 8
X = f"float[{M}, {K}] x"
MN = f"float[{M}, {N}]"
EVEN = weight(K, N, spread=False)
ALL_OPTIONS = [
    {"weight_type": kind, "reduce_range": reduced, "per_channel": channels}
    for kind in ("QInt8", "QUInt8")
    for reduced in (False, True)
    for channels in (False, True)
]
OPTIONS, PER_TENSOR_OPTIONS = (
    pytest.mark.parametrize("options", rows, ids=lambda o: "-".join(map(str, o.values())))
    for rows in (ALL_OPTIONS, [o for o in ALL_OPTIONS if not o["per_channel"]])
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def matmul_of_rank_3() -> Case:
    model = text("[y_node] y = MatMul (x, w)", f"float[2, {M}, {K}] x", weights={"w": EVEN})
    return model, {"x": values(2, M, K)}


def shared_input() -> Case:
    weights = {"w": EVEN, "v": 2 * weight(K, N, seed=5, spread=False)}
    body = "[y_node] y = MatMul (x, w) [z_node] z = MatMul (x, v)"
    return text(body, X, f"{MN} y, {MN} z", weights), {"x": values(M, K)}


def shared_weight() -> Case:
    body = "[y_node] y = MatMul (x, w) [r_node] r = Relu (x) [z_node] z = MatMul (r, w)"
    return text(body, X, f"{MN} y, {MN} z", {"w": EVEN}), {"x": values(M, K)}


def even_weight() -> Case:
    """Its range is as large below 0 as above: in 7 bits zero point and largest weight round up."""
    w = EVEN.copy()
    w[0, 0], w[1, 0] = 4.0, -4.0
    model = text("[y_node] y = MatMul (x, w)", f"float[m, {K}] x", weights={"w": w})
    return model, {"x": values(M, K)}


def matmul_and_add() -> Case:
    body = """[h_node] h = MatMul (x, w) [g_node] g = Add (h, b) [r_node] r = Relu (g)
        [y_node] y = MatMul (r, v)"""
    weights = {"w": EVEN, "b": values(N, seed=6), "v": weight(N, 5, spread=False)}
    return text(body, X, weights=weights), {"x": values(M, K)}


def lstm(directions: int = 1) -> Case:
    way = "bidirectional" if directions == 2 else "forward"
    weights = {
        "w": weight(directions, 128, K, spread=False),
        "r": weight(directions, 128, 32, seed=4, spread=False),
        "b": values(directions, 256, seed=5),
    }
    body = f'[y_node] y, h = LSTM <hidden_size = 32, direction = "{way}"> (x, w, r, b)'
    outputs = f"float[5, {directions}, 2, 32] y, float[{directions}, 2, 32] h"
    return text(body, f"float[5, 2, {K}] x", outputs, weights), {"x": values(5, 2, K)}


def both_ways() -> Case:
    return lstm(2)


def attention() -> Case:
    weights = {"w": weight(K, 96, spread=False), "b": values(96, seed=6)}
    body = f"[y_node] y = {MS}.Attention <num_heads = 4> (x, w, b)"
    model = text(body, f"float[2, 5, {K}] x", "float[2, 5, 32] y", weights)
    return model, {"x": values(2, 5, K)}


def attention_with_mask() -> Case:
    model, feeds = attention()
    model.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.INT32, (2, 5)))
    model.graph.node[0].input.append("mask")
    return model, feeds | {"mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)}


def conv(attributes: str = "", bias: bool = False, group: int = 1) -> Case:
    weights = {"w": weight(6, 6 // group, 3, 3, spread=False)}
    weights |= {"b": values(6, seed=6)} if bias else {}
    body = f"[y_node] y = Conv {attributes} (x, {', '.join(weights)})"
    return text(body, "float[2, 6, 8, 8] x", weights=weights), {"x": values(2, 6, 8, 8)}


def conv_with_bias() -> Case:
    return conv("<pads = [1, 1, 1, 1], strides = [2, 2]>", bias=True)


def conv_in_groups() -> Case:
    return conv("<group = 3, dilations = [2, 2]>", group=3)


def conv_1d() -> Case:
    weights = {"w": weight(4, 6, 3, spread=False)}
    body = "[y_node] y = Conv <pads = [1, 1]> (x, w)"
    return text(body, "float[2, 6, 20] x", weights=weights), {"x": values(2, 6, 20)}


def convs_of_one_input() -> Case:
    """As in an inception block: filters of several sizes over one image, and a product with it."""
    body = "".join(
        f"[y{k}_node] y{k} = Conv <pads = {[k // 2] * 4}, kernel_shape = {[k, k]}> (x, w{k}) "
        for k in (1, 3, 5)
    )
    body += "[y_node] y = Concat <axis = 1> (y1, y3, y5) [z_node] z = MatMul (x, v)"
    weights = {f"w{k}": weight(4, 6, k, k, seed=k, spread=False) for k in (1, 3, 5)}
    weights["v"] = weight(8, 8, spread=False)
    model = text(body, "float[2, 6, 8, 8] x", "float[] y, float[] z", weights)
    return model, {"x": values(2, 6, 8, 8)}


def gather() -> Case:
    weights = {"t": weight(300, K, spread=False) + 0.02}
    model = text("y = Gather (t, i)", "int64[2, 7] i", f"float[2, 7, {K}] y", weights)
    return model, {"i": np.arange(14, dtype=np.int64).reshape(2, 7) * 21}


def both(case: Case, folder: Path, options: dict[str, Any]) -> tuple[Converted, onnx.ModelProto]:
    model, _ = case
    reference = folder / "theirs.onnx"
    kind = QuantType[options.get("weight_type", "QInt8")]
    theirs(model, reference, **{"extra_options": {}, **options, "weight_type": kind})
    done = convert(model, folder, recipe="int8-per-tensor", **options)
    return done, onnx.load(reference)


def value_names(model: onnx.ModelProto) -> set[str]:
    return {v for n in model.graph.node for v in (*n.input, *n.output) if v}


def same_bits(done: Converted, folder: Path, feeds: dict[str, Array]) -> None:
    """In sessions of no options: where a processor saturates, it does so in both."""
    ours, other = (
        ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
        for path in (done.path, folder / "theirs.onnx")
    )
    for x, y in zip(ours, other, strict=True):
        np.testing.assert_array_equal(x, y)


def same(case: Case, folder: Path, options: dict[str, Any], *unnamed: str) -> Converted:
    """The same nodes, names and constants; the same output bits."""
    done, reference = both(case, folder, options)
    assert Counter(done.ops) == Counter(n.op_type for n in reference.graph.node)
    names = {n.name for n in reference.graph.node if n.name}
    assert names == {n.name for n in done.proto.graph.node} - {*unnamed}
    mine, other = stored(done.proto), stored(reference)
    shapes = {n for n in value_names(done.proto) if n.startswith("octavo_shape")}
    assert value_names(done.proto) - shapes == {
        n for n in value_names(reference) if not n.endswith("_reshape_shape")
    }
    filters = {i for n in reference.graph.node if n.op_type == "ConvInteger" for i in n.input}
    for name in (n for n in other if not n.endswith("_reshape_shape")):
        assert mine[name].shape == other[name].shape, name
        if name in filters and other[name].dtype == np.int8:
            assert mine[name].dtype == np.uint8
            mine[name] = (mine[name] - np.uint8(64 if options["reduce_range"] else 128)).view("i1")
        assert mine[name].dtype == other[name].dtype, name
        np.testing.assert_array_equal(mine[name], other[name], err_msg=name)
    same_bits(done, folder, case[1])
    return done


CASES = [matmul_of_rank_3, shared_weight, even_weight, matmul_and_add, lstm, both_ways]
CASES += [attention, attention_with_mask]


@pytest.mark.sweep(3)
@OPTIONS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_same_as_quantize_dynamic(
    tmp_path: Path, case: Callable[[], Case], options: dict[str, Any]
) -> None:
    same(case(), tmp_path, options)


@pytest.mark.sweep(3)
@PER_TENSOR_OPTIONS
@pytest.mark.parametrize(
    "case", [conv, conv_with_bias, conv_in_groups, conv_1d], ids=lambda case: case.__name__
)
def test_same_convolutions(
    tmp_path: Path, case: Callable[[], Case], options: dict[str, Any]
) -> None:
    same(case(), tmp_path, options, "y_bias_reshape_output/Reshape")  # theirs has no name


@pytest.mark.parametrize("case", [shared_input, convs_of_one_input])
@pytest.mark.parametrize("options", [ALL_OPTIONS[0], ALL_OPTIONS[6]], ids=str)
def test_layers_of_one_input_share_its_integers(
    tmp_path: Path, case: Callable[[], Case], options: dict[str, Any]
) -> None:
    """Convolutions and products alike."""
    assert same(case(), tmp_path, options).ops.count("DynamicQuantizeLinear") == 1


@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor"])
@pytest.mark.parametrize("layout", ["qoperator", "qdq"])
def test_each_input_is_quantized_once(tmp_path: Path, recipe: str, layout: str) -> None:
    """By image too, and for products through DequantizeLinear."""
    ops = ["MatMul"] if layout == "qdq" else ["Conv"]
    model, feeds = shared_input() if layout == "qdq" else convs_of_one_input()
    options = {"recipe": recipe, "quant_format": layout, "op_types_to_quantize": ops}
    done = convert(model, tmp_path, **options)
    quantizing = [op for op in done.ops if op in ("DynamicQuantizeLinear", "QuantizeLinear")]
    assert len(quantizing) == 1
    for found, exact in zip(run(done.path, feeds), run(model, feeds), strict=True):
        assert_close(found, exact, 0.05)


@given(
    seed=st.integers(0, 2**16),
    size=st.floats(-3, 3),
    shift=st.sampled_from([0.0, 0.1, 3.0, -3.0]),
    even=st.booleans(),
    options=st.sampled_from(ALL_OPTIONS),
    symmetric=st.sampled_from([None, False]),
)
@settings(max_examples=25, deadline=None)
def test_any_weight_has_the_bits_of_onnx_runtime(
    seed: int, size: float, shift: float, even: bool, options: dict[str, Any], symmetric: Any
) -> None:
    """Integers, scales and zero points."""
    w = np.random.default_rng(seed).standard_normal((9, 5)).astype(np.float32)
    w = ((w + np.float32(shift)) * np.float32(10**size)).astype(np.float32)
    if even:
        w[0], w[1] = np.abs(w).max(axis=0), -np.abs(w).max(axis=0)
    model = text("y = MatMul (x, w)", "float[m, 9] x", weights={"w": w})
    extra = {} if symmetric is None else {"WeightSymmetric": symmetric}
    with tempfile.TemporaryDirectory() as name:
        done, reference = both((model, {}), Path(name), {**options, "extra_options": extra})
    mine = stored(done.proto)
    for name, array in stored(reference).items():
        assert mine[name].dtype == array.dtype
        np.testing.assert_array_equal(mine[name], array, err_msg=name)


@PER_TENSOR_OPTIONS
def test_same_embeddings(tmp_path: Path, options: dict[str, Any]) -> None:
    """Affine uint8, whatever the weight type: quantize_dynamic takes a table for an activation."""
    done, reference = both(gather(), tmp_path, options)
    assert done.ops == [n.op_type for n in reference.graph.node] == ["Gather", "DequantizeLinear"]
    assert value_names(done.proto) == value_names(reference)
    mine, other = stored(done.proto), stored(reference)
    assert mine["t_quantized"].dtype == np.uint8
    for name in ("t_quantized", "t_zero_point", "t_scale"):
        np.testing.assert_array_equal(mine[name], other[name])
    same_bits(done, tmp_path, gather()[1])


def test_what_conversions_ask_of_onnx_runtime(tmp_path: Path) -> None:
    """Filters in int8, as theirs, are not implemented in ONNX Runtime 1.23, and are in 1.24."""
    done, reference = both(conv(), tmp_path, {})
    assert done.report.min_onnxruntime == "1.17"
    again = convert(reference, tmp_path, allow_quantized=True, allow_nothing=True)
    assert again.report.min_onnxruntime == "1.24"


@pytest.mark.sweep(2)
@pytest.mark.parametrize("options", [*ALL_OPTIONS, {"op_types_to_quantize": ["MatMul"]}], ids=str)
def test_gemm_has_other_names_only(tmp_path: Path, options: dict[str, Any]) -> None:
    """MatMul stands for it too: theirs makes one of a Gemm before it looks what was asked for."""
    weights = {"w": weight(N, K, spread=False), "b": values(N, seed=6)}
    model = text("y = Gemm <transB = 1> (x, w, b)", X, f"{MN} y", weights)
    done, reference = both((model, {}), tmp_path, options)
    assert Counter(done.ops) == Counter(n.op_type for n in reference.graph.node)
    assert {"x_quantized", "w_quantized", "w_scale", "w_zero_point"} <= value_names(done.proto)
    same_bits(done, tmp_path, {"x": values(M, K)})


@pytest.mark.parametrize("case", [conv, gather], ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
def test_per_channel_reaches_every_layer(
    tmp_path: Path, case: Callable[[], Case], kind: str
) -> None:
    model, feeds = case()
    ((name, w),) = stored(model).items()
    w = w * np.geomspace(0.1, 10, w.shape[0], dtype=np.float32).reshape(-1, *[1] * (w.ndim - 1))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, name))
    done, _ = both((model, feeds), tmp_path, {"weight_type": kind, "per_channel": True})
    expected = run(model, feeds)[0].astype(np.float64)
    along = (0, 2, 3) if case is conv else -1
    size = np.sqrt(np.square(expected).mean(axis=along, keepdims=True))
    ours = error(run(done.path, feeds)[0] / size, expected / size)
    other = error(run(tmp_path / "theirs.onnx", feeds)[0] / size, expected / size)
    assert ours < 0.03
    assert other > 3 * ours
