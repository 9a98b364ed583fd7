"""The comparison with the float model: what it measures, what it refuses, whom it blames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from google.protobuf.message import EncodeError
from onnx import TensorProto, helper, numpy_helper

from octavo.core.metrics import cosine_error, relative_error
from octavo.errors import VerificationError
from octavo.onnx import quantize_dynamic
from octavo.onnx.check import coverage
from octavo.onnx.check import verify as module
from octavo.onnx.read.load import Source
from octavo.recipe import Recipe, preset
from tests.graphs import checked, mlp, normal, refused, ruined, run, save, snapshot, text

X, Y = "float[m, 64] x", "float[m, 64] y"


def strict(max_error: float) -> Recipe:
    return replace(preset("int8"), max_error=max_error)


def then(model: onnx.ModelProto, *nodes: onnx.NodeProto, **weights: Any) -> onnx.ModelProto:
    """The model with nodes that make z of its y."""
    model.graph.node.extend(nodes)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    model.graph.output[0].name = "z"
    return model


@pytest.mark.parametrize(
    ("recipe", "as_proto"), [("int8", False), ("int8-per-tensor", True), ("float16", False)]
)
def test_the_error_is_that_of_an_independent_computation(
    tmp_path: Path, recipe: str, as_proto: bool
) -> None:
    """Half the squared distance over the squared length, over all runs of the worst output."""
    model = mlp(3, 64)
    path, out = save(model, tmp_path / "m.onnx"), tmp_path / "out.onnx"
    feeds = [{"x": normal(n, 64, seed=n)} for n in (1, 7, 30)]
    v = checked(model if as_proto else path, tmp_path, recipe=recipe, check_inputs=feeds)
    a = np.concatenate([run(path, f)[0].astype(np.float64).ravel() for f in feeds])
    b = np.concatenate([run(out, f)[0].astype(np.float64).ravel() for f in feeds])
    error = 0.5 * ((a - b) ** 2).sum() / (a**2).sum()
    assert (v.status, v.runs, v.inputs, v.detail) == ("passed", 3, "given", "")
    assert v.error == pytest.approx(error, rel=1e-6) and error > 0
    assert v.cosine_error == pytest.approx(cosine_error(a, b), rel=1e-3)
    assert v.max_error == preset(recipe).max_error


def test_the_worst_output_counts(tmp_path: Path) -> None:
    """`good` is exact up to rounding; `bad` is a difference that nearly cancels."""
    w = normal(64, 64)
    weights = {"w": w, "w2": (w + normal(64, 64, seed=1) * 0.05).astype(np.float32)}
    body = """[good] good = MatMul (x, w)
        [other] other = MatMul (x, w2)
        bad = Sub (good, other)"""
    model = text(body, X, "float[m, 64] good, float[m, 64] bad", weights)
    x = {"x": normal(20, 64)}
    v = checked(model, tmp_path, check_inputs=x)
    pairs = zip(run(model, x), run(tmp_path / "out.onnx", x), strict=True)
    errors = [relative_error(a, b) for a, b in pairs]
    assert errors[1] > 10 * errors[0]
    assert v.error == pytest.approx(errors[1], rel=1e-6)
    with refused(tmp_path, VerificationError, "at output 'bad'", "above the recipe's max_error"):
        checked(model, tmp_path, recipe=strict(errors[1] / 2), check_inputs=x)


@pytest.mark.parametrize("code", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_float16_and_double_outputs_are_compared(tmp_path: Path, code: int) -> None:
    model = then(mlp(1, 64), helper.make_node("Cast", ["y"], ["z"], to=code))
    model.graph.output[0].type.tensor_type.elem_type = code
    v = checked(model, tmp_path)
    assert v.status == "passed" and v.error is not None and 0 < v.error < 1e-3


def test_outputs_of_nan_are_compared_before(tmp_path: Path) -> None:
    nodes = (
        helper.make_node("Log", ["minus"], ["nan"]),
        helper.make_node("Mul", ["y", "nan"], ["z"]),
    )
    v = checked(then(mlp(1, 64), *nodes, minus=np.float32(-1)), tmp_path)
    assert v.status == "compared" and "before Mul 'z', whose output holds no finite" in v.detail
    assert v.error is not None and 0 < v.error < 1e-3


def test_equal_outputs_are_pointed_out(tmp_path: Path) -> None:
    """A comparison that never reached the quantized layers shows nothing."""
    body = """number = ReduceMax <keepdims = 0> (x)
        c = Greater (number, limit)
        y = If (c) <then_branch = t () => (float[m, 64] o) { [never] o = MatMul (x, w) },
                    else_branch = e () => (float[m, 64] o) { o = Relu (x) }>"""
    model = text(body, X, Y, {"w": normal(64, 64), "limit": np.float32(1e9)})
    v = checked(model, tmp_path)
    assert (v.status, v.error, v.unreached) == ("unchecked", None, ("never",))
    assert "equal to the last bit" in v.detail
    v = checked(model, tmp_path, check_inputs={"x": normal(3, 64) + np.float32(2e9)})
    assert v.detail == "" and v.error is not None and v.error > 0


def test_inputs_that_show_nothing_are_followed_by_others(tmp_path: Path) -> None:
    """Sums over fewer than 30 steps are cut off: only longer ones show a difference."""
    body = """[mm] h = MatMul (x, w)
        s = Shape <start = 0, end = 1> (x)
        long = Greater (s, thirty)
        y = Where (long, h, zero)"""
    weights = {"w": normal(64, 64), "thirty": np.array([30]), "zero": np.float32(0)}
    v = checked(text(body, "float[steps, 64] x", "float[steps, 64] y", weights), tmp_path)
    assert v.status == "passed" and v.error is not None and v.error > 0 and v.detail == ""


def two_branches(chosen_by: str, bad: str) -> onnx.ModelProto:
    """A layer in each branch of an If, the one in the branch `bad` ruined by quantization."""
    body = """x0 = Mul (x, mask)
        y = If (flag) <then_branch = t () => (float[] o) { [in_then] o = MatMul (x0, w_then) },
                       else_branch = e () => (float[] o) { [in_else] o = MatMul (x0, w_else) }>"""
    weights = {f"w_{n}": ruined() if n == bad else normal(64, 16) for n in ("then", "else")}
    weights |= {"mask": np.float32([0] + [1] * 63), "fast": np.array(16000)}
    if chosen_by == "flag":
        return text(body, f"bool flag, {X}", weights=weights)
    return text("flag = Equal (rate, fast) " + body, f"int64 rate, {X}", weights=weights)


@pytest.mark.parametrize("bad", ["then", "else"])
@pytest.mark.parametrize("chosen_by", ["flag", "rate"])
def test_every_branch_is_compared(chosen_by: str, bad: str, tmp_path: Path) -> None:
    with refused(tmp_path, VerificationError, f"Look at layer 'in_{bad}'"):
        checked(two_branches(chosen_by, bad), tmp_path)
    v = checked(two_branches(chosen_by, "no"), tmp_path)
    assert (v.status, v.runs, v.detail, v.unreached) == ("passed", 3, "", ())


def test_layers_that_given_inputs_do_not_lead_to_are_named(tmp_path: Path) -> None:
    model = two_branches("flag", "else")
    feeds = [{"flag": True, "x": normal(3, 64)}]
    v = checked(model, tmp_path, check_inputs=feeds)
    assert (v.status, v.runs) == ("passed", 1)
    assert "do not lead to the quantized layer in_else" in v.detail and "--inputs" in v.detail
    assert v.unreached == ("in_else",)
    feeds.append({"flag": False, "x": normal(3, 64)})
    assert checked(model, tmp_path, check_inputs=feeds).detail == ""


def test_many_inputs_are_looked_at_together(tmp_path: Path, monkeypatch: Any) -> None:
    model = two_branches("flag", "no")
    feeds = [{"flag": True, "x": normal(3, 64)}] * 200
    asked = []
    real = coverage._profile
    monkeypatch.setattr(coverage, "_profile", lambda *a: asked.append(a) or real(*a))
    v = checked(model, tmp_path, check_inputs=feeds)
    assert "layer in_else" in v.detail and len(asked) == 1
    monkeypatch.setattr(coverage, "PROFILING_SECONDS", 0.0)
    v = checked(model, tmp_path, check_inputs=feeds)
    assert "do not, in the time there was for it, lead to the quantized layers in_" in v.detail


def fails(error: Exception) -> Callable[..., Any]:
    def raising(*_: Any, **__: Any) -> Any:
        raise error

    return raising


def test_what_cannot_be_looked_at_stops_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(coverage, "_profile", fails(OSError(28, "No space left on device")))
    v = checked(two_branches("flag", "no"), tmp_path)
    assert (v.status, v.runs, v.detail) == ("passed", 2, "")


@pytest.mark.parametrize("code", [TensorProto.UINT8, TensorProto.INT8, TensorProto.INT64])
def test_the_largest_number_of_a_type_chooses_a_branch(code: int, tmp_path: Path) -> None:
    model = two_branches("rate", "no")
    dtype = helper.tensor_dtype_to_np_dtype(code)
    model.graph.input[0].type.tensor_type.elem_type = code
    fast = next(t for t in model.graph.initializer if t.name == "fast")
    fast.CopyFrom(numpy_helper.from_array(np.array(np.iinfo(dtype).max, dtype), "fast"))
    v = checked(model, tmp_path)
    assert (v.status, v.runs, v.detail) == ("passed", 3, "")


def test_a_float_model_that_does_not_load(tmp_path: Path) -> None:
    """The float model needs an operator that is not registered; its quantized form would too."""
    model = mlp()
    model.graph.node[1].domain = "own"
    model.opset_import.append(helper.make_opsetid("own", 1))
    said = "does not load the quantized model", "nor the float model", "verify=False"
    with refused(tmp_path, VerificationError, *said):
        checked(model, tmp_path)
    report = quantize_dynamic(model, tmp_path / "out.onnx", verify=False)
    assert report.verification.status == "skipped" and len(report.quantized) == 2


def test_only_the_float_model_does_not_load(tmp_path: Path, monkeypatch: Any) -> None:
    """As where it is beyond 2 GB as a ModelProto."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "open_float", lambda _: "the message is too large")
        v = checked(mlp(), tmp_path)
    assert (v.status, v.runs, v.error) == ("unchecked", 0, None)
    assert "the message is too large" in v.detail
    run(tmp_path / "out.onnx", {"x": normal(1, 32)})

    class Message:
        SerializeToString = fails(EncodeError("exceeds maximum protobuf size of 2GB"))

    monkeypatch.setattr(Source, "origin", property(lambda _: Message()))
    v = checked(mlp(), tmp_path)
    assert v.status == "unchecked" and "maximum protobuf size of 2GB" in v.detail


