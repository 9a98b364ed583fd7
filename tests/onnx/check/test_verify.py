"""The comparison with the float model: what it measures, what it refuses, whom it blames."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from octavo.core.metrics import cosine_error, relative_error
from octavo.errors import VerificationError
from octavo.onnx import quantize_dynamic
from octavo.onnx.check import coverage
from octavo.onnx.check import verify as module
from octavo.recipe import preset
from tests.graphs import F32, build, mlp, normal, refused, run, save


def strict(max_error: float, name: str = "int8") -> Any:
    from dataclasses import replace

    return replace(preset(name), max_error=max_error)


# What it measures --------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["int8", "int8-per-tensor", "float16"])
@pytest.mark.parametrize("as_proto", [False, True], ids=["path", "ModelProto"])
def test_the_error_is_that_of_an_independent_computation(
    tmp_path: Path, recipe: str, as_proto: bool
) -> None:
    """Half the squared distance over the squared length, over all runs of the worst output."""
    model = mlp(3, 64)
    path, out = save(model, tmp_path / "m.onnx"), tmp_path / "out.onnx"
    feeds = [{"x": normal(n, 64, seed=n)} for n in (1, 7, 30)]
    report = quantize_dynamic(model if as_proto else path, out, recipe=recipe, check_inputs=feeds)
    a = np.concatenate([run(path, f)[0].astype(np.float64).ravel() for f in feeds])
    b = np.concatenate([run(out, f)[0].astype(np.float64).ravel() for f in feeds])
    error = 0.5 * ((a - b) ** 2).sum() / (a**2).sum()
    cosine = 1 - (a @ b) / np.sqrt((a @ a) * (b @ b))
    v = report.verification
    assert (v.status, v.runs, v.inputs, v.detail) == ("passed", 3, "given", "")
    assert v.error == pytest.approx(error, rel=1e-6) and error > 0
    assert v.cosine_error == pytest.approx(cosine, rel=1e-3)
    assert v.max_error == preset(recipe).max_error


def test_metrics() -> None:
    a, b = normal(1000), normal(1000, seed=1)
    assert relative_error(a, a) == 0
    assert cosine_error(a, a) == pytest.approx(0, abs=1e-12)
    assert relative_error(a, 2 * a) == pytest.approx(0.5)
    assert cosine_error(a, 2 * a) == pytest.approx(0, abs=1e-12)
    assert cosine_error(a, b) == pytest.approx(1, abs=0.1)
    assert relative_error(np.zeros(3), np.ones(3)) == np.inf


def two_outputs(factor: float) -> onnx.ModelProto:
    """`good` is exact up to rounding; `bad` is a difference that nearly cancels."""
    w = normal(64, 64)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["good"], name="good"),
        helper.make_node("MatMul", ["x", "w2"], ["other"], name="other"),
        helper.make_node("Sub", ["good", "other"], ["bad"]),
    ]
    outputs = [("good", F32, ["m", 64]), ("bad", F32, ["m", 64])]
    weights = {"w": w, "w2": (w + normal(64, 64, seed=1) * factor).astype(np.float32)}
    return build(nodes, [("x", F32, ["m", 64])], outputs, weights)


def test_the_worst_output_counts(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    x = {"x": normal(20, 64)}
    report = quantize_dynamic(two_outputs(0.05), out, check_inputs=x)
    source = save(two_outputs(0.05), tmp_path / "m.onnx")
    errors = [relative_error(a, b) for a, b in zip(run(source, x), run(out, x), strict=True)]
    assert errors[1] > 10 * errors[0]
    assert report.verification.error == pytest.approx(errors[1], rel=1e-6)
    with refused(tmp_path, VerificationError, "at output 'bad'", "above the recipe's max_error"):
        quantize_dynamic(two_outputs(0.05), out, recipe=strict(errors[1] / 2), check_inputs=x)


def test_float16_and_double_outputs_are_compared(tmp_path: Path) -> None:
    for code in (TensorProto.FLOAT16, TensorProto.DOUBLE):
        model = mlp(1, 64)
        model.graph.node.append(helper.make_node("Cast", ["y"], ["z"], to=code))
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", code, ["m", 64]))
        v = quantize_dynamic(model, tmp_path / "out.onnx").verification
        assert v.status == "passed" and v.error is not None and 0 < v.error < 1e-3


def test_the_same_infinities_are_no_error(tmp_path: Path) -> None:
    """Attention masks add -inf; where both models have it there is nothing to compare."""
    model = mlp(1, 64)
    mask = np.zeros(64, np.float32)
    mask[::2] = -np.inf
    model.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    model.graph.node.append(helper.make_node("Add", ["y", "mask"], ["z"]))
    model.graph.output[0].name = "z"
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert v.status == "passed" and v.error is not None and 0 < v.error < 1e-3


# What it cannot compare ------------------------------------------------------------------------


def label_model() -> onnx.ModelProto:
    model = mlp(1, 64)
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["label"], axis=1))
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("label", TensorProto.INT64, ["m", 1])
    )
    return model


def test_without_floating_point_outputs_nothing_is_claimed(tmp_path: Path) -> None:
    v = quantize_dynamic(label_model(), tmp_path / "out.onnx").verification
    assert v.status == "compared" and v.error is not None and 0 < v.error < 1e-3
    assert v.detail == "before ArgMax 'label', whose output holds no floating-point numbers"
    model = mlp(1, 64)
    model.graph.node.append(helper.make_node("Log", ["minus"], ["nan"]))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(-1), "minus"))
    model.graph.node.append(helper.make_node("Mul", ["y", "nan"], ["z"]))
    model.graph.output[0].name = "z"
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert v.status == "compared" and "before Mul 'z', whose output holds no finite" in v.detail
    assert v.error is not None and 0 < v.error < 1e-3


def test_equal_outputs_are_pointed_out(tmp_path: Path) -> None:
    """A comparison that never reached the quantized layers shows nothing."""
    out = helper.make_tensor_value_info("o", F32, ["m", 64])
    then = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["o"], name="never")], "t", [], [out]
    )
    other = helper.make_graph([helper.make_node("Relu", ["x"], ["o"])], "e", [], [out])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["number"], keepdims=0),
        helper.make_node("Greater", ["number", "limit"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    weights = {"w": normal(64, 64), "limit": np.float32(1e9)}
    model = build(nodes, [("x", F32, ["m", 64])], [("y", F32, ["m", 64])], weights)
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert (v.status, v.error, v.unreached) == ("unchecked", None, ("never",))
    assert "equal to the last bit" in v.detail
    given = {"x": normal(3, 64) + np.float32(2e9)}
    v = quantize_dynamic(model, tmp_path / "out.onnx", check_inputs=given).verification
    assert v.detail == "" and v.error is not None and v.error > 0


def test_inputs_that_show_nothing_are_followed_by_others(tmp_path: Path) -> None:
    """Sums over fewer than 30 steps are cut off: only longer ones show a difference."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="mm"),
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Greater", ["s", "thirty"], ["long"]),
        helper.make_node("Where", ["long", "h", "zero"], ["y"]),
    ]
    weights = {"w": normal(64, 64), "thirty": np.array([30]), "zero": np.float32(0)}
    model = build(nodes, [("x", F32, ["steps", 64])], [("y", F32, ["steps", 64])], weights)
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert v.status == "passed" and v.error is not None and v.error > 0 and v.detail == ""


