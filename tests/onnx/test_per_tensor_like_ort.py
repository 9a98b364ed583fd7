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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper
from onnxruntime.quantization import QuantType
from onnxruntime.quantization import quantize_dynamic as theirs

from tests.graphs import (
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
    MS,
    Array,
    Converted,
    assert_close,
    build,
    convert,
    error,
    node,
    run,
    values,
    weight,
)

Case = tuple[onnx.ModelProto, dict[str, Array]]
K, N, M = 64, 48, 8
OPTIONS = [
    pytest.param(
        {"weight_type": kind, "reduce_range": reduced, "per_channel": channels},
        id=f"{kind}{'-reduce_range' * reduced}{'-per_channel' * channels}",
    )
    for kind in ("QInt8", "QUInt8")
    for reduced in (False, True)
    for channels in (False, True)
]
PER_TENSOR_OPTIONS = [o for o in OPTIONS if "per_channel" not in str(o.id)]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def matmul() -> Case:
    w = weight(K, N, spread=False)
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ("m", K))}, ["y"], {"w": w})
    return model, {"x": values(M, K)}


def matmul_of_rank_3() -> Case:
    w = weight(K, N, spread=False)
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, (2, M, K))}, ["y"], {"w": w})
    return model, {"x": values(2, M, K)}


def shared_input() -> Case:
    model = build(
        [node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["x", "v"], ["z"])],
        {"x": (FLOAT, (M, K))},
        {"y": (FLOAT, (M, N)), "z": (FLOAT, (M, N))},
        {"w": weight(K, N, spread=False), "v": 2 * weight(K, N, seed=5, spread=False)},
    )
    return model, {"x": values(M, K)}


def shared_weight() -> Case:
    model = build(
        [
            node("MatMul", ["x", "w"], ["y"]),
            node("Relu", ["x"], ["r"]),
            node("MatMul", ["r", "w"], ["z"]),
        ],
        {"x": (FLOAT, (M, K))},
        {"y": (FLOAT, (M, N)), "z": (FLOAT, (M, N))},
        {"w": weight(K, N, spread=False)},
    )
    return model, {"x": values(M, K)}


def even_weight() -> Case:
    """Its range is as large below 0 as above: in 7 bits zero point and largest weight round up."""
    w = weight(K, N, spread=False)
    w[0, 0], w[1, 0] = 4.0, -4.0
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ("m", K))}, ["y"], {"w": w})
    return model, {"x": values(M, K)}


def matmul_and_add() -> Case:
    model = build(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Add", ["h", "b"], ["g"]),
            node("Relu", ["g"], ["r"]),
            node("MatMul", ["r", "v"], ["y"]),
        ],
        {"x": (FLOAT, (M, K))},
        ["y"],
        {"w": weight(K, N, spread=False), "b": values(N, seed=6), "v": weight(N, 5, spread=False)},
    )
    return model, {"x": values(M, K)}


def lstm(directions: int = 1) -> Case:
    hidden = 32
    way = "bidirectional" if directions == 2 else "forward"
    model = build(
        [node("LSTM", ["x", "w", "r", "b"], ["y", "h"], hidden_size=hidden, direction=way)],
        {"x": (FLOAT, (5, 2, K))},
        {"y": (FLOAT, (5, directions, 2, hidden)), "h": (FLOAT, (directions, 2, hidden))},
        {
            "w": weight(directions, 4 * hidden, K, spread=False),
            "r": weight(directions, 4 * hidden, hidden, seed=4, spread=False),
            "b": values(directions, 8 * hidden, seed=5),
        },
    )
    return model, {"x": values(5, 2, K)}


def both_ways() -> Case:
    return lstm(2)


def attention() -> Case:
    hidden = 32
    model = build(
        [node("Attention", ["x", "w", "b"], ["y"], domain=MS, num_heads=4)],
        {"x": (FLOAT, (2, 5, K))},
        {"y": (FLOAT, (2, 5, hidden))},
        {"w": weight(K, 3 * hidden, spread=False), "b": values(3 * hidden, seed=6)},
    )
    return model, {"x": values(2, 5, K)}


def attention_with_mask() -> Case:
    hidden = 32
    model = build(
        [node("Attention", ["x", "w", "b", "mask"], ["y"], domain=MS, num_heads=4)],
        {"x": (FLOAT, (2, 5, K)), "mask": (INT32, (2, 5))},
        {"y": (FLOAT, (2, 5, hidden))},
        {"w": weight(K, 3 * hidden, spread=False), "b": values(3 * hidden, seed=6)},
    )
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    return model, {"x": values(2, 5, K), "mask": mask}


