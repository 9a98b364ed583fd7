"""Sizes of open axes, what stays in proportion, odd graphs, and the line that says it all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from octavo.onnx.inputs import FixedShapes, describe
from octavo.onnx.inputs.roles import Role
from octavo.onnx.inputs.sizes import evaluate
from tests.graphs import F32, build, normal
from tests.onnx.inputs.made_up_graphs import (
    BOOL,
    I32,
    I64,
    WIDE,
    accepted,
    embedded,
    guesses,
    kinds,
    node,
)

STRING = TensorProto.STRING


def looked_up(axes: list[Any]) -> onnx.ModelProto:
    nodes = [node("Gather", "table ids", "y")]
    return build(nodes, [("ids", I64, axes)], [("y", F32, None)], {"table": normal(99, WIDE)})


@pytest.mark.parametrize("axes", [["batch", "seq"], ["s0", "s1"], ["s77", "s1"], [None, None]])
def test_the_first_axis_is_the_batch_and_stays_small(axes: list[Any]) -> None:
    """Whatever the exporter calls it; never 512 x 512 tokens."""
    shapes = [feed["ids"].shape for feed in guesses(looked_up(axes))]
    assert shapes[0] == (1, 16) and shapes[1] == (2, 32)
    assert max(np.prod(shape) for shape in shapes) <= 512
    at_one = shapes.index((1, 1))
    assert any(batch == 1 and length > 1 for batch, length in shapes[:at_one])
    assert sum(batch > 1 for batch, _ in shapes[:4]) == 2


def test_fixed_axes_stay() -> None:
    shapes = [feed["ids"].shape for feed in guesses(looked_up([1, 128]))]
    assert shapes == [(1, 128)] * 2
    assert {feed["ids"].shape[1] for feed in guesses(looked_up(["b", 77]))} == {77}


def test_axes_of_different_names_are_different_once_and_equal_once() -> None:
    nodes = [node("Gather", "table a", "x"), node("Gather", "table b", "y")]
    inputs: list[Any] = [("a", I64, ["n", "s1"]), ("b", I64, ["n", "s2"])]
    outputs: list[Any] = [("x", F32, None), ("y", F32, None)]
    model = build(nodes, inputs, outputs, {"table": normal(9, 2)})
    same = [feed["a"].shape == feed["b"].shape for feed in guesses(model)]
    assert same[:2] == [True, False]
    assert all(len(feed["a"]) == len(feed["b"]) for feed in guesses(model))


@pytest.mark.parametrize("total", ["total", "past + len", None, "s64"])
def test_masks_cover_a_past_and_the_tokens_behind_it(total: Any) -> None:
    nodes = [
        node("Concat", "past e", "all", axis=1),
        node("Cast", "mask", "seen", to=BOOL),
        node("Unsqueeze", "seen last", "seen3"),
        node("Where", "seen3 all zero", "y"),
    ]
    inputs: list[Any] = [("past", F32, ["batch", "past", WIDE]), ("mask", I64, ["batch", total])]
    weights = {"last": np.array([2]), "zero": np.float32(0)}
    model = embedded(nodes, inputs, weights)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "len"
    assert kinds(model)["past"].role is Role.PAST
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    for _, feed, _ in found:
        past, length = feed["past"].shape[1], feed["ids"].shape[1]
        assert feed["mask"].shape[1] == past + length and past != length
        assert feed["mask"][:, past:].all()  # what is new sees itself
        assert feed["mask"].all() == (len(feed["mask"]) == 1) or not feed["mask"][-1, 0]


SUMS = {
    "past + len": 7, "past+len": 7, "past + 1": 5, "2*len": 6, "len//2": 1, "(past + len) * 2": 14,
    "past - len": 1, "len": None, "batch-size": None, "a/b": None, "": None, "1 +": None,
    "past ** 2": None, "f(past) + 1": None, "past + 1.5": None, "?tokens": None, "len // 0": None,
}  # fmt: skip


@pytest.mark.parametrize("text", SUMS)
def test_sums_of_sizes(text: str) -> None:
    assert evaluate(text, lambda name: {"past": 4, "len": 3}[name]) == SUMS[text]


def test_rows_of_features_are_several_at_once() -> None:
    nodes = [node("MatMul", "x w", "y")]
    model = build(nodes, [("x", F32, ["n", 12])], [("y", F32, None)], {"w": normal(12, 3)})
    shapes = [feed["x"].shape for feed in guesses(model)]
    assert shapes[:2] == [(8, 12), (3, 12)] and (1, 12) in shapes


# Types -------------------------------------------------------------------------------------------


def test_sequences_and_optionals() -> None:
    tensor = helper.make_tensor_type_proto(F32, ["n", 4])
    for kind, nodes in (
        (helper.make_sequence_type_proto(tensor), [node("ConcatFromSequence", "x", "y", axis=0)]),
        (
            helper.make_optional_type_proto(tensor),
            [node("OptionalGetElement", "x", "z"), node("Relu", "z", "y")],
        ),
    ):
        out = helper.make_tensor_value_info("y", F32, None)
        graph = helper.make_graph(nodes, "g", [helper.make_value_info("x", kind)], [out])
        opset = helper.make_opsetid("", 18)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        number, feed, (output,) = accepted(model, 1)[0]
        assert number == 0 and output.shape[-1] == 4 and output.std() > 0
        assert "normal" in describe([feed], ir.from_proto(model))


def test_texts_are_those_that_the_model_knows() -> None:
    nodes = [
        helper.make_node("LabelEncoder", ["w"], ["y"], domain="ai.onnx.ml",
                         keys_strings=["red", "green", "blue"], values_floats=[1.0, 2.0, 3.0]),
    ]  # fmt: skip
    model = build(nodes, [("w", STRING, ["n", 2])], [("y", F32, None)], {})
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    feed = guesses(model)[0]
    assert set(feed["w"].ravel()) <= {"red", "green", "blue"} and len(set(feed["w"].ravel())) > 1


def test_masks_and_tables_of_microsoft_operators() -> None:
    nodes = [
        helper.make_node(
            "EmbedLayerNormalization", ["ids", "types", "w", "p", "s", "g", "b", "mask"],
            ["e", "m"], domain="com.microsoft", epsilon=1e-5,
        ),
        helper.make_node(
            "Attention", ["e", "qkv", "bias", "m"], ["y"], domain="com.microsoft", num_heads=2
        ),
    ]  # fmt: skip
    both = ["batch", "seq"]
    inputs: list[Any] = [("ids", I32, both), ("types", I32, both), ("mask", I32, both)]
    weights = {
        "w": normal(70, WIDE), "p": normal(64, WIDE), "s": normal(2, WIDE), "g": normal(WIDE),
        "b": normal(WIDE), "qkv": normal(WIDE, 3 * WIDE), "bias": normal(3 * WIDE),
    }  # fmt: skip
    model = build(nodes, inputs, [("y", F32, None)], weights)
    roles = [kind.role for kind in kinds(model).values()]
    assert roles == [Role.IDS, Role.TYPES, Role.MASK]
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    assert not found[1][1]["mask"].all() and found[1][1]["mask"][0].all()


# Odd graphs --------------------------------------------------------------------------------------

CODES = [
    F32, I64, I32, BOOL, STRING, TensorProto.UINT8, TensorProto.UINT64, TensorProto.DOUBLE,
    TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8,
]  # fmt: skip
OPS = (
    "Add Sub Mul Div Equal Greater Less Where And Not Cast Gather GatherND Concat Reshape "
    "Transpose Unsqueeze Squeeze Slice Expand Conv ConvTranspose Resize MaxPool LSTM MatMul Gemm "
    "Softmax CumSum Range NonMaxSuppression TopK OneHot STFT Sin Loop If EmbedLayerNormalization "
    "Attention MultiHeadAttention GroupQueryAttention DequantizeLinear Split Mystery"
).split()
ATTRIBUTES = [{}, {"axis": 1}, {"axis": -9}, {"perm": [1, 0]}, {"to": 9}, {"to": 1},
              {"strides": [2, 2]}, {"axis": [1]}, {"axes": [0]}, {"axes": "no"}]  # fmt: skip


@st.composite
def odd_graphs(draw: Any) -> onnx.ModelProto:
    """Nodes of any operators on any inputs: most run nowhere."""
    sizes = st.sampled_from([None, "n", "s0", "a + b", "a-b", 0, 1, 3, 300, -1])
    count = draw(st.integers(1, 3))
    inputs: list[Any] = [
        (f"x{i}", draw(st.sampled_from(CODES)), draw(st.none() | st.lists(sizes, max_size=5)))
        for i in range(count)
    ]
    weights = {
        "w1": normal(4), "w2": normal(4, 4), "w4": normal(4, 4, 3, 3), "i0": np.array(3),
        "i1": np.array([1, 0]), "nan": np.float32(np.nan), "none": np.zeros((0, 3), np.float32),
    }  # fmt: skip
    names = [spec[0] for spec in inputs] + [*weights, ""]
    nodes = []
    for i in range(draw(st.integers(0, 8))):
        used = draw(st.lists(st.sampled_from(names), max_size=4))
        attributes = draw(st.sampled_from(ATTRIBUTES))
        domain = draw(st.sampled_from(["", "com.microsoft"]))
        op = draw(st.sampled_from(OPS))
        nodes.append(helper.make_node(op, used, [f"y{i}"], domain=domain, **attributes))
        names.append(f"y{i}")
    outputs: list[Any] = [(nodes[-1].output[0], F32, None)] if nodes else []
    return build(nodes, inputs, outputs, weights)


@given(model=odd_graphs())
@settings(max_examples=60, deadline=None)
def test_a_wrong_guess_is_allowed_and_an_exception_is_not(model: onnx.ModelProto) -> None:
    feeds = guesses(model)[:6]
    for feed in feeds:
        for spec in model.graph.input:
            array = feed[spec.name]
            assert array.dtype == helper.tensor_dtype_to_np_dtype(spec.type.tensor_type.elem_type)
            assert array.size > 0
    line = describe(feeds, ir.from_proto(model))
    assert "\n" not in line and bool(line) == bool(feeds)


def test_the_analysis_is_fast_on_a_large_graph() -> None:
    """Each input is followed through thousands of nodes once, not once a reader."""
    nodes = [node("Unsqueeze", "mask one", "m0"), node("Cast", "m0", "m", to=F32)]
    nodes += [node("Mul", f"{f'y{i - 1}' if i else 'e'} m_{i % 7}", f"y{i}") for i in range(3000)]
    nodes[2:2] = [node("Identity", "m", f"m_{i}") for i in range(7)]
    nodes.append(node("Identity", "y2999", "y"))
    model = embedded(nodes, [("mask", I64, ["batch", "seq"])], {"one": np.array([2])})
    seen = kinds(model)
    assert seen["mask"].role is Role.MASK and seen["ids"].role is Role.IDS


# The line ----------------------------------------------------------------------------------------


def test_one_line_says_what_was_made_up() -> None:
    nodes = [
        node("Equal", "mask zero", "hidden"),
        node("Unsqueeze", "hidden last", "h3"),
        node("Where", "h3 low e", "y"),
    ]
    weights = {"zero": np.array(0), "last": np.array([2]), "low": np.float32(-1e9)}
    model = embedded(nodes, [("mask", I64, ["batch", "seq"])], weights)
    feeds = guesses(model)[:2]
    assert describe(feeds, ir.from_proto(model)) == (
        "ids int64 [1, 16] and [2, 32] spread over 50 rows; "
        "mask int64 [1, 16] and [2, 32] ones, one row short"
    )
    assert describe(feeds[:1], ir.from_proto(model)) == (
        "ids int64 [1, 16] spread over 50 rows; mask int64 [1, 16] ones"
    )
    assert describe([], ir.from_proto(model)) == ""


def test_inputs_that_are_alike_are_one_entry() -> None:
    names = [f"past{i}" for i in range(8)]
    nodes = [node("Concat", f"{name} e", f"y{i}", axis=1) for i, name in enumerate(names)]
    nodes.append(node("Sum", " ".join(f"y{i}" for i in range(8)), "y"))
    inputs: list[Any] = [(name, F32, ["batch", "past", WIDE]) for name in names]
    model = embedded(nodes, inputs, {})
    line = describe([accepted(model, 1)[0][1]], ir.from_proto(model))
    assert "past0 and 7 like it float32 [1, 8, 16] past, normal" in line


def test_feeds_of_describe_run(tmp_path: Any) -> None:
    """Pictures and text as they are said."""
    nodes = [node("Conv", "x k", "h", strides=[8, 8]), node("GlobalAveragePool", "h", "y")]
    model = build(nodes, [("x", F32, ["n", 3, "h", "w"])], [("y", F32, None)],
                  {"k": normal(4, 3, 8, 8)})  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    feeds = guesses(model)[:2]
    assert [session.run(None, feed)[0].shape[0] for feed in feeds] == [1, 2]
    assert describe(feeds, ir.from_proto(model)) == (
        "x float32 [1, 3, 224, 224] and [2, 3, 224, 256] image of shapes and print, 0 to 1"
    )


def test_question_marks_are_no_name() -> None:
    """As Paddle's exporter calls every open axis: they are not all one size."""
    nodes = [node("Conv", "x k", "h", strides=[8, 8]), node("GlobalAveragePool", "h", "y")]
    model = build(nodes, [("x", F32, ["?", 3, "?", "?"])], [("y", F32, None)],
                  {"k": normal(4, 3, 8, 8)})  # fmt: skip
    assert [feed["x"].shape for feed in guesses(model)][:2] == [(1, 3, 224, 224), (2, 3, 224, 256)]
    fixed = FixedShapes.of({"x": (1, 3, 48, 192)}, ir.from_proto(model).graph)
    assert guesses(model, fixed=fixed)[0]["x"].shape == (1, 3, 48, 192)