BAD = np.where(np.arange(64)[:, None] == 0, np.float32(1e3), normal(64, 16) * np.float32(1e-3))
"""Quantized per channel nothing is left of it but the first row, which is multiplied by 0."""


def two_branches(chosen_by: str, bad: str) -> onnx.ModelProto:
    """A layer in each branch of an If, the one in the branch `bad` ruined by quantization."""

    def branch(name: str) -> onnx.GraphProto:
        nodes = [helper.make_node("MatMul", ["x0", f"w_{name}"], ["o"], name=f"in_{name}")]
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info("o")])

    choice: Any = ("flag", TensorProto.BOOL, [])
    nodes = [helper.make_node("Mul", ["x", "mask"], ["x0"])]
    if chosen_by == "rate":
        choice = ("rate", TensorProto.INT64, [])
        nodes.append(helper.make_node("Equal", ["rate", "fast"], ["flag"]))
    bodies = {"then_branch": branch("then"), "else_branch": branch("else")}
    nodes.append(helper.make_node("If", ["flag"], ["y"], **bodies))
    weights = {"mask": np.float32([0] + [1] * 63), "fast": np.array(16000)}
    weights |= {f"w_{n}": BAD if n == bad else normal(64, 16) for n in ("then", "else")}
    return build(nodes, [choice, ("x", F32, ["m", 64])], [("y", F32, None)], weights)