def outliers(layers: int, broken: int, width: int = 64) -> onnx.ModelProto:
    """Orthogonal layers, so that every layer keeps the length of its rows; one is broken.

    The broken layer's inputs get one column of 3e5, which its weight takes back: the float model
    hardly notices, and quantized rows have nothing left for the other columns.
    """
    rng = np.random.default_rng(5)
    body, weights, x = "", {}, "x"
    for i in range(layers):
        w = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
        if i == broken:
            weights[f"spike{i}"] = np.where(np.arange(width) == 7, np.float32(3e5), np.float32(0))
            body += f"s{i} = Add ({x}, spike{i}) "
            x = f"s{i}"
            w[7] = 0
        weights[f"w{i}"] = w
        body += f"[layer{i}] h{i} = MatMul ({x}, w{i}) "
        x = f"h{i}"
    return text(body + f"y = Identity ({x})", f"float[m, {width}] x", weights=weights)


@pytest.mark.parametrize(("broken", "as_proto"), [(0, False), (3, True)])
def test_the_broken_layer_is_named(tmp_path: Path, broken: int, as_proto: bool) -> None:
    model = outliers(6, broken)
    path, out = save(model, tmp_path / "m.onnx"), tmp_path / "out.onnx"
    out.write_bytes(b"what was here")
    given = model if as_proto else path
    said = f"Look at layer 'layer{broken}' first", "max_error 0.1", "inputs that were made up"
    before = snapshot(tmp_path)
    with pytest.raises(VerificationError) as caught:
        checked(given, tmp_path)
    said += "too far", "nodes_to_exclude, --exclude"
    assert all(part in str(caught.value) for part in said) and snapshot(tmp_path) == before
    assert caught.value.layer == f"layer{broken}" and caught.value.exit_code == 5
    v = checked(given, tmp_path, nodes_to_exclude=[f"layer{broken}"])
    assert v.error is not None and v.error < 0.01


