"""Inputs to compare on: given in several forms, or made up so that the float model accepts them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from octavo.errors import InputDataError
from octavo.onnx import OnnxTarget, quantize_dynamic
from octavo.onnx.constants import Constants
from octavo.onnx.inputs import MOST_ELEMENTS, made_up, read_inputs
from octavo.onnx.run import inputs as tuning_inputs
from octavo.results.report import Verification
from tests.graphs import F32, build, checked, mlp, normal, opened, refused, save, text

I64, BOOL, STRING = TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path / "m.onnx")


def converted(source: Path, given: Any) -> Verification:
    return checked(source, source.parent, check_inputs=given)


def test_every_form_gives_the_same_result(tmp_path: Path, source: Path) -> None:
    x = normal(5, 32)
    np.savez(tmp_path / "x.npz", x=x)
    (tmp_path / "x.jsonl").write_text("\n" + json.dumps({"x": x.tolist()}) + "\n\n")
    forms = [
        tmp_path / "x.npz", str(tmp_path / "x.jsonl"), {"x": x}, [{"x": x}], ({"x": x},),
        {"x": x.tolist()}, {"x": x.astype(np.float64)}, iter([{"x": x}]),
        {"x": x, "label": np.zeros(5)},  # the labels of a file for tuning are left out
    ]  # fmt: skip
    found = [converted(source, form) for form in forms]
    for v in found:
        assert (v.status, v.inputs, v.runs) == ("passed", "given", 1)
        assert v.error == pytest.approx(found[0].error, rel=1e-9)
    assert converted(source, [{"x": x}, {"x": x[:1]}]).runs == 2


@pytest.mark.parametrize("shape", [(3, 32), (32,)], ids=["batches", "samples"])
def test_a_line_of_jsonl_is_a_run(tmp_path: Path, source: Path, shape: tuple[int, ...]) -> None:
    """With the batch axis or without."""
    lines = [json.dumps({"x": normal(*shape, seed=n).tolist()}) for n in range(3)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    v = converted(source, tmp_path / "x.jsonl")
    assert (v.status, v.runs) == ("passed", 3)


BAD: list[tuple[Any, list[str]]] = [
    ({"y": [[0.0] * 32]}, ["run 0", "no input 'y'", "Known: x"]),
    ({"X": [[0.0] * 32]}, ["no input 'X'", "Known: x"]),
    ({}, ["'x' is missing", "takes x"]),
    ([], ["holds no runs", ".npz or .jsonl"]),
    ([{"x": [[0.0] * 32]}, {}], ["run 1", "'x' is missing"]),
    ({"x": 0.0}, ["'x' has the shape []", "takes [m,32]"]),
    ({"x": [[0.0] * 31]}, ["'x' has the shape [1, 31]", "32]"]),
    ({"x": [0.0] * 31}, ["'x' has the shape"]),
    ({"x": [[[0.0] * 32]]}, ["'x' has the shape [1, 1, 32]"]),
    ({"x": [["a"] * 32]}, ["input 'x'", "could not convert"]),
    ({"x": [[0.0], [1.0, 2.0]]}, ["input 'x'", "inhomogeneous"]),
    ({"x": None}, ["input 'x'"]),
    (["x"], ["run 0", "a run maps names", "str"]),
    ([None], ["run 0", "NoneType"]),
    (7, ["check_inputs is a int", "mapping"]),
    (io.StringIO("{}"), ["check_inputs is a StringIO", ".npz or .jsonl"]),
    (np.zeros(3), ["run 0", "float64"]),
    ("nothing.npz", ["nothing.npz", "no such file"]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "texts"), BAD, ids=lambda v: str(v).partition(" at 0x")[0][:30])
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
    graph = ir.from_proto(passed_on(("x", code, ["n"]))).graph
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
    for given in ({"x": normal(2, 32)}, {"x": normal(2, 32), "s": 3.0}, None):
        assert converted(path, given).status == "passed"


def test_what_only_the_float_model_can_tell(tmp_path: Path) -> None:
    """Indices out of the table fit the input's type and shape."""
    weights = {"table": normal(30, 64), "w": normal(64, 64)}
    model = text("e = Gather (table, ids) y = MatMul (e, w)", "int64[n] ids", weights=weights)
    path = save(model, tmp_path / "m.onnx")
    with refused(tmp_path, InputDataError, "the float model rejects the inputs that were given"):
        converted(path, {"ids": [3, 30]})


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({"x": normal(32)}, r"input 'x' has the shape \[32\], and the model takes \['m', 32\]"),
        ({"x": np.array(["[1 2]"], object)[None]}, "input 'x' holds texts, and the model takes"),
        ({"x_0": normal(4)}, r"no input 'x_0'.*A vector is one value, such as a column x of lists"),
    ],
)
def test_what_an_evaluation_gives_and_a_model_does_not_take(
    source: Path, feed: dict[str, np.ndarray], words: str
) -> None:
    with pytest.raises(InputDataError, match=words):
        OnnxTarget(source).float_model().run(feed)