@pytest.mark.parametrize("bad", ["then", "else"])
@pytest.mark.parametrize("chosen_by", ["flag", "rate"])
def test_every_branch_is_compared(chosen_by: str, bad: str, tmp_path: Path) -> None:
    model = two_branches(chosen_by, bad)
    with refused(tmp_path, VerificationError, f"Look at layer 'in_{bad}'"):
        quantize_dynamic(model, tmp_path / "out.onnx")
    v = quantize_dynamic(two_branches(chosen_by, "no"), tmp_path / "out.onnx").verification
    assert (v.status, v.runs, v.detail, v.unreached) == ("passed", 3, "", ())


def test_layers_that_given_inputs_do_not_lead_to_are_named(tmp_path: Path) -> None:
    model, out = two_branches("flag", "else"), tmp_path / "out.onnx"
    feeds = [{"flag": True, "x": normal(3, 64)}]
    v = quantize_dynamic(model, out, check_inputs=feeds).verification
    assert (v.status, v.runs) == ("passed", 1)
    assert "do not lead to the quantized layer in_else" in v.detail and "--inputs" in v.detail
    assert v.unreached == ("in_else",)
    feeds.append({"flag": False, "x": normal(3, 64)})
    assert quantize_dynamic(model, out, check_inputs=feeds).verification.detail == ""


def test_loops_are_not_looked_into(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"], name="step"),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", F32, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", F32, None),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["times", "", "x"], ["z"], body=body),
        helper.make_node("MatMul", ["z", "w"], ["y"], name="last"),
    ]
    inputs: list[Any] = [("times", TensorProto.INT64, []), ("x", F32, ["m", 64])]
    model = build(nodes, inputs, [("y", F32, None)], {"w": normal(64, 64)})
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert (v.status, v.detail) == ("passed", "")
    feed = {"times": 20_000, "x": np.zeros((3, 64), np.float32)}
    started = time.perf_counter()
    quantize_dynamic(model, tmp_path / "out.onnx", check_inputs=feed)
    assert time.perf_counter() - started < 20  # a profile of all turns has a gigabyte


def test_many_inputs_are_looked_at_together(tmp_path: Path, monkeypatch: Any) -> None:
    model, out = two_branches("flag", "no"), tmp_path / "out.onnx"
    feeds = [{"flag": True, "x": normal(3, 64)}] * 200
    asked = []
    real = coverage._profile
    monkeypatch.setattr(coverage, "_profile", lambda *a: asked.append(a) or real(*a))
    v = quantize_dynamic(model, out, check_inputs=feeds).verification
    assert "layer in_else" in v.detail and len(asked) == 1
    monkeypatch.setattr(coverage, "PROFILING_SECONDS", 0.0)
    v = quantize_dynamic(model, out, check_inputs=feeds).verification
    assert "do not, in the time there was for it, lead to the quantized layers in_" in v.detail


def test_what_cannot_be_looked_at_stops_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(coverage, "_profile", full)
    v = quantize_dynamic(two_branches("flag", "no"), tmp_path / "out.onnx").verification
    assert (v.status, v.runs, v.detail) == ("passed", 2, "")


