"""convert_target: the same integers under the other target's operators."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime.quantization as ortq
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

from octavo.cli import app
from octavo.core.metrics import relative_error
from octavo.errors import ModelError, NothingQuantizedError, OptionError
from octavo.files.metadata import metadata
from octavo.onnx import convert_target, quantize_dynamic, session
from octavo.recipe import Kind, Recipe, Rule, Scheme
from tests import graphs
from tests.graphs import Case, mlp, normal, refused, save

EVERYTHING = Recipe(
    "everything", Scheme(), (Rule(Scheme(), kind=Kind.CONV), Rule(Scheme(), kind=Kind.GRU))
)
PRODUCTS = Recipe("products", Scheme(), (Rule(Scheme(), kind=Kind.ACTIVATION_MATMUL),))
KINDS: dict[str, tuple[Case, Any]] = {
    "linear": (graphs.linear(), "int8"),
    "wide rows and gelu": (graphs.wide(), "int8"),
    "gemm": (graphs.gemm(), "int8"),
    "grouped": (graphs.grouped(), "int8"),
    "table": (graphs.table(), "int8"),
    "tied": (graphs.tied(), "int8"),
    "conv": (graphs.conv(), EVERYTHING),
    "pooled": (graphs.pooled(), EVERYTHING),
    "lstm": (graphs.recurrent("LSTM"), "int8"),
    "attention": (graphs.attention(), "int8"),
    "joint": (graphs.joint(), "int8"),
    "products": (graphs.products(), PRODUCTS),
}
IN_FLOAT: dict[str, tuple[Case, Any]] = {
    "gru": (graphs.recurrent("GRU", linear_before_reset=1), EVERYTHING),
    "gru, reset first": (graphs.recurrent("GRU"), EVERYTHING),
    "rnn": (graphs.recurrent("RNN"), EVERYTHING),
    "rnn, relu": (graphs.recurrent("RNN", activations=["Relu", "Relu"]), EVERYTHING),
}


def quantized(case: Case, recipe: Any, target: str, out: Path, **more: Any) -> Path:
    quantize_dynamic(case[0], out, recipe=recipe, target=target, verify=False, **more)
    return out


def outputs(path: Path, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return list(session(path).run(None, dict(feed)))


def nodes(path: Path) -> Counter[str]:
    """The operators, their domains and the names of those of ours."""
    graph = onnx.load(path).graph
    return Counter(
        f"{n.domain}.{n.op_type} {n.name if n.domain == 'ai.octavo' else ''}" for n in graph.node
    )


def integers(path: Path) -> list[bytes]:
    """Every integer weight, whatever it is called."""
    arrays = [numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer]
    return sorted(a.tobytes() for a in arrays if a.dtype in (np.int8, np.uint8) and a.ndim > 1)


def assert_equal(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        assert np.any(x)
        np.testing.assert_array_equal(x, y)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cpu", ["vnni", "any"])
def test_to_native_is_what_the_float_model_would_give(kind: str, cpu: str, tmp_path: Path) -> None:
    case, recipe = KINDS[kind]
    portable = quantized(case, recipe, "portable", tmp_path / "p.onnx", cpu=cpu)
    native = quantized(case, recipe, "native", tmp_path / "n.onnx")
    done = convert_target(portable, tmp_path / "pn.onnx", to="native")
    assert done.target == "native" and sum(done.layers.values()) >= 1
    assert done.verification.status == "passed"
    assert nodes(tmp_path / "pn.onnx") == nodes(native)
    assert integers(tmp_path / "pn.onnx") == integers(native)
    assert_equal(outputs(tmp_path / "pn.onnx", case[1]), outputs(native, case[1]))


@pytest.mark.sweep(7)
@pytest.mark.parametrize("kind", [k for k in KINDS | IN_FLOAT if k != "products"])
@pytest.mark.parametrize("cpu", ["vnni", "any"])
def test_there_and_back_gives_the_same_integers(kind: str, cpu: str, tmp_path: Path) -> None:
    case, recipe = (KINDS | IN_FLOAT)[kind]
    native = quantized(case, recipe, "native", tmp_path / "n.onnx")
    done = convert_target(native, tmp_path / "p.onnx", to="portable", cpu=cpu)
    assert done.verification.status == "passed"
    assert done.verification.error is not None and done.verification.error < 5e-4
    assert not any(node.startswith("ai.octavo") for node in nodes(tmp_path / "p.onnx"))
    assert metadata(tmp_path / "p.onnx")["octavo.cpu"] == cpu
    convert_target(tmp_path / "p.onnx", tmp_path / "back.onnx", to="native")
    assert integers(tmp_path / "back.onnx") == integers(native)
    assert_equal(outputs(tmp_path / "back.onnx", case[1]), outputs(native, case[1]))


@pytest.mark.parametrize(
    "kind", ["linear", "wide rows and gelu", "grouped", "table", "conv", "pooled"]
)
def test_to_portable_is_what_the_float_model_would_give(kind: str, tmp_path: Path) -> None:
    case, recipe = KINDS[kind]
    native = quantized(case, recipe, "native", tmp_path / "n.onnx")
    portable = quantized(case, recipe, "portable", tmp_path / "p.onnx")
    convert_target(native, tmp_path / "np.onnx", to="portable")
    assert integers(tmp_path / "np.onnx") == integers(portable)
    ours, theirs = (outputs(p, case[1]) for p in (tmp_path / "np.onnx", portable))
    for x, y in zip(ours, theirs, strict=True):
        assert relative_error(y, x) < 1e-11  # GELU as one operator rounds otherwise


def test_products_of_activations_become_float(tmp_path: Path) -> None:
    case, recipe = KINDS["products"]
    native = quantized(case, recipe, "native", tmp_path / "n.onnx")
    done = convert_target(native, tmp_path / "p.onnx", to="portable")
    assert "computed in float" in done.notes[0] and "scores" in done.notes[0]
    a, b = case[1]["a"], case[1]["b"]
    np.testing.assert_allclose(outputs(tmp_path / "p.onnx", case[1])[0], a @ b, 1e-5, 1e-5)


def test_groups_and_float_recurrences_are_in_the_notes(tmp_path: Path) -> None:
    linear = quantized(graphs.linear(), "int8-accurate", "native", tmp_path / "g.onnx")
    done = convert_target(linear, tmp_path / "gp.onnx", to="portable")
    assert any("no groups of 128" in note and "layer0" in note for note in done.notes)
    gru = quantized(*IN_FLOAT["gru"], "native", tmp_path / "gru.onnx")
    done = convert_target(gru, tmp_path / "grup.onnx", to="portable")
    assert any("no integer operator" in note and "rec" in note for note in done.notes)


@pytest.mark.parametrize("kind", ["linear", "gemm", "lstm"])
def test_files_of_onnxruntimes_quantize_dynamic(kind: str, tmp_path: Path) -> None:
    case, _ = KINDS[kind]
    model = save(case[0], tmp_path / "m.onnx")
    ortq.quantize_dynamic(model, tmp_path / "q.onnx", weight_type=ortq.QuantType.QInt8)
    if kind == "gemm":  # it leaves Gemm with these attributes float
        with refused(tmp_path, ModelError, "no quantized layers"):
            convert_target(tmp_path / "q.onnx", tmp_path / "n.onnx", to="native")
        return
    done = convert_target(tmp_path / "q.onnx", tmp_path / "n.onnx", to="native")
    assert any("activations per row" in note for note in done.notes)
    assert done.verification.error is not None and done.verification.error < 1e-2
    truth = outputs(model, case[1])
    for got, expected in zip(outputs(tmp_path / "n.onnx", case[1]), truth, strict=True):
        assert relative_error(expected, got) < 1e-3


def test_what_has_no_operator_stays_and_is_named(tmp_path: Path) -> None:
    recipe = Recipe(
        "mixed", Scheme(), (Rule(Scheme.from_dict(_blocks()), name="layer1"),), max_error=0.3
    )
    portable = quantized(graphs.linear(), recipe, "portable", tmp_path / "p.onnx")
    done = convert_target(portable, tmp_path / "n.onnx", to="native")
    assert done.layers == {"Linear": 2}
    assert any("MatMulNBits" in note and "layer1" in note for note in done.notes)


def test_a_layer_that_no_native_operator_takes_is_refused(tmp_path: Path) -> None:
    """A product with a matrix for each item: it would be written as it is."""
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 4, 64]) for n in "xy"]
    weight = numpy_helper.from_array(normal(2, 64, 64), "w")
    product = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    graph = onnx.helper.make_model(
        onnx.helper.make_graph([product], "g", ends[:1], ends[1:], [weight]),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    portable = quantized((graph, {}), "int8", "portable", tmp_path / "p.onnx")
    with refused(tmp_path, NothingQuantizedError, "no layer is of a form that target native"):
        convert_target(portable, tmp_path / "n.onnx", to="native")


def test_a_recurrence_of_which_the_last_state_is_read_is_in_the_notes(tmp_path: Path) -> None:
    proto = onnx.ModelProto()
    proto.CopyFrom(graphs.recurrent("LSTM")[0])
    (lstm,) = [n for n in proto.graph.node if n.op_type == "LSTM"]
    state = onnx.helper.make_tensor_value_info("state", onnx.TensorProto.FLOAT, None)
    lstm.output[:] = ["", "state"]
    del proto.graph.output[:]
    proto.graph.output.append(state)
    keep = [n for n in proto.graph.node if n is lstm or n.op_type == "Constant"]
    read = {name for n in keep for name in n.input}
    before = [n for n in proto.graph.node if set(n.output) & read]
    nodes = [n for n in proto.graph.node if n in keep or n in before]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    portable = quantized((proto, {}), "int8", "portable", tmp_path / "p.onnx")
    done = convert_target(portable, tmp_path / "n.onnx", to="native")
    assert any("activations per row" in note for note in done.notes)


def _blocks() -> dict[str, Any]:
    from octavo.recipe import preset

    found: Any = preset("int8-block").default.to_dict()
    found["weight"]["block"] = 16  # which kernels have no groups for
    return dict(found)


def test_metadata_says_the_target_and_what_opens_it(tmp_path: Path) -> None:
    portable = quantized(graphs.linear(), "int8", "portable", tmp_path / "p.onnx")
    convert_target(portable, tmp_path / "n.onnx", to="native")
    said = metadata(tmp_path / "n.onnx")
    assert said["octavo.target"] == "native" and "ai.octavo" in said["octavo.operators"]
    convert_target(tmp_path / "n.onnx", tmp_path / "p2.onnx", to="portable")
    said = metadata(tmp_path / "p2.onnx")
    assert said["octavo.target"] == "portable" and "octavo.operators" not in said
    assert said["octavo.recipe"] == "int8"


def test_external_data_stays_external(tmp_path: Path) -> None:
    case = mlp(2, 128), {"x": normal(4, 128)}
    native = quantized(case, "int8", "native", tmp_path / "n.onnx", use_external_data_format=True)
    done = convert_target(native, tmp_path / "p.onnx", to="portable")
    folder = {path.name for path in tmp_path.iterdir()}
    assert len(folder) == 4 and (tmp_path / "p.onnx").stat().st_size < 16_000
    assert done.model_bytes_after > 2 * 128 * 128
    convert_target(tmp_path / "p.onnx", tmp_path / "back.onnx", to="native")
    assert_equal(outputs(tmp_path / "back.onnx", case[1]), outputs(native, case[1]))


def test_errors_leave_nothing_behind(tmp_path: Path) -> None:
    floats = save(mlp(), tmp_path / "float.onnx")
    native = quantized(graphs.linear(), "int8", "native", tmp_path / "n.onnx")
    portable = quantized(graphs.linear(), "int8", "portable", tmp_path / "p.onnx")
    recipe = Recipe("blocks", Scheme.from_dict(_blocks()))
    blocks = quantized(graphs.linear(), recipe, "portable", tmp_path / "b.onnx")
    out = tmp_path / "out.onnx"
    with refused(tmp_path, ModelError, "of target native already"):
        convert_target(native, out, to="native")
    with refused(tmp_path, ModelError, "of target portable already"):
        convert_target(portable, out, to="portable")
    for to in ("native", "portable"):
        with refused(tmp_path, ModelError, "no quantized layers"):
            convert_target(floats, out, to=to)
    with refused(tmp_path, NothingQuantizedError, "MatMulNBits", "--target native"):
        convert_target(blocks, out, to="native")
    with refused(tmp_path, OptionError, "torch", "Known: native, portable"):
        convert_target(native, out, to="torch")
    with refused(tmp_path, OptionError, "cpu"):
        convert_target(portable, out, to="native", cpu="any")
    with refused(tmp_path, OptionError, "cpu='arm'"):
        convert_target(native, out, to="portable", cpu="arm")


def test_a_new_operator_is_a_named_error(tmp_path: Path) -> None:
    native = quantized(graphs.linear(), "int8", "native", tmp_path / "n.onnx")
    model = onnx.load(native)
    model.graph.node[0].op_type = "Hyperlinear"
    save(model, native)
    with refused(tmp_path, ModelError, "ai.octavo.Hyperlinear", "newer one"):
        convert_target(native, tmp_path / "p.onnx", to="portable")


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quantized(graphs.linear(), "int8", "portable", tmp_path / "m.int8.onnx")
    run = CliRunner().invoke
    done = run(app, ["convert-target", "m.int8.onnx", "--to", "native"])
    assert done.exit_code == 0 and "3 Linear" in done.stdout, done.output
    assert (tmp_path / "m.int8.native.onnx").exists()
    again = run(app, ["convert-target", "m.int8.onnx", "--to", "native"])
    assert again.exit_code == 6 and "exists" in again.stderr
    told = run(
        app,
        ["convert-target", "m.int8.native.onnx", "--to", "portable", "-o", "p.onnx", "--json"],
    )
    assert told.exit_code == 0 and json.loads(told.stdout)["layers"] == {"Linear": 3}
    wrong = run(app, ["convert-target", "p.onnx", "--to", "portable"])
    assert wrong.exit_code == 3 and "already" in wrong.stderr


@pytest.mark.models
def test_minilm(tmp_path: Path) -> None:
    from benchmarks.zoo import minilm

    model = minilm.onnx_path()
    feed = minilm.tokenize(["one", "and one longer text"])
    portable, native = tmp_path / "p.onnx", tmp_path / "n.onnx"
    quantize_dynamic(model, portable, verify=False)
    quantize_dynamic(model, native, target="native", verify=False)
    convert_target(portable, tmp_path / "pn.onnx", to="native")
    assert nodes(tmp_path / "pn.onnx") == nodes(native)
    assert_equal(outputs(tmp_path / "pn.onnx", feed), outputs(native, feed))
    done = convert_target(native, tmp_path / "np.onnx", to="portable")
    assert done.layers["Attention"] == 6
    ours, theirs = (outputs(p, feed)[0] for p in (tmp_path / "np.onnx", portable))
    assert relative_error(theirs, ours) < 1e-3
    convert_target(tmp_path / "np.onnx", tmp_path / "npn.onnx", to="native")
    assert_equal(outputs(tmp_path / "npn.onnx", feed), outputs(native, feed))
