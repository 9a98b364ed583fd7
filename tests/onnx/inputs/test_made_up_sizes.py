"""Sizes of open axes, what stays in proportion, odd graphs, and the line that says it all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from octavo.onnx.inputs import FixedShapes, describe
from octavo.onnx.inputs.roles import Role
from octavo.onnx.inputs.sizes import evaluate
from tests.graphs import BOOL, F32, INT32, INT64, build, normal, run, text
from tests.onnx.inputs.made_up_graphs import WIDE, accepted, embedded, guesses, kinds

PICTURE = "h = Conv <strides = [8, 8]> (x, k) y = GlobalAveragePool (h)"
BY_8 = {"k": normal(4, 3, 8, 8)}


def looked_up(axes: str) -> onnx.ModelProto:
    table = {"table": normal(99, WIDE)}
    return text("y = Gather (table, ids)", f"int64[{axes}] ids", weights=table)


@pytest.mark.parametrize("axes", ["batch, seq", "s0, s1", "s77, s1", "?, ?"])
def test_the_first_axis_is_the_batch_and_stays_small(axes: str) -> None:
    """Whatever the exporter calls it; never 512 x 512 tokens."""
    shapes = [feed["ids"].shape for feed in guesses(looked_up(axes))]
    assert shapes[0] == (1, 16) and shapes[1] == (2, 32)
    assert max(np.prod(shape) for shape in shapes) <= 512
    at_one = shapes.index((1, 1))
    assert any(batch == 1 and length > 1 for batch, length in shapes[:at_one])
    assert sum(batch > 1 for batch, _ in shapes[:4]) == 2


def test_fixed_axes_stay() -> None:
    shapes = [feed["ids"].shape for feed in guesses(looked_up("1, 128"))]
    assert shapes == [(1, 128)] * 2
    assert {feed["ids"].shape[1] for feed in guesses(looked_up("b, 77"))} == {77}


def test_axes_of_different_names_are_different_once_and_equal_once() -> None:
    body, inputs = "x = Gather (table, a) y = Gather (table, b)", "int64[n, s1] a, int64[n, s2] b"
    found = guesses(text(body, inputs, "float[] x, float[] y", {"table": normal(9, 2)}))
    assert [feed["a"].shape == feed["b"].shape for feed in found][:2] == [True, False]
    assert all(len(feed["a"]) == len(feed["b"]) for feed in found)


@pytest.mark.parametrize("total", ["total", "past + len", None, "s64"])
def test_masks_cover_a_past_and_the_tokens_behind_it(total: str | None) -> None:
    body = """all = Concat <axis = 1> (past, e)
        seen = Cast <to = 9> (mask)
        seen3 = Unsqueeze (seen, last)
        y = Where (seen3, all, zero)"""
    weights = {"last": np.array([2]), "zero": np.float32(0)}
    model = embedded(body, f"float[batch, past, {WIDE}] past, int64[batch, ?] mask", weights)
    ids, _, mask = (given.type.tensor_type.shape.dim[1] for given in model.graph.input)
    ids.dim_param, mask.dim_param = "len", total or ""
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


@pytest.mark.parametrize("sizes", SUMS)
def test_sums_of_sizes(sizes: str) -> None:
    assert evaluate(sizes, lambda name: {"past": 4, "len": 3}[name]) == SUMS[sizes]


def test_rows_of_features_are_several_at_once() -> None:
    model = text("y = MatMul (x, w)", "float[n, 12] x", weights={"w": normal(12, 3)})
    shapes = [feed["x"].shape for feed in guesses(model)]
    assert shapes[:2] == [(8, 12), (3, 12)] and (1, 12) in shapes


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("seq(float[n, 4])", "y = ConcatFromSequence <axis = 0> (x)"),
        ("optional(float[n, 4])", "z = OptionalGetElement (x) y = Relu (z)"),
    ],
)
def test_sequences_and_optionals(kind: str, body: str) -> None:
    model = text(body, f"{kind} x", opset=18)
    number, feed, (output,) = accepted(model, 1)[0]
    assert number == 0 and output.shape[-1] == 4 and output.std() > 0
    assert "normal" in describe([feed], ir.from_proto(model))


def test_texts_are_those_that_the_model_knows() -> None:
    values = {"keys_strings": ["red", "green", "blue"], "values_floats": [1.0, 2.0, 3.0]}
    node = helper.make_node("LabelEncoder", ["w"], ["y"], domain="ai.onnx.ml", **values)
    model = build([node], {"w": (TensorProto.STRING, ["n", 2])}, ["y"])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    words = set(guesses(model)[0]["w"].ravel())
    assert words <= {"red", "green", "blue"} and len(words) > 1


def test_masks_and_tables_of_microsoft_operators() -> None:
    body = """e, m = com.microsoft.EmbedLayerNormalization <epsilon = 1e-5>
            (ids, types, w, p, s, g, b, mask)
        y = com.microsoft.Attention <num_heads = 2> (e, qkv, bias, m)"""
    weights = {"w": normal(70, WIDE), "p": normal(64, WIDE), "s": normal(2, WIDE)}
    weights |= {"g": normal(WIDE), "b": normal(WIDE)}
    weights |= {"qkv": normal(WIDE, 3 * WIDE), "bias": normal(3 * WIDE)}
    inputs = ", ".join(f"int32[batch, seq] {name}" for name in ("ids", "types", "mask"))
    model = text(body, inputs, weights=weights)
    roles = [kind.role for kind in kinds(model).values()]
    assert roles == [Role.IDS, Role.TYPES, Role.MASK]
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    assert not found[1][1]["mask"].all() and found[1][1]["mask"][0].all()


CODES = [
    F32, INT64, INT32, BOOL, TensorProto.STRING, TensorProto.UINT8, TensorProto.UINT64,
    TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8,
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
    return build(nodes, inputs, [nodes[-1].output[0]] if nodes else [], weights)


@given(model=odd_graphs())
@settings(max_examples=30, deadline=None)
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
    body = "m0 = Unsqueeze (mask, one) m = Cast <to = 1> (m0) y0 = Mul (e, m_0) "
    body += " ".join(f"m_{i} = Identity (m)" for i in range(7))
    body += " ".join(f" y{i} = Mul (y{i - 1}, m_{i % 7})" for i in range(1, 3000))
    weights = {"one": np.array([2])}
    seen = kinds(embedded(f"{body} y = Identity (y2999)", "int64[batch, seq] mask", weights))
    assert seen["mask"].role is Role.MASK and seen["ids"].role is Role.IDS


def test_one_line_says_what_was_made_up() -> None:
    body = """hidden = Equal (mask, zero)
        h3 = Unsqueeze (hidden, last)
        y = Where (h3, low, e)"""
    weights = {"zero": np.array(0), "last": np.array([2]), "low": np.float32(-1e9)}
    model = embedded(body, "int64[batch, seq] mask", weights)
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
    past = range(8)
    body = " ".join(f"y{i} = Concat <axis = 1> (past{i}, e)" for i in past)
    body += f" y = Sum ({', '.join(f'y{i}' for i in past)})"
    inputs = ", ".join(f"float[batch, past, {WIDE}] past{i}" for i in past)
    model = embedded(body, inputs)
    line = describe([accepted(model, 1)[0][1]], ir.from_proto(model))
    assert "past0 and 7 like it float32 [1, 8, 16] past, normal" in line


def test_pictures_of_two_sizes_run_and_are_said_to_be_pictures() -> None:
    model = text(PICTURE, "float[n, 3, h, w] x", weights=BY_8)
    feeds = guesses(model)[:2]
    assert [run(model, feed)[0].shape[0] for feed in feeds] == [1, 2]
    assert describe(feeds, ir.from_proto(model)) == (
        "x float32 [1, 3, 224, 224] and [2, 3, 224, 256] image of shapes and print, 0 to 1"
    )


def test_question_marks_are_no_name() -> None:
    """As Paddle's exporter calls every open axis: they are not all one size."""
    model = text(PICTURE, "float[n, 3, h, w] x", weights=BY_8)
    for i in (0, 2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[i].dim_param = "?"
    assert [feed["x"].shape for feed in guesses(model)][:2] == [(1, 3, 224, 224), (2, 3, 224, 256)]
    fixed = FixedShapes.of({"x": (1, 3, 48, 192)}, ir.from_proto(model).graph)
    assert guesses(model, fixed=fixed)[0]["x"].shape == (1, 3, 48, 192)


def test_masks_of_pixels_are_as_large_as_the_picture() -> None:
    """As DETR takes them, with axes that its exporter calls by other names."""
    body = """m = Cast <to = 1> (mask)
        m4 = Unsqueeze (m, one)
        seen = Mul (x, m4)
        y = Conv <strides = [16, 16]> (seen, k)"""
    weights = {"one": np.array([1]), "k": normal(4, 3, 16, 16)}
    found = accepted(text(body, "float[s0, 3, s1, s2] x, int64[s0, s3, s4] mask", weights=weights))
    assert [number for number, _, _ in found] == [0, 1, 2]
    for _, feed, _ in found:
        assert feed["mask"].shape == (len(feed["x"]), *feed["x"].shape[2:])
    assert not found[1][1]["mask"][1].all() and found[1][1]["mask"][0].all()


def test_a_cache_of_grouped_queries() -> None:
    """GroupQueryAttention wants the place of each row's last token, and how long all is."""
    body = """q = MatMul (e, wq)
        k = MatMul (e, wk)
        v = MatMul (e, wv)
        y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1>
            (q, k, v, past_k, past_v, last, total)"""
    past = "float[batch, 1, past_len, 8]"
    weights = {"wq": normal(WIDE, 16), "wk": normal(WIDE, 8), "wv": normal(WIDE, 8)}
    inputs = f"{past} past_k, {past} past_v, int32[batch] last, int32 total"
    model = embedded(body, inputs, weights)
    roles = {name: kind.role for name, kind in kinds(model).items()}
    assert roles["past_k"] is Role.PAST and roles["last"] is roles["total"] is Role.LENGTHS
    feed = guesses(model)[1]
    total = feed["past_k"].shape[2] + feed["ids"].shape[1]
    assert feed["total"] == total and feed["last"].tolist() == [total - 1] * 2


@pytest.mark.parametrize(("frames", "mask"), [("?", "?"), ("frames", "frames"), ("s3", "s9")])
def test_masks_are_as_long_as_the_features_beside_them(frames: str, mask: str) -> None:
    body = """h = MatMul (x, w)
        m = Cast <to = 1> (mask)
        m3 = Unsqueeze (m, two)
        y = Mul (h, m3)"""
    inputs = f"float[n, {frames}, 20] x, int64[n, {mask}] mask"
    model = text(body, inputs, weights={"w": normal(20, 8), "two": np.array([2])})
    number, feed, _ = accepted(model, 1)[0]
    assert number == 0 and feed["mask"].shape == feed["x"].shape[:2] == (1, 96)


def strided(rows: int, kernel: int, strides: int = 1) -> onnx.ModelProto:
    """Rows and columns without a batch, as signals have them, in two convolutions unpadded."""
    body = f"""x4 = Unsqueeze (x, axes)
        h = Conv <strides = [1, {strides}]> (x4, k1)
        g = Relu (h)
        y = Conv (g, k2)"""
    weights = {"axes": np.array([0, 1]), "k1": normal(4, 1, rows, kernel)}
    return text(body, "float[a, b] x", weights={**weights, "k2": normal(4, 4, 1, kernel)})


def reshaped(shape: list[int], axes: str) -> onnx.ModelProto:
    return text("y = Reshape (x, to)", f"float[{axes}] x", weights={"to": np.array(shape)})


def joined(axis: int) -> onnx.ModelProto:
    """Several open axes that have to be equal, under different names."""
    body = f"s = Add (x, z) h = Conv (s, k) y = Concat <axis = {axis}> (h, h)"
    return text(body, "float[a, 2, c] x, float[d, 2, e] z", weights={"k": normal(4, 2, 700)})


NEEDS = {
    "rows and columns": (strided(3, 40), (80, 80)),
    "more rows than a batch": (strided(20, 40), (80, 80)),
    "strides": (strided(5, 30, 3), (128, 128)),
    "channels of a picture": (strided(400, 1), (512, 512)),
    "a multiple of 105": (reshaped([-1, 105], "a, b"), (105, 105)),
    "a multiple of 7": (reshaped([-1, 7], "a, 3"), (7, 3)),
    "a multiple of 9 and 11": (reshaped([9, 11, -1], "a"), (27720,)),
    "a length beyond 512": (joined(2), (1, 2, 840)),
}


@pytest.mark.parametrize("name", NEEDS)
def test_sizes_grow_until_the_model_runs(name: str) -> None:
    model, expected = NEEDS[name]
    assert accepted(model) == []
    (_, feed, _), *_ = accepted(model, grows=True)
    assert {value.shape for value in feed.values()} == {expected}


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    "body", ["h = {op} (x, c)", "h = {op} (c, x)", "r = Relu (x) h = {op} (r, c)"]
)
def test_a_constant_for_each_element_tells_sizes(op: str, body: str) -> None:
    """Means and scales of each frequency; an axis of 1 tells none."""
    for shape, ends in (((80,), (80,)), ((80, 3), (80, 3)), ((1, 90, 1), (90, None))):
        made = text(
            f"{body.format(op=op)} y = Exp (h)", "float[a, b, c] x", weights={"c": normal(*shape)}
        )
        for feed in guesses(made):
            found = feed["x"].shape[-len(ends) :]
            assert all(n in (m, None) for n, m in zip(ends, found, strict=True))
        assert accepted(made)


def test_tokens_grow_in_length_and_not_in_number() -> None:
    shapes = [feed["ids"].shape for feed in guesses(looked_up("batch, seq"), grows=True)]
    assert {batch for batch, _ in shapes} == {1}
    assert max(length for _, length in shapes) > 10_000