@pytest.mark.parametrize("code", [TensorProto.UINT8, TensorProto.INT8, TensorProto.INT64])
def test_the_largest_number_of_a_type_chooses_a_branch(code: int, tmp_path: Path) -> None:
    model = two_branches("rate", "no")
    dtype = helper.tensor_dtype_to_np_dtype(code)
    model.graph.input[0].type.tensor_type.elem_type = code
    fast = next(t for t in model.graph.initializer if t.name == "fast")
    fast.CopyFrom(numpy_helper.from_array(np.array(np.iinfo(dtype).max, dtype), "fast"))
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert (v.status, v.runs, v.detail) == ("passed", 3, "")


def test_a_float_model_that_does_not_load(tmp_path: Path) -> None:
    """The float model needs an operator that is not registered; its quantized form would too."""
    model = mlp()
    model.graph.node[1].domain = "own"
    model.opset_import.append(helper.make_opsetid("own", 1))
    path = save(model, tmp_path / "m.onnx")
    with refused(
        tmp_path,
        VerificationError,
        "does not load the quantized model",
        "nor the float model",
        "verify=False",
    ):
        quantize_dynamic(path, tmp_path / "out.onnx")
    report = quantize_dynamic(path, tmp_path / "out.onnx", verify=False)
    assert report.verification.status == "skipped" and len(report.quantized) == 2