def conv(bias: bool = False, **attributes: Any) -> Case:
    group = attributes.get("group", 1)
    weights = {"w": weight(6, 6 // group, 3, 3, spread=False)}
    if bias:
        weights["b"] = values(6, seed=6)
    model = build(
        [node("Conv", ["x", *weights], ["y"], **attributes)],
        {"x": (FLOAT, (2, 6, 8, 8))},
        {"y": (FLOAT, None)},
        weights,
    )
    return model, {"x": values(2, 6, 8, 8)}


def conv_with_bias() -> Case:
    return conv(bias=True, pads=[1, 1, 1, 1], strides=[2, 2])


def conv_in_groups() -> Case:
    return conv(group=3, dilations=[2, 2])


def conv_1d() -> Case:
    model = build(
        [node("Conv", ["x", "w"], ["y"], pads=[1, 1])],
        {"x": (FLOAT, (2, 6, 20))},
        {"y": (FLOAT, None)},
        {"w": weight(4, 6, 3, spread=False)},
    )
    return model, {"x": values(2, 6, 20)}


def convs_of_one_input() -> Case:
    """As in an inception block: filters of several sizes over one image, and a product with it."""
    sizes = {"a": 1, "b": 3, "c": 5}
    model = build(
        [
            *(
                node("Conv", ["x", f"w{n}"], [f"y{n}"], pads=[k // 2] * 4, kernel_shape=[k, k])
                for n, k in sizes.items()
            ),
            node("Concat", [f"y{n}" for n in sizes], ["y"], axis=1),
            node("MatMul", ["x", "v"], ["z"]),
        ],
        {"x": (FLOAT, (2, 6, 8, 8))},
        {"y": (FLOAT, None), "z": (FLOAT, None)},
        {f"w{n}": weight(4, 6, k, k, seed=k, spread=False) for n, k in sizes.items()}
        | {"v": weight(8, 8, spread=False)},
    )
    return model, {"x": values(2, 6, 8, 8)}


def gather() -> Case:
    model = build(
        [node("Gather", ["t", "i"], ["y"])],
        {"i": (INT64, (2, 7))},
        {"y": (FLOAT, (2, 7, K))},
        {"t": weight(300, K, spread=False) + 0.02},
    )
    return model, {"i": np.arange(14, dtype=np.int64).reshape(2, 7) * 21}


def both(case: Case, folder: Path, options: dict[str, Any]) -> tuple[Converted, onnx.ModelProto]:
    """Ours, and theirs at `theirs.onnx`."""
    model, _ = case
    reference = folder / "theirs.onnx"
    kind = QuantType[options.get("weight_type", "QInt8")]
    theirs(model, reference, **{**options, "weight_type": kind}, extra_options={})
    done = convert(model, folder, recipe="int8-per-tensor", **options)
    return done, onnx.load(reference)


def stored(model: onnx.ModelProto) -> dict[str, Array]:
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def value_names(model: onnx.ModelProto) -> set[str]:
    return {v for n in model.graph.node for v in (*n.input, *n.output) if v}


def same(
    case: Case, folder: Path, options: dict[str, Any], unnamed: set[str] | None = None
) -> None:
    """The same nodes, names and constants; the same output bits."""
    done, reference = both(case, folder, options)
    unnamed = unnamed or set()
    assert Counter(done.ops) == Counter(n.op_type for n in reference.graph.node)
    names = {n.name for n in reference.graph.node if n.name}
    assert names == {n.name for n in done.proto.graph.node} - unnamed
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
    a, b = run(done.path, case[1]), run(folder / "theirs.onnx", case[1])
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "case",
    [
        matmul,
        matmul_of_rank_3,
        shared_input,
        shared_weight,
        even_weight,
        matmul_and_add,
        lstm,
        both_ways,
        attention,
        attention_with_mask,
    ],
    ids=lambda case: case.__name__,
)
def test_same_as_quantize_dynamic(tmp_path: Path, case: Any, options: dict[str, Any]) -> None:
    same(case(), tmp_path, options)


@pytest.mark.parametrize("options", PER_TENSOR_OPTIONS)
@pytest.mark.parametrize(
    "case", [conv, conv_with_bias, conv_in_groups, conv_1d], ids=lambda case: case.__name__
)
def test_same_convolutions(tmp_path: Path, case: Any, options: dict[str, Any]) -> None:
    same(case(), tmp_path, options, {"y_bias_reshape_output/Reshape"})  # theirs has no name


@pytest.mark.parametrize("options", PER_TENSOR_OPTIONS)
def test_layers_of_one_input_share_its_integers(tmp_path: Path, options: dict[str, Any]) -> None:
    """Convolutions and products alike."""
    done, _ = both(convs_of_one_input(), tmp_path, options)
    assert Counter(done.ops)["DynamicQuantizeLinear"] == 1
    same(convs_of_one_input(), tmp_path, options)


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
    options=st.sampled_from(OPTIONS).map(lambda o: dict(o.values[0])),
    symmetric=st.sampled_from([None, False]),
)
@settings(max_examples=40, deadline=None)
def test_any_weight_has_the_bits_of_onnx_runtime(
    seed: int, size: float, shift: float, even: bool, options: dict[str, Any], symmetric: Any
) -> None:
    """Integers, scales and zero points."""
    w = np.random.default_rng(seed).standard_normal((9, 5)).astype(np.float32)
    w = ((w + np.float32(shift)) * np.float32(10**size)).astype(np.float32)
    if even:
        w[0], w[1] = np.abs(w).max(axis=0), -np.abs(w).max(axis=0)
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ("m", 9))}, ["y"], {"w": w})
    extra = {} if symmetric is None else {"WeightSymmetric": symmetric}
    kind = QuantType[options["weight_type"]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theirs(
            model, folder / "t.onnx", **{**options, "weight_type": kind}, extra_options={**extra}
        )
        done = convert(model, folder, recipe="int8-per-tensor", **options, extra_options={**extra})
        mine, other = stored(done.proto), stored(onnx.load(folder / "t.onnx"))
    for name, array in other.items():
        assert mine[name].dtype == array.dtype
        np.testing.assert_array_equal(mine[name], array, err_msg=name)


@pytest.mark.parametrize("options", PER_TENSOR_OPTIONS)
def test_same_embeddings(tmp_path: Path, options: dict[str, Any]) -> None:
    """Affine uint8, whatever the weight type: quantize_dynamic takes a table for an activation."""
    done, reference = both(gather(), tmp_path, options)
    assert done.ops == [n.op_type for n in reference.graph.node] == ["Gather", "DequantizeLinear"]
    assert value_names(done.proto) == value_names(reference)
    mine, other = stored(done.proto), stored(reference)
    assert mine["t_quantized"].dtype == np.uint8
    for name in ("t_quantized", "t_zero_point", "t_scale"):
        np.testing.assert_array_equal(mine[name], other[name])
    feeds = gather()[1]
    np.testing.assert_array_equal(run(done.path, feeds)[0], run(tmp_path / "theirs.onnx", feeds)[0])


# --- what ONNX Runtime's own tests of its dynamic mode assert (test_op_*.py), in our words


def counts(done: Converted) -> Counter[str]:
    return Counter(done.ops)


def activation_types(done: Converted) -> set[int]:
    """Element types of the activations that integer products read: of DynamicQuantizeLinear."""
    graph = onnx.shape_inference.infer_shapes(done.proto).graph
    known = {v.name: v.type.tensor_type.elem_type for v in graph.value_info}
    products = ("MatMulInteger", "ConvInteger", "QAttention")
    return {known[n.input[0]] for n in graph.node if n.op_type in products}


def test_a_chain_of_matmuls(tmp_path: Path) -> None:
    done = convert(matmul_and_add()[0], tmp_path, recipe="int8-per-tensor")
    found = counts(done)
    assert found["MatMulInteger"] == found["DynamicQuantizeLinear"] == found["Cast"] == 2
    assert found["MatMul"] == 0
    assert activation_types(done) == {TensorProto.UINT8}
    assert {"x_quantized", "r_quantized", "w_quantized", "v_quantized"} <= value_names(done.proto)


def test_one_quantization_of_a_shared_input(tmp_path: Path) -> None:
    found = counts(convert(shared_input()[0], tmp_path, recipe="int8-per-tensor"))
    assert (found["MatMulInteger"], found["DynamicQuantizeLinear"]) == (2, 1)


def test_a_convolution(tmp_path: Path) -> None:
    done = convert(conv_with_bias()[0], tmp_path, recipe="int8-per-tensor")
    found = counts(done)
    assert (found["ConvInteger"], found["Conv"], found["DynamicQuantizeLinear"]) == (1, 0, 1)
    assert activation_types(done) == {TensorProto.UINT8}
    assert stored(done.proto)["w_quantized"].dtype == np.uint8
    assert done.report.min_onnxruntime == "1.17"


def test_what_int8_filters_need(tmp_path: Path) -> None:
    """Theirs: "not implemented" in ONNX Runtime 1.23.2, fine in 1.24.1."""
    theirs(conv()[0], tmp_path / "theirs.onnx", extra_options={})
    options = {"allow_quantized": True, "allow_nothing": True}
    done = convert(onnx.load(tmp_path / "theirs.onnx"), tmp_path, **options)
    assert done.report.min_onnxruntime == "1.24"


def test_an_lstm(tmp_path: Path) -> None:
    done = convert(both_ways()[0], tmp_path, recipe="int8-per-tensor")
    assert done.ops == ["DynamicQuantizeLSTM"]
    assert done.proto.graph.node[0].name == "y_node_quant"
    assert stored(done.proto)["w_quantized"].shape == (2, K, 128)


def test_an_attention(tmp_path: Path) -> None:
    done = convert(attention()[0], tmp_path, recipe="int8-per-tensor")
    assert counts(done) == {"DynamicQuantizeLinear": 1, "QAttention": 1}


@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
def test_weights_have_the_type_that_was_asked_for(tmp_path: Path, kind: str) -> None:
    for case in (matmul, lstm, attention):
        done = convert(case()[0], tmp_path, recipe="int8-per-tensor", weight_type=kind)
        dtype = np.int8 if kind == "QInt8" or case is lstm else np.uint8  # theirs, for an LSTM
        assert stored(done.proto)["w_quantized"].dtype == dtype


def test_a_matmul_of_two_activations(tmp_path: Path) -> None:
    model = build(
        [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "z"], ["y"])],
        {"x": (FLOAT, (M, K)), "z": (FLOAT, (N, 5))},
        {"y": (FLOAT, (M, 5))},
        {"w": weight(K, N, spread=False)},
    )
    feeds = {"x": values(M, K), "z": values(N, 5, seed=7)}
    for const_only, products in ((True, 1), (False, 2)):
        extra = {"MatMulConstBOnly": const_only}
        done = convert(model, tmp_path, recipe="int8-per-tensor", extra_options=dict(extra))
        assert counts(done)["MatMulInteger"] == products
        theirs(model, tmp_path / "theirs.onnx", extra_options=dict(extra))
        np.testing.assert_array_equal(
            run(done.path, feeds)[0], run(tmp_path / "theirs.onnx", feeds)[0]
        )