@pytest.mark.parametrize("how", ["no names", "external", "function", "float16"])
def test_the_broken_layer_is_named_in_other_models_too(tmp_path: Path, how: str) -> None:
    model, name = outliers(6, 3), "layer3"
    path = tmp_path / "m.onnx"
    if how == "no names":
        for node in model.graph.node:
            node.name = ""
        name = "MatMul:h3"
    if how == "function":
        call = helper.make_node("Call", ["h3"], ["h3c"], domain="own")
        body = [helper.make_node("Identity", ["a"], ["b"])]
        known = [helper.make_opsetid("", 17)]
        model.functions.append(helper.make_function("own", "Call", ["a"], ["b"], body, known))
        model.opset_import.append(helper.make_opsetid("own", 1))
        position = [n.name for n in model.graph.node].index("layer4")
        model.graph.node[position].input[0] = "h3c"
        model.graph.node.insert(position, call)
    if how == "float16":
        for tensor in model.graph.initializer:
            half = numpy_helper.to_array(tensor).clip(-6e4, 6e4).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    save(model, path, **({"external": "m.data"} if how == "external" else {}))
    recipe = strict(0.01) if how == "float16" else None
    with refused(tmp_path, VerificationError, f"Look at layer {name!r} first"):
        checked(path, tmp_path, recipe=recipe)