def guesses(model: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
    parsed = ir.from_proto(model)
    return list(made_up(parsed, Constants(model.opset_import[0].version)))


def first(*inputs: tuple[str, int, Any]) -> dict[str, np.ndarray]:
    return guesses(passed_on(*inputs))[0]


def passed_on(*inputs: tuple[str, int, Any]) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", [n], [f"{n}_out"]) for n, _, _ in inputs]
    return build(nodes, inputs, [(f"{n}_out", code, shape) for n, code, shape in inputs])


def test_one_name_one_size() -> None:
    feed = first(("a", F32, ["batch", "seq", 3]), ("b", F32, ["seq", "batch"]))
    batch, seq, three = feed["a"].shape
    assert three == 3 and feed["b"].shape == (seq, batch) and batch != seq


def test_dimensions_without_a_name() -> None:
    feed = first(("a", F32, [None, None, 3]), ("b", F32, [None, 5]))
    assert feed["a"].shape[0] == feed["b"].shape[0]
    assert feed["a"].shape[2] == 3 and feed["b"].shape[1] == 5


def test_no_inputs_and_inputs_with_defaults() -> None:
    weights = {"a": normal(2, 64), "w": normal(64, 64)}
    model = text("y = MatMul (a, w)", "", weights=weights)
    assert guesses(model)[0] == {}
    model.graph.input.append(helper.make_tensor_value_info("a", F32, [2, 64]))
    assert guesses(model)[0] == {}


def test_guesses_stay_small_where_the_model_states_no_large_input() -> None:
    open_axes = ("x", F32, ["n", "c", "h", "w"]), ("z", F32, ["d1", "d2", "d3", "d4"])
    sizes = [sum(a.size for a in feed.values()) for feed in guesses(passed_on(*open_axes))]
    assert len(sizes) > 5 and max(sizes) <= MOST_ELEMENTS
    large = ("x", I64, [1, MOST_ELEMENTS + 1])
    assert first(large)["x"].size > MOST_ELEMENTS
    assert guesses(passed_on(("x", F32, [2, 0]))) == []


# Fails unless the sequence is at least so long.
SIZED = "s = Slice (x, zero, end, axis1) r = Reshape (s, rows) y = MatMul (r, w)"


def sized(least: int) -> tuple[str, str, dict[str, Any]]:
    weights = {"end": np.array([least]), "rows": np.array([0, least * 4])}
    return SIZED, "float[n, s, 4] x", weights | {"w": normal(least * 4, 64)}


GRAPHS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # All dimensions symbolic; only the weight tells that there are 3 channels.
    "unknown channels": (
        """h = Conv <strides = [4, 4]> (x, k)
        h2 = Conv <strides = [4, 4]> (h, k2)
        g = GlobalAveragePool (h2)
        f = Flatten (g)
        y = Gemm <transB = 1> (f, w)""",
        "float[n, c, h, w] x",
        {"k": normal(8, 3, 7, 7), "k2": normal(64, 8, 7, 7), "w": normal(40, 64)},
    ),
    # A signal of at least 20 rows and 79 columns; a Reshape takes multiples of 105 numbers.
    "a least size": (
        """x4 = Unsqueeze (x, axes)
        h = Conv (x4, k)
        g = Conv (h, k2)
        r = Reshape (x, rows)
        y = MatMul (r, w)""",
        "float[a, b] x",
        {
            "axes": np.array([0, 1]),
            "k": normal(4, 1, 20, 40),
            "k2": normal(4, 4, 1, 40),
            "rows": np.array([-1, 105]),
            "w": normal(105, 48),
        },
    ),
    "unknown rank": ("i = Identity (x) y = MatMul (i, w48)", "float[] x", {}),
    "recurrent": (
        "y = LSTM <hidden_size = 24> (x, W, R)",
        "float[t, b, f] x",
        {"W": normal(1, 96, 20), "R": normal(1, 96, 24)},
    ),
    "at least 100 steps": sized(100),
    "one step": sized(1),
}
SHARED = {"axis1": np.array([1]), "zero": np.array([0]), "w48": normal(48, 48)}