def test_selection_by_operator_and_name(tmp_path: Path) -> None:
    model = matmul_and_add()[0]
    for options in ({"nodes_to_exclude": ["y_node"]}, {"nodes_to_quantize": ["h_node"]}):
        done = convert(model, tmp_path, recipe="int8-per-tensor", **options)
        theirs(model, tmp_path / "theirs.onnx", **options)
        reference = onnx.load(tmp_path / "theirs.onnx")
        assert counts(done) == Counter(n.op_type for n in reference.graph.node)
        assert counts(done)["MatMulInteger"] == counts(done)["MatMul"] == 1


def embed_layer_normalization(**attributes: Any) -> Case:
    words, width = 50, 32
    model = build(
        [
            node(
                "EmbedLayerNormalization",
                ["ids", "segments", "word", "position", "segment", "gamma", "beta", "mask"],
                ["e", "lengths"],
                domain=MS,
                **attributes,
            ),
            node("MatMul", ["e", "w"], ["y"]),
        ],
        {"ids": (INT32, (2, 6)), "segments": (INT32, (2, 6)), "mask": (INT32, (2, 6))},
        {"y": (FLOAT, (2, 6, N)), "lengths": (INT32, (2,))},
        {
            "word": weight(words, width, spread=False),
            "position": weight(16, width, seed=3, spread=False),
            "segment": weight(2, width, seed=4, spread=False),
            "gamma": np.linspace(0.5, 2, width, dtype=np.float32),
            "beta": np.linspace(-1, 1, width, dtype=np.float32),
            "w": weight(width, N, seed=5, spread=False),
        },
    )
    random = np.random.default_rng(0)
    ids = random.integers(0, words, (2, 6), np.int32)
    segments = random.integers(0, 2, (2, 6), np.int32)
    return model, {"ids": ids, "segments": segments, "mask": np.int32([[1] * 6, [1] * 4 + [0] * 2])}