def test_only_the_float_model_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it is beyond 2 GB as a ModelProto."""

    def too_large(source: Any) -> str:
        return "the message is too large"

    monkeypatch.setattr(module, "open_float", too_large)
    v = quantize_dynamic(mlp(), tmp_path / "out.onnx").verification
    assert v.status == "unchecked" and v.runs == 0 and v.error is None
    assert v.detail == ("the float model does not load in ONNX Runtime: the message is too large")
    run(tmp_path / "out.onnx", {"x": normal(1, 32)})


def test_a_message_that_cannot_be_serialized(tmp_path: Path, monkeypatch: Any) -> None:
    """onnx.ModelProto ends at 2 GB."""

    from google.protobuf.message import EncodeError

    from octavo.onnx.read.load import Source

    def origin(self: Source) -> Any:
        class Message:
            def SerializeToString(self) -> bytes:
                raise EncodeError("Message onnx.ModelProto exceeds maximum protobuf size of 2GB")

        return Message()

    monkeypatch.setattr(Source, "origin", property(origin))
    v = quantize_dynamic(mlp(), tmp_path / "out.onnx").verification
    assert v.status == "unchecked" and "maximum protobuf size of 2GB" in v.detail


# What it refuses ---------------------------------------------------------------------------------


def outliers(layers: int, broken: int, width: int = 64) -> onnx.ModelProto:
    """Orthogonal layers, so that every layer keeps the length of its rows; one is broken.

    The broken layer's inputs get one column of 3e5, which its weight takes back: the float model
    hardly notices, and quantized rows have nothing left for the other columns.
    """
    rng = np.random.default_rng(5)
    nodes, weights, x = [], {}, "x"
    for i in range(layers):
        w = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
        if i == broken:
            spike = np.zeros(width, np.float32)
            spike[7] = 3e5
            weights[f"spike{i}"] = spike
            nodes.append(helper.make_node("Add", [x, f"spike{i}"], [f"s{i}"]))
            x = f"s{i}"
            w[7] = 0
        weights[f"w{i}"] = w
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"h{i}"], name=f"layer{i}"))
        x = f"h{i}"
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    return build(nodes, [("x", F32, ["m", width])], [("y", F32, ["m", width])], weights)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("broken", range(6))
@pytest.mark.parametrize("as_proto", [False, True], ids=["path", "ModelProto"])
def test_the_broken_layer_is_named(tmp_path: Path, broken: int, as_proto: bool) -> None:
    model = outliers(6, broken)
    path, out = save(model, tmp_path / "m.onnx"), tmp_path / "out.onnx"
    out.write_bytes(b"what was here")
    given = model if as_proto else path
    with refused(
        tmp_path, VerificationError, f"Look at layer 'layer{broken}' first", "too far",
        "max_error 0.1", "inputs that were made up", "nodes_to_exclude, --exclude",
    ):  # fmt: skip
        quantize_dynamic(given, out)
    try:
        quantize_dynamic(given, out)
    except VerificationError as error:
        assert error.layer == f"layer{broken}" and error.exit_code == 5
    report = quantize_dynamic(given, out, nodes_to_exclude=[f"layer{broken}"])
    assert report.verification.error is not None and report.verification.error < 0.01


@pytest.mark.parametrize("how", ["no names", "external", "hub", "function", "float16"])
def test_the_broken_layer_is_named_in_other_models_too(tmp_path: Path, how: str) -> None:
    model, name = outliers(6, 3), "layer3"
    path = tmp_path / "m.onnx"
    if how == "no names":
        for node in model.graph.node:
            node.name = ""
        name = "MatMul:h3"
    if how == "function":
        own = helper.make_opsetid("own", 1)
        call = helper.make_node("Call", ["h3"], ["h3c"], domain="own")
        body = [helper.make_node("Identity", ["a"], ["b"])]
        model.functions.append(
            helper.make_function("own", "Call", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
        )
        model.opset_import.append(own)
        position = [n.name for n in model.graph.node].index("layer4")
        model.graph.node[position].input[0] = "h3c"
        model.graph.node.insert(position, call)
    if how == "float16":
        for tensor in model.graph.initializer:
            half = numpy_helper.to_array(tensor).clip(-6e4, 6e4).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    if how == "hub":
        (tmp_path / "blob").mkdir()
        save(model, tmp_path / "blob" / "1", external="2")
        moved = onnx.load(tmp_path / "blob" / "1", load_external_data=False)
        for tensor in moved.graph.initializer:
            tensor.external_data[0].value = "m.data"
        (tmp_path / "blob" / "1").write_bytes(moved.SerializeToString())
        path.symlink_to(tmp_path / "blob" / "1")
        (tmp_path / "m.data").symlink_to(tmp_path / "blob" / "2")
    else:
        save(model, path, **({"external": "m.data"} if how == "external" else {}))
    recipe = strict(0.01) if how == "float16" else None
    with refused(tmp_path, VerificationError, f"Look at layer {name!r} first"):
        quantize_dynamic(path, tmp_path / "out.onnx", recipe=recipe)


def test_the_run_that_differs_most_is_the_one_to_look_at(tmp_path: Path) -> None:
    """Only one of the given runs has the outlier, and it is not the first."""
    model = outliers(6, 9)
    spiked = normal(4, 64)
    spiked[:, 3] = 1e6
    w = np.zeros((64, 64), np.float32)
    w[3], w[:, 0] = 0, 1e-3
    # The outlier is dropped by the first layer's weight, and with it what the row had left.
    first = numpy_helper.to_array(model.graph.initializer[0]).copy()
    first[3] = 0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(first, "w0"))
    feeds = [{"x": normal(4, 64, seed=1)}, {"x": spiked}]
    with refused(tmp_path, VerificationError, "Look at layer 'layer0'", "that were given"):
        quantize_dynamic(model, tmp_path / "out.onnx", check_inputs=feeds)


def test_layers_in_a_branch_are_blamed_by_their_weights(tmp_path: Path) -> None:
    """Their outputs cannot be looked at from outside."""
    out = helper.make_tensor_value_info("o", F32, ["m", 64])
    inner = outliers(2, 1)
    nodes = [*inner.graph.node[:-1], helper.make_node("Identity", ["h1"], ["o"])]
    then = helper.make_graph(nodes, "t", [], [out])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "e", [], [out])
    cond = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    weights = {t.name: numpy_helper.to_array(t) for t in inner.graph.initializer}
    inputs: list[Any] = [("x", F32, ["m", 64]), ("c", TensorProto.BOOL, [])]
    model = build([cond], inputs, [("y", F32, ["m", 64])], weights)
    with refused(tmp_path, VerificationError, "Look at layer 'layer"):
        quantize_dynamic(model, tmp_path / "out.onnx")


def division() -> onnx.ModelProto:
    """1 / (tiny weight's product): quantized together with large columns it becomes 1 / 0."""
    w = normal(64, 8)
    w[:, 1] = 1e-6
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["h"], name="mm"),
        helper.make_node("Gather", ["h", "one"], ["g"], axis=1),
        helper.make_node("Reciprocal", ["g"], ["r"]),
        helper.make_node("Concat", ["h", "r"], ["y"], axis=1),
    ]
    return build(
        nodes,
        [("x", F32, ["m", 64])],
        [("y", F32, ["m", 9])],
        {"w": w, "one": np.array([1])},
    )