def test_masks_of_pixels_are_as_large_as_the_picture() -> None:
    """As DETR takes them, with axes that its exporter calls by other names."""
    nodes = [
        node("Cast", "mask", "m", to=F32),
        node("Unsqueeze", "m one", "m4"),
        node("Mul", "x m4", "seen"),
        node("Conv", "seen k", "y", strides=[16, 16]),
    ]
    inputs: list[Any] = [("x", F32, ["s0", 3, "s1", "s2"]), ("mask", I64, ["s0", "s3", "s4"])]
    weights = {"one": np.array([1]), "k": normal(4, 3, 16, 16)}
    model = build(nodes, inputs, [("y", F32, None)], weights)
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    for _, feed, _ in found:
        assert feed["mask"].shape == (len(feed["x"]), *feed["x"].shape[2:])
    assert not found[1][1]["mask"][1].all() and found[1][1]["mask"][0].all()


def test_a_cache_of_grouped_queries() -> None:
    """GroupQueryAttention wants the place of each row's last token, and how long all is."""
    nodes = [
        node("MatMul", "e wq", "q"),
        node("MatMul", "e wk", "k"),
        node("MatMul", "e wv", "v"),
        helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "last", "total"],
            ["y", "pk", "pv"], domain="com.microsoft", num_heads=2, kv_num_heads=1,
        ),
    ]  # fmt: skip
    past = ["batch", 1, "past_len", 8]
    inputs: list[Any] = [
        ("past_k", F32, past), ("past_v", F32, past), ("last", I32, ["batch"]), ("total", I32, [])
    ]  # fmt: skip
    weights = {"wq": normal(WIDE, 16), "wk": normal(WIDE, 8), "wv": normal(WIDE, 8)}
    model = embedded(nodes, inputs, weights)
    roles = {name: kind.role for name, kind in kinds(model).items()}
    assert roles["past_k"] is Role.PAST and roles["last"] is roles["total"] is Role.LENGTHS
    feed = guesses(model)[1]
    total = feed["past_k"].shape[2] + feed["ids"].shape[1]
    assert feed["total"] == total and feed["last"].tolist() == [total - 1] * 2


@pytest.mark.parametrize("axis", [None, "frames", "s9"])
def test_masks_are_as_long_as_the_features_beside_them(axis: Any) -> None:
    nodes = [
        node("MatMul", "x w", "h"),
        node("Cast", "mask", "m", to=F32),
        node("Unsqueeze", "m two", "m3"),
        node("Mul", "h m3", "y"),
    ]
    last = "frames" if axis == "frames" else "s3" if axis else None
    inputs: list[Any] = [("x", F32, ["n", last, 20]), ("mask", I64, ["n", axis])]
    model = build(nodes, inputs, [("y", F32, None)], {"w": normal(20, 8), "two": np.array([2])})
    number, feed, _ = accepted(model, 1)[0]
    assert number == 0 and feed["mask"].shape == feed["x"].shape[:2] == (1, 96)
