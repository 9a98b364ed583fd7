"""Inputs to compare on: given in several forms, or made up so that the float model accepts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from octavo.errors import InputDataError
from octavo.onnx import quantize_dynamic
from octavo.onnx.constants import Constants
from octavo.onnx.inputs import MOST_ELEMENTS, branches, made_up, read_inputs
from octavo.recipe import Report
from tests.graphs import F32, build, mlp, normal, refused, save

I64, BOOL, STRING = TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


# Given -------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path / "m.onnx")


def converted(source: Path, given: Any) -> Report:
    return quantize_dynamic(source, source.parent / "out.onnx", check_inputs=given)


def test_every_form_gives_the_same_result(tmp_path: Path, source: Path) -> None:
    x = normal(5, 32)
    np.savez(tmp_path / "x.npz", x=x)
    (tmp_path / "x.jsonl").write_text("\n" + json.dumps({"x": x.tolist()}) + "\n\n")
    forms = [
        tmp_path / "x.npz", str(tmp_path / "x.jsonl"), {"x": x}, [{"x": x}], ({"x": x},),
        {"x": x.tolist()}, {"x": x.astype(np.float64)}, iter([{"x": x}]),
    ]  # fmt: skip
    reports = [converted(source, form) for form in forms]
    for report in reports:
        v = report.verification
        assert (v.status, v.inputs, v.runs) == ("passed", "given", 1)
        assert v.error == pytest.approx(reports[0].verification.error, rel=1e-9)
    assert converted(source, [{"x": x}, {"x": x[:1]}]).verification.runs == 2


def test_a_line_of_jsonl_is_a_run(tmp_path: Path, source: Path) -> None:
    lines = [json.dumps({"x": normal(n, 32).tolist()}) for n in (1, 2, 3)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert converted(source, tmp_path / "x.jsonl").verification.runs == 3


BAD: list[tuple[Any, list[str]]] = [
    ({"y": [[0.0] * 32]}, ["run 0", "no input 'y'", "Known: x"]),
    ({"X": [[0.0] * 32]}, ["no input 'X'", "Known: x"]),
    ({}, ["'x' is missing", "takes x"]),
    ([], ["holds no runs", ".npz or .jsonl"]),
    ([{"x": [[0.0] * 32]}, {}], ["run 1", "'x' is missing"]),
    ({"x": 0.0}, ["'x' has the shape []", "takes [m,32]"]),
    ({"x": [[0.0] * 31]}, ["'x' has the shape [1, 31]", "32]"]),
    ({"x": [[[0.0] * 32]]}, ["'x' has the shape [1, 1, 32]"]),
    ({"x": [["a"] * 32]}, ["input 'x'", "could not convert"]),
    ({"x": [[0.0], [1.0, 2.0]]}, ["input 'x'", "inhomogeneous"]),
    ({"x": None}, ["input 'x'"]),
    (["x"], ["run 0", "a run maps names", "str"]),
    ([None], ["run 0", "NoneType"]),
    (7, ["check_inputs is a int", "mapping"]),
    (np.zeros(3), ["run 0", "float64"]),
    ("nothing.npz", ["nothing.npz", "no such file"]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "texts"), BAD, ids=lambda v: str(v)[:30])
def test_inputs_that_do_not_fit(tmp_path: Path, source: Path, given: Any, texts: list[str]) -> None:
    with refused(tmp_path, InputDataError, *texts):
        converted(source, given)


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("x.npz", b"text", ["x.npz", "cannot be read"]),
        ("x.npz", b"PK\x03\x04" + b"\0" * 40, ["x.npz", "cannot be read"]),
        ("x.jsonl", b'{"x": [[1]]}\n{"x": ', ["x.jsonl, line 2", "cannot be read"]),
        ("x.jsonl", b"[1, 2]\n", ["x.jsonl, line 1", "a run maps names", "list"]),
        ("x.jsonl", b"\n \n", ["x.jsonl", "holds no runs"]),
        ("x.jsonl", b"\xff\xfe\n", ["x.jsonl", "cannot be read"]),
        ("x.npy", b"", ["suffix is '.npy'", "give a .npz or .jsonl"]),
        ("inputs", b"", ["suffix is ''", "give a .npz or .jsonl"]),
    ],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, source: Path, name: str, content: bytes, texts: list[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(tmp_path, InputDataError, *texts):
        converted(source, tmp_path / name)


def test_pickles_are_not_read(tmp_path: Path, source: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{"a": 1}], dtype=object))
    with refused(tmp_path, InputDataError, "cannot be read", "allow_pickle"):
        converted(source, tmp_path / "x.npz")


def typed(code: int, shape: list[Any]) -> ir.Graph:
    node = helper.make_node("Identity", ["x"], ["y"])
    return ir.from_proto(build([node], [("x", code, shape)], [("y", code, shape)], {})).graph


@pytest.mark.parametrize(
    ("code", "given", "fits"),
    [
        (I64, [1, 2], True),
        (I64, [1.0, 2.0], True),
        (I64, [1.5, 2.0], False),
        (I64, [float("nan"), 0], False),
        (TensorProto.UINT8, [0, 255], True),
        (TensorProto.UINT8, [0, 256], False),
        (TensorProto.UINT8, [-1, 0], False),
        (TensorProto.INT32, [1 << 40, 0], False),
        (BOOL, [True, False], True),
        (BOOL, [1, 0], True),
        (BOOL, [2, 0], False),
        (F32, [1, 2], True),
        (F32, [0.1, float("inf")], True),
        (F32, np.array([0.1, 0.2]), True),
        (TensorProto.FLOAT16, [0.1, 7], True),
        (STRING, ["a", "b"], True),
        (STRING, [1, 2], False),
        (TensorProto.DOUBLE, np.float32([1, 2]), True),
    ],
)
def test_values_are_converted_where_that_keeps_them(code: int, given: Any, fits: bool) -> None:
    graph = typed(code, ["n"])
    if not fits:
        with pytest.raises(InputDataError, match=r"input 'x' takes .* cannot hold what is given"):
            read_inputs({"x": given}, graph)
        return
    array = read_inputs({"x": given}, graph)[0]["x"]
    assert array.dtype == helper.tensor_dtype_to_np_dtype(code)
    assert array.shape == (2,)


def test_an_input_with_a_default_may_be_left_out_or_given(tmp_path: Path) -> None:
    model = mlp()
    model.graph.input.append(helper.make_tensor_value_info("s", F32, []))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(2), "s"))
    model.graph.node.append(helper.make_node("Mul", ["y", "s"], ["z"]))
    model.graph.output[0].name = "z"
    path = save(model, tmp_path / "m.onnx")
    for given in ({"x": normal(2, 32)}, {"x": normal(2, 32), "s": 3.0}):
        assert converted(path, given).verification.status == "passed"
    assert converted(path, None).verification.status == "passed"


def test_what_only_the_float_model_can_tell(tmp_path: Path) -> None:
    """Indices out of the table fit the input's type and shape."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embed"),
        helper.make_node("MatMul", ["e", "w"], ["y"], name="mm"),
    ]
    weights = {"table": normal(30, 64), "w": normal(64, 64)}
    path = save(
        build(nodes, [("ids", I64, ["n"])], [("y", F32, ["n", 64])], weights), tmp_path / "m.onnx"
    )
    with refused(tmp_path, InputDataError, "the float model rejects the inputs that were given"):
        converted(path, {"ids": [3, 30]})