def test_the_run_that_differs_most_is_the_one_to_look_at(tmp_path: Path) -> None:
    """Only one of the given runs has the outlier, and it is not the first."""
    model = outliers(6, 9)
    # The outlier is dropped by the first layer's weight, and with it what the row had left.
    first = numpy_helper.to_array(model.graph.initializer[0]).copy()
    first[3] = 0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(first, "w0"))
    spiked = normal(4, 64)
    spiked[:, 3] = 1e6
    feeds = [{"x": normal(4, 64, seed=1)}, {"x": spiked}]
    with refused(tmp_path, VerificationError, "Look at layer 'layer0'", "that were given"):
        checked(model, tmp_path, check_inputs=feeds)


def test_layers_in_a_branch_are_blamed_by_their_weights(tmp_path: Path) -> None:
    """Their outputs cannot be looked at from outside."""
    inner = outliers(2, 1)
    same = "() => (float[] o) { o = Identity (x) }"
    model = text(f"y = If (c) <then_branch = t {same}, else_branch = e {same}>", f"{X}, bool c")
    branch = model.graph.node[0].attribute[0].g
    branch.ClearField("node")
    branch.node.extend([*inner.graph.node[:-1], helper.make_node("Identity", ["h1"], ["o"])])
    model.graph.initializer.extend(inner.graph.initializer)
    with refused(tmp_path, VerificationError, "Look at layer 'layer"):
        checked(model, tmp_path)


def division(op: str) -> onnx.ModelProto:
    """1 / (tiny weight's product): quantized together with large columns it becomes 1 / 0."""
    w = normal(64, 8)
    w[:, 1] = 1e-6
    body = f"""a = Abs (x)
        [mm] h = MatMul (a, w)
        g = Gather <axis = 1> (h, one)
        r = {op}
        y = Concat <axis = 1> (h, r)"""
    return text(body, X, "float[m, 9] y", {"w": w, "one": np.array([1])})


@pytest.mark.parametrize("op", ["Reciprocal (g)", "Div (g, g)"], ids=["infinite", "NaN"])
def test_numbers_that_only_quantization_makes_infinite_or_nan(op: str, tmp_path: Path) -> None:
    said = (
        "output 'y'",
        "8 non-finite numbers",
        "the float model's are finite",
        "Look at layer 'mm'",
    )
    with refused(tmp_path, VerificationError, *said):
        checked(division(op), tmp_path, per_channel=False, check_inputs={"x": normal(8, 64)})
    assert checked(division(op), tmp_path).status == "passed"


def test_outputs_whose_shape_depends_on_the_data(tmp_path: Path) -> None:
    """Boxes found, tokens kept: their number may change."""
    body = """[mm] h = MatMul (x, w)
        keep = Greater (h, x)
        kept = Where (keep, h, zero)
        where = NonZero (keep)
        y = Cast <to = 1> (where)"""
    v = checked(
        text(body, X, weights={"w": np.eye(64, dtype="f"), "zero": np.float32(0)}), tmp_path
    )
    assert v.status == "compared" and v.error is not None and 0 < v.error < 1e-3
    assert "before Greater 'keep', which decides what follows" in v.detail
    assert "with the float model's Greater 'keep'" in v.detail


def test_the_quantized_model_fails_where_the_float_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails:
        run = fails(RuntimeError("Non-zero status code returned\nwhile running\nMatMul"))

    monkeypatch.setattr(module, "_open_quantized", lambda *_: Fails())
    said = (
        "fails on inputs that the float model accepts: Non-zero status code returned while running"
    )
    with refused(tmp_path, VerificationError, said):
        checked(mlp(), tmp_path)


def test_a_quantized_model_that_does_not_load(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "session", fails(RuntimeError("no such kernel")))
    said = f"ONNX Runtime {ort.__version__} does not load the quantized model: no such kernel"
    with refused(tmp_path, VerificationError, said):
        checked(mlp(), tmp_path)


def test_a_result_at_the_bound_passes(tmp_path: Path) -> None:
    x = {"x": normal(9, 32)}
    error = checked(mlp(), tmp_path, check_inputs=x).error
    assert error is not None
    checked(mlp(), tmp_path, check_inputs=x, recipe=strict(error * 1.001))
    with refused(tmp_path, VerificationError, "too far"):
        checked(mlp(), tmp_path, check_inputs=x, recipe=strict(error * 0.999))


def test_verification_can_be_skipped(tmp_path: Path) -> None:
    v = checked(outliers(6, 2), tmp_path, verify=False)
    assert (v.status, v.inputs, v.runs, v.error) == ("skipped", "none", 0, None)
    assert (tmp_path / "out.onnx").exists()