def model_of(name: str) -> onnx.ModelProto:
    body, inputs, weights = GRAPHS[name]
    return text(body, inputs, weights=SHARED | weights)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_guess_is_accepted(tmp_path: Path, name: str) -> None:
    v = checked(model_of(name), tmp_path, op_types_to_quantize=["MatMul", "Gemm", "LSTM", "Conv"])
    assert v.status == "passed", v.detail
    assert v.inputs == "made up" and v.runs in (1, 2)
    assert v.error is not None and 0 < v.error < 0.05


def test_what_cannot_be_guessed_is_said(tmp_path: Path) -> None:
    """Two inputs whose symbolic dimensions have to be different."""
    body = "c = Concat <axis = 1> (a, b) r = Reshape (c, rows) y = MatMul (r, w)"
    weights = {"rows": np.array([1, 37]), "w": normal(37, 64)}
    path = save(text(body, "float[1, m] a, float[1, n] b", weights=weights), tmp_path / "m.onnx")
    report = quantize_dynamic(path, tmp_path / "out.onnx")
    v = report.verification
    assert (v.status, v.inputs, v.error) == ("unchecked", "made up", None)
    assert "no inputs could be made up that the float model accepts" in v.detail
    assert "--inputs" in str(report)
    assert (tmp_path / "out.onnx").exists()
    given = {"a": normal(1, 30), "b": normal(1, 7)}
    assert checked(path, tmp_path, check_inputs=given).status == "passed"


def test_sizes_grow_for_a_search_too_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = OnnxTarget(save(model_of("a least size"), tmp_path / "m.onnx"))
    feeds = target.made_up({}, 0)
    assert {feed["x"].shape for feed in feeds} == {(105, 105)}
    assert len(feeds) > 1
    assert [feed["x"].shape for feed in target.made_up({"x": (21, 105)}, 0)] == [(21, 105)] * 4
    monkeypatch.setattr(tuning_inputs, "_SECONDS", 0.0)
    with pytest.raises(InputDataError, match=r"no inputs could be made up .*; give shapes"):
        target.made_up({}, 0)


PUBLIC = (
    "silero initializers, silero slice_concat, silero inside_if, silero outer_scope, silero gemm, "
    "magika, minilm torchscript, minilm dynamo"
).split(", ")


def public(name: str) -> Any:
    from benchmarks.zoo import magika, minilm_export, silero

    model, _, form = name.partition(" ")
    if model == "magika":
        return magika.model_path()
    if model == "minilm":
        return minilm_export.onnx_path(form)
    return silero.more_forms()[form] if form in ("outer_scope", "gemm") else silero.forms()[form]


@pytest.mark.sweep(3)
@pytest.mark.models
@pytest.mark.parametrize("name", PUBLIC)
def test_public_models_pass_on_inputs_that_are_made_up(tmp_path: Path, name: str) -> None:
    report = quantize_dynamic(public(name), tmp_path / "out.onnx")
    v = report.verification
    assert v.status == "passed", v.detail
    assert v.error is not None and 0 < v.error < 0.05
    assert report.quantized
    opened(tmp_path / "out.onnx")