# Made up -----------------------------------------------------------------------------------------


def guesses(model: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
    parsed = ir.from_proto(model)
    return list(made_up(parsed, Constants(model.opset_import[0].version)))


def first(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return guesses(model)[0]


def relu(*inputs: tuple[str, int, Any], **options: Any) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", [n], [f"{n}_out"]) for n, _, _ in inputs]
    outputs = [(f"{n}_out", code, shape) for n, code, shape in inputs]
    return build(nodes, list(inputs), outputs, {}, **options)


def test_the_same_every_time() -> None:
    for a, b in zip(guesses(mlp()), guesses(mlp()), strict=True):
        assert np.array_equal(a["x"], b["x"])


def test_one_name_one_size() -> None:
    feed = first(relu(("a", F32, ["batch", "seq", 3]), ("b", F32, ["seq", "batch"])))
    batch, seq, three = feed["a"].shape
    assert three == 3 and feed["b"].shape == (seq, batch) and batch != seq


def test_dimensions_without_a_name() -> None:
    feed = first(relu(("a", F32, [None, None, 3]), ("b", F32, [None, 5])))
    assert feed["a"].shape[0] == feed["b"].shape[0]
    assert feed["a"].shape[2] == 3 and feed["b"].shape[1] == 5


def test_sums_of_dimensions() -> None:
    """As decoders with a cache state them."""
    model = relu(
        ("past", F32, ["batch", 4, "past_len", 8]),
        ("ids", I64, ["batch", "len"]),
        ("mask", I64, ["batch", "past_len + len"]),
        ("next", I64, ["batch", "past_len + 1"]),
    )
    feed = first(model)
    past, length = feed["past"].shape[2], feed["ids"].shape[1]
    assert feed["mask"].shape[1] == past + length and feed["next"].shape[1] == past + 1


def test_sizes_that_a_layer_asks_for(tmp_path: Path) -> None:
    """Batches of a weight, and rows of what a Gemm adds."""
    fused = helper.make_node(
        "FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", transB=1, name="fused"
    )
    batches = {"w": normal(2, 8, 16)}
    added = {"w": normal(16, 8), "c": normal(5, 8)}
    gemm = helper.make_node("Gemm", ["x", "w", "c"], ["y"], name="gemm")
    for node, shape, weights in ((fused, [None] * 3, batches), (gemm, ["m", 16], added)):
        model = build([node], [("x", F32, shape)], [("y", F32, None)], weights)
        v = quantize_dynamic(model, tmp_path / "out.onnx").verification
        assert (v.status, v.detail) == ("passed", "")


@pytest.mark.parametrize(
    ("code", "shape"),
    [
        (F32, []), (TensorProto.DOUBLE, [2]), (TensorProto.FLOAT16, ["n", 3]),
        (TensorProto.BFLOAT16, [2]), (BOOL, ["n"]), (BOOL, []), (I64, []), (STRING, ["n", 1]),
        (STRING, []), (TensorProto.UINT8, ["n", 3, 16, 16]), (TensorProto.INT8, [3]),
        (TensorProto.UINT64, [1]), (TensorProto.COMPLEX64, [2]), (F32, [-1, 3]),
    ],
    ids=str,
)  # fmt: skip
def test_types_and_ranks(code: int, shape: list[Any]) -> None:
    for feed in guesses(relu(("x", code, shape))):
        x = feed["x"]
        assert x.ndim == len(shape)
        assert x.dtype == helper.tensor_dtype_to_np_dtype(code)
        assert all(
            n == d or not isinstance(d, int) or d < 0 for n, d in zip(x.shape, shape, strict=True)
        )
        if code == TensorProto.UINT8:
            assert x.min() < 30 and x.max() > 225
        if code == STRING:
            assert all(isinstance(item, str) for item in x.ravel())


def test_no_inputs_and_inputs_with_defaults() -> None:
    nodes = [helper.make_node("MatMul", ["a", "w"], ["y"], name="mm")]
    weights = {"a": normal(2, 64), "w": normal(64, 64)}
    model = build(nodes, [], [("y", F32, [2, 64])], weights)
    assert first(model) == {}
    model.graph.input.append(helper.make_tensor_value_info("a", F32, [2, 64]))
    assert first(model) == {}


def test_guesses_stay_small() -> None:
    model = relu(("x", F32, ["n", "c", "h", "w"]), ("z", F32, ["d1", "d2", "d3", "d4"]))
    sizes = [sum(a.size for a in feed.values()) for feed in guesses(model)]
    assert len(sizes) > 5 and max(sizes) <= MOST_ELEMENTS


def test_a_model_that_states_a_large_input_gets_it() -> None:
    assert first(relu(("x", TensorProto.UINT8, [1, 3, 2400, 2400])))["x"].size > MOST_ELEMENTS


def test_empty_inputs_are_not_tried() -> None:
    assert guesses(relu(("x", F32, [2, 0]))) == []


# That the float model accepts them -------------------------------------------------------------


def if_on_rate() -> onnx.ModelProto:
    """Rates other than 16000 get a branch that wants another width."""
    out = helper.make_tensor_value_info("o", F32, None)
    graphs = [
        helper.make_graph(
            [
                helper.make_node("Reshape", ["x", shape], [f"{k}x"]),
                helper.make_node("MatMul", [f"{k}x", k], ["o"], name=k),
            ],
            k,
            [],
            [out],
        )
        for k, shape in (("w16", "to64"), ("w7", "to7"))
    ]
    nodes = [
        helper.make_node("Equal", ["rate", "r16"], ["is16"]),
        helper.make_node("If", ["is16"], ["y"], then_branch=graphs[0], else_branch=graphs[1]),
    ]
    weights = {
        **{"w16": normal(64, 40), "w7": normal(7, 40), "r16": np.array(16000)},
        **{"to64": np.array([-1, 64]), "to7": np.array([-1, 7])},
    }
    return build(nodes, [("x", F32, ["n", 64]), ("rate", I64, [])], [("y", F32, None)], weights)


def two_tables() -> onnx.ModelProto:
    """Ids through Cast and Unsqueeze into a large and a small table, and positions."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["i"], to=TensorProto.INT32),
        helper.make_node("Unsqueeze", ["i", "axis"], ["u"]),
        helper.make_node("Squeeze", ["u", "axis"], ["s"]),
        helper.make_node("Gather", ["big", "s"], ["a"], name="big"),
        helper.make_node("Gather", ["small", "ids"], ["b"], name="small", axis=1),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 2, 0]),
        helper.make_node("Gather", ["places", "pos"], ["d"], name="places"),
        helper.make_node("Sum", ["a", "c", "d"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["y"], name="mm"),
    ]
    weights = {
        "big": normal(500, 64),
        "small": normal(64, 5),
        "places": normal(3, 64),
        "w": normal(64, 64),
        "axis": np.array([0]),
    }
    inputs = [("ids", I64, ["b", "s"]), ("pos", I64, ["b", "s"])]
    return build(nodes, inputs, [("y", F32, ["b", "s", 64])], weights)


def unknown_channels() -> onnx.ModelProto:
    """All dimensions symbolic; only the weight tells that there are 3 channels."""
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["h"], name="conv", strides=[4, 4]),
        helper.make_node("Conv", ["h", "k2"], ["h2"], name="conv2", strides=[4, 4]),
        helper.make_node("GlobalAveragePool", ["h2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["y"], name="gemm", transB=1),
    ]
    weights = {"k": normal(8, 3, 7, 7), "k2": normal(64, 8, 7, 7), "w": normal(40, 64)}
    return build(nodes, [("x", F32, ["n", "c", "h", "w"])], [("y", F32, ["n", 40])], weights)


def unknown_rank() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("MatMul", ["i", "w"], ["y"], name="mm"),
    ]
    return build(nodes, [("x", F32, None)], [("y", F32, None)], {"w": normal(48, 48)})


def recurrent() -> onnx.ModelProto:
    nodes = [helper.make_node("LSTM", ["x", "W", "R"], ["y"], name="lstm", hidden_size=24)]
    weights = {"W": normal(1, 96, 20), "R": normal(1, 96, 24)}
    return build(nodes, [("x", F32, ["t", "b", "f"])], [("y", F32, None)], weights)


def images() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=F32),
        helper.make_node("ReduceMean", ["c"], ["m"], axes=[1, 2], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["y"], name="mm"),
    ]
    weights = {"w": normal(3, 600)}
    inputs = [("x", TensorProto.UINT8, ["n", "h", "w", 3])]
    return build(nodes, inputs, [("y", F32, ["n", 600])], weights)


def masked() -> onnx.ModelProto:
    """A boolean mask and an integer one that is a factor."""
    nodes = [
        helper.make_node("Where", ["keep", "x", "zero"], ["a"]),
        helper.make_node("Cast", ["mask"], ["f"], to=F32),
        helper.make_node("Mul", ["a", "f"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="mm"),
    ]
    weights = {"zero": np.float32(0), "w": normal(48, 48)}
    inputs = [("x", F32, ["n", 48]), ("keep", BOOL, ["n", 1]), ("mask", I64, ["n", 1])]
    return build(nodes, inputs, [("y", F32, ["n", 48])], weights)


def strings() -> onnx.ModelProto:
    nodes = [
        helper.make_node("LabelEncoder", ["words"], ["ids"], domain="ai.onnx.ml",
                         keys_strings=["text", "more"], values_floats=[1.0, 2.0]),
        helper.make_node("MatMul", ["ids", "w"], ["y"], name="mm"),
    ]  # fmt: skip
    model = build(nodes, [("words", STRING, ["n", 1])], [("y", F32, ["n", 2000])],
                  {"w": normal(1, 2000)})  # fmt: skip
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return model


def sized(least: int) -> onnx.ModelProto:
    """Fails unless the sequence is at least so long."""
    nodes = [
        helper.make_node("Slice", ["x", "begin", "end", "axis"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="mm"),
    ]
    weights = {
        "begin": np.array([0]), "end": np.array([least]), "axis": np.array([1]),
        "shape": np.array([0, least * 4]), "w": normal(least * 4, 64),
    }  # fmt: skip
    return build(nodes, [("x", F32, ["n", "s", 4])], [("y", F32, ["n", 64])], weights)


GRAPHS = {
    "two tables": two_tables,
    "if on a rate": if_on_rate,
    "unknown channels": unknown_channels,
    "unknown rank": unknown_rank,
    "recurrent": recurrent,
    "images": images,
    "masks": masked,
    "strings": strings,
    "at least 100 steps": lambda: sized(100),
    "one step": lambda: sized(1),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_guess_is_accepted(tmp_path: Path, name: str) -> None:
    report = quantize_dynamic(
        GRAPHS[name](), tmp_path / "out.onnx", ["MatMul", "Gemm", "LSTM", "Conv"]
    )
    v = report.verification
    assert v.status == "passed", v.detail
    assert v.inputs == "made up" and v.runs in (1, 2) and v.error is not None and v.error < 0.05
    if name != "masks":
        assert v.error > 0  # something was multiplied


def test_integers_stay_inside_the_tables_they_index() -> None:
    for feed in guesses(two_tables()):
        assert feed["ids"].min() >= 0 and feed["ids"].max() < 5
        assert feed["pos"].min() >= 0 and feed["pos"].max() < 3
    assert len({int(v) for feed in guesses(two_tables()) for v in feed["ids"].ravel()}) == 5


def test_integers_take_the_constant_they_are_compared_with() -> None:
    model = if_on_rate()
    assert first(model)["rate"] == 16000
    assert branches(ir.from_proto(model), Constants(17)) == 2
    other = made_up(ir.from_proto(model), Constants(17), branch=1)
    assert next(iter(other))["rate"] not in (16000, 1)


def test_what_cannot_be_guessed_is_said(tmp_path: Path) -> None:
    """Two inputs whose symbolic dimensions have to be different."""
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="mm"),
    ]
    weights = {"shape": np.array([1, 37]), "w": normal(37, 64)}
    inputs = [("a", F32, [1, "m"]), ("b", F32, [1, "n"])]
    path = save(build(nodes, inputs, [("y", F32, [1, 64])], weights), tmp_path / "m.onnx")
    v = converted(path, None).verification
    assert (v.status, v.inputs, v.error) == ("unchecked", "made up", None)
    assert "no inputs could be made up that the float model accepts" in v.detail
    assert "--inputs" in str(converted(path, None))
    assert (tmp_path / "out.onnx").exists()
    given = {"a": normal(1, 30), "b": normal(1, 7)}
    assert converted(path, given).verification.status == "passed"


# Public models ---------------------------------------------------------------------------------


def public_models() -> dict[str, Any]:
    from benchmarks.zoo import magika, minilm_export, silero

    return {
        **{f"silero {name}": lambda name=name: silero.forms()[name] for name in
           ("initializers", "slice_concat", "inside_if")},
        **{f"silero {name}": lambda name=name: silero.more_forms()[name] for name in
           ("outer_scope", "gemm")},
        "magika": magika.model_path,
        "minilm torchscript": lambda: minilm_export.onnx_path("torchscript"),
        "minilm dynamo": lambda: minilm_export.onnx_path("dynamo"),
    }  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.models
@pytest.mark.parametrize(
    "name",
    ["silero initializers", "silero slice_concat", "silero inside_if", "silero outer_scope",
     "silero gemm", "magika", "minilm torchscript", "minilm dynamo"],
)  # fmt: skip
def test_public_models_pass_on_inputs_that_are_made_up(tmp_path: Path, name: str) -> None:
    path = public_models()[name]()
    report = quantize_dynamic(path, tmp_path / "out.onnx")
    v = report.verification
    assert v.status == "passed", v.detail
    assert v.error is not None and 0 < v.error < 0.05
    assert report.quantized
    ort.InferenceSession(str(tmp_path / "out.onnx"), providers=["CPUExecutionProvider"])


def test_labels_of_a_file_for_tuning_are_left_out(source: Path) -> None:
    x = normal(4, 32)
    assert converted(source, {"x": x, "label": np.zeros(4)}).verification.runs == 1