def test_numbers_that_only_quantization_makes_infinite(tmp_path: Path) -> None:
    path = save(division(), tmp_path / "m.onnx")
    with refused(
        tmp_path, VerificationError, "output 'y' of the quantized model holds 8 non-finite numbers",
        "where the float model's are finite", "Look at layer 'mm'",
    ):  # fmt: skip
        quantize_dynamic(path, tmp_path / "out.onnx", per_channel=False, check_inputs={
            "x": normal(8, 64)
        })  # fmt: skip
    assert quantize_dynamic(path, tmp_path / "out.onnx").verification.status == "passed"


def nan_from_zero() -> onnx.ModelProto:
    model = division()
    for node in model.graph.node:
        if node.op_type == "Reciprocal":
            node.op_type = "Div"
            node.input[:] = ["g", "g"]
    return model


def test_nan_that_only_quantization_makes(tmp_path: Path) -> None:
    with refused(tmp_path, VerificationError, "non-finite numbers", "Look at layer 'mm'"):
        quantize_dynamic(nan_from_zero(), tmp_path / "out.onnx", per_channel=False)


def test_outputs_whose_shape_depends_on_the_data(tmp_path: Path) -> None:
    """Boxes found, tokens kept: their number may change."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="mm"),
        helper.make_node("Greater", ["h", "x"], ["keep"]),
        helper.make_node("Where", ["keep", "h", "zero"], ["kept"]),
        helper.make_node("NonZero", ["keep"], ["where"]),
        helper.make_node("Cast", ["where"], ["y"], to=F32),
    ]
    weights = {"w": np.eye(64, dtype=np.float32), "zero": np.float32(0)}
    model = build(nodes, [("x", F32, ["m", 64])], [("y", F32, None)], weights)
    v = quantize_dynamic(model, tmp_path / "out.onnx").verification
    assert v.status == "compared" and v.error is not None and 0 < v.error < 1e-3
    assert "before Greater 'keep', which decides what follows" in v.detail
    assert "with the float model's Greater 'keep'" in v.detail


def test_the_quantized_model_fails_where_the_float_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails:
        def run(self, *_: Any) -> Any:
            raise RuntimeError("Non-zero status code returned\nwhile running\nMatMul")

    monkeypatch.setattr(module, "_open_quantized", lambda *_: Fails())
    with refused(
        tmp_path, VerificationError,
        "fails on inputs that the float model accepts: Non-zero status code returned while running",
    ):  # fmt: skip
        quantize_dynamic(mlp(), tmp_path / "out.onnx")


def test_a_quantized_model_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(module, "session", refuses)
    with refused(
        tmp_path, VerificationError,
        f"ONNX Runtime {ort.__version__} does not load the quantized model: no such kernel",
    ):  # fmt: skip
        quantize_dynamic(mlp(), tmp_path / "out.onnx")


def test_a_result_at_the_bound_passes(tmp_path: Path) -> None:
    x = {"x": normal(9, 32)}
    out = tmp_path / "out.onnx"
    error = quantize_dynamic(mlp(), out, check_inputs=x).verification.error
    assert error is not None
    quantize_dynamic(mlp(), out, check_inputs=x, recipe=strict(error * 1.001))
    with refused(tmp_path, VerificationError, "too far"):
        quantize_dynamic(mlp(), out, check_inputs=x, recipe=strict(error * 0.999))


def test_verification_can_be_skipped(tmp_path: Path) -> None:
    v = quantize_dynamic(outliers(6, 2), tmp_path / "out.onnx", verify=False).verification
    assert (v.status, v.inputs, v.runs, v.error) == ("skipped", "none", 0, None)
    assert (tmp_path / "out.onnx").exists()