@pytest.mark.parametrize("attributes", [{}, {"epsilon": 1e-3}], ids=str)
@pytest.mark.parametrize("options", PER_TENSOR_OPTIONS)
def test_embed_layer_normalization(
    tmp_path: Path, options: dict[str, Any], attributes: dict[str, Any]
) -> None:
    model, feeds = embed_layer_normalization(**attributes)
    done, reference = both((model, feeds), tmp_path, options)
    assert Counter(done.ops) == Counter(n.op_type for n in reference.graph.node)
    ours, other = (
        next(n for n in proto.graph.node if n.op_type == "QEmbedLayerNormalization")
        for proto in (done.proto, reference)
    )
    assert (ours.name, list(ours.input), list(ours.output)) == (
        other.name,
        list(other.input),
        list(other.output),
    )
    found, wanted = run(done.path, feeds), run(tmp_path / "theirs.onnx", feeds)
    np.testing.assert_array_equal(found[1], wanted[1])
    assert_close(found[0], wanted[0], 1e-2)  # a scale's last bit may move a rounding


def test_matmul_stands_for_gemm_too(tmp_path: Path) -> None:
    """Theirs makes a MatMul of a Gemm before it looks for what it was asked for."""
    model = build(
        [node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        {"x": (FLOAT, (M, K))},
        {"y": (FLOAT, (M, N))},
        {"w": weight(N, K, spread=False), "b": values(N, seed=6)},
    )
    options = {"op_types_to_quantize": ["MatMul"]}
    done = convert(model, tmp_path, recipe="int8-per-tensor", **options)
    theirs(model, tmp_path / "theirs.onnx", **options)
    assert counts(done) == Counter(
        n.op_type for n in onnx.load(tmp_path / "theirs.onnx").graph.node
    )


# --- where ours differs on purpose


@pytest.mark.parametrize("options", OPTIONS)
def test_gemm_has_other_names_only(tmp_path: Path, options: dict[str, Any]) -> None:
    model = build(
        [node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        {"x": (FLOAT, (M, K))},
        {"y": (FLOAT, (M, N))},
        {"w": weight(N, K, spread=False), "b": values(N, seed=6)},
    )
    feeds = {"x": values(M, K)}
    done, reference = both((model, feeds), tmp_path, options)
    assert Counter(done.ops) == Counter(n.op_type for n in reference.graph.node)
    assert {"x_quantized", "w_quantized", "w_scale", "w_zero_point"} <= value_names(done.proto)
    a, b = run(done.path, feeds)[0], run(tmp_path / "theirs.onnx", feeds)[0]
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", [conv, gather], ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
def test_per_channel_reaches_every_layer(tmp_path: Path, case: Any, kind: str) -> None:
    model, feeds = case()
    w = stored(model)["w" if case is conv else "t"]
    w = w * np.geomspace(0.1, 10, w.shape[0], dtype=np.float32).reshape(-1, *[1] * (w.ndim - 1))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, model.graph.initializer[0].name))
    options = {"weight_type": kind, "per_channel": True}
    done, _ = both((model, feeds), tmp_path, options)
    expected = run(model, feeds)[0].astype(np.float64)
    along = (0, 2, 3) if case is conv else -1
    size = np.sqrt(np.square(expected).mean(axis=along, keepdims=True))
    ours = error(run(done.path, feeds)[0] / size, expected / size)
    other = error(run(tmp_path / "theirs.onnx", feeds)[0] / size, expected / size)
    assert ours < 0.03
    assert other > 3 * ours


def test_float16_stays_valid(tmp_path: Path) -> None:
    """Theirs cannot be loaded."""
    model = build(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": (FLOAT16, (M, K))},
        {"y": (FLOAT16, (M, N))},
        {"w": weight(K, N, spread=False).astype(np.float16)},
    )
    feeds = {"x": values(M, K).astype(np.float16)}
    done = convert(model, tmp_path, recipe="int8-per-tensor")
    assert "MatMulInteger" in done.ops
    assert_close(run(done.path, feeds)[0], run(model, feeds)[0], 0.05)
