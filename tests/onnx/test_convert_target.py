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
from octavo.onnx import convert_target, quantize_dynamic
from octavo.recipe import Kind, Recipe, Rule, Scheme, preset
from tests import graphs
from tests.graphs import Array, Case, mlp, normal, refused, save, text
from tests.native_target.forms import run as outputs

EVERYTHING = Recipe(
    "everything", Scheme(), (Rule(Scheme(), kind=Kind.CONV), Rule(Scheme(), kind=Kind.GRU))
)
PRODUCTS = Recipe("products", Scheme(), (Rule(Scheme(), kind=Kind.ACTIVATION_MATMUL),))
LINEAR = graphs.linear()
KINDS: dict[str, tuple[Case, Any]] = {
    "linear": (LINEAR, "int8"),
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


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Three layers for both targets, which no test changes."""
    folder = tmp_path_factory.mktemp("linear")
    return {t: quantized(LINEAR, "int8", t, folder / f"{t}.onnx") for t in ("portable", "native")}


def nodes(path: Path) -> Counter[str]:
    graph = onnx.load(path).graph
    return Counter(
        f"{n.domain}.{n.op_type} {n.name if n.domain == 'ai.octavo' else ''}" for n in graph.node
    )


def integers(path: Path) -> list[bytes]:
    arrays = [numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer]
    return sorted(a.tobytes() for a in arrays if a.dtype in (np.int8, np.uint8) and a.ndim > 1)


def assert_equal(a: list[Array], b: list[Array]) -> None:
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
    convert_target(tmp_path / "p.onnx", tmp_path / "back.onnx", to="native", verify=False)
    assert integers(tmp_path / "back.onnx") == integers(native)
    assert_equal(outputs(tmp_path / "back.onnx", case[1]), outputs(native, case[1]))


def test_products_of_activations_become_float(tmp_path: Path) -> None:
    case, recipe = KINDS["products"]
    native = quantized(case, recipe, "native", tmp_path / "n.onnx")
    done = convert_target(native, tmp_path / "p.onnx", to="portable")
    assert "computed in float" in done.notes[0] and "scores" in done.notes[0]
    a, b = case[1]["a"], case[1]["b"]
    np.testing.assert_allclose(outputs(tmp_path / "p.onnx", case[1])[0], a @ b, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("case", "recipe", "note", "layer"),
    [
        (LINEAR, "int8-accurate", "no groups of 128", "layer0"),
        (*IN_FLOAT["gru"], "no integer operator", "rec"),
    ],
)
def test_what_becomes_coarser_or_float_is_in_the_notes(
    case: Case, recipe: Any, note: str, layer: str, tmp_path: Path
) -> None:
    native = quantized(case, recipe, "native", tmp_path / "n.onnx")
    done = convert_target(native, tmp_path / "p.onnx", to="portable", verify=False)
    assert any(note in said and layer in said for said in done.notes)


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


def blocks() -> Scheme:
    """Blocks of 16, which kernels have no groups for."""
    found: Any = preset("int8-block").default.to_dict()
    found["weight"]["block"] = 16
    return Scheme.from_dict(found)


def test_what_has_no_operator_stays_and_is_named(tmp_path: Path) -> None:
    recipe = Recipe("mixed", Scheme(), (Rule(blocks(), name="layer1"),), max_error=0.3)
    portable = quantized(LINEAR, recipe, "portable", tmp_path / "p.onnx")
    done = convert_target(portable, tmp_path / "n.onnx", to="native")
    assert done.layers == {"Linear": 2}
    assert any("MatMulNBits" in note and "layer1" in note for note in done.notes)


def test_a_recurrence_of_which_the_last_state_is_read_is_in_the_notes(tmp_path: Path) -> None:
    stored = {"w": normal(1, 64, 24) / 5, "r": normal(1, 64, 16, seed=1) / 5}
    body = "y, state = LSTM <hidden_size = 16> (x, w, r)"
    proto = text(body, "float[t, b, 24] x", "float[] state", stored)
    proto.graph.node[0].output[0] = ""
    portable = quantized((proto, {}), "int8", "portable", tmp_path / "p.onnx")
    done = convert_target(portable, tmp_path / "n.onnx", to="native")
    assert any("activations per row" in note for note in done.notes)


def test_metadata_says_the_target_and_what_opens_it(
    linear: Mapping[str, Path], tmp_path: Path
) -> None:
    convert_target(linear["portable"], tmp_path / "n.onnx", to="native", verify=False)
    said = metadata(tmp_path / "n.onnx")
    assert said["octavo.target"] == "native" and "ai.octavo" in said["octavo.operators"]
    convert_target(tmp_path / "n.onnx", tmp_path / "p2.onnx", to="portable", verify=False)
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


def test_errors_leave_nothing_behind(linear: Mapping[str, Path], tmp_path: Path) -> None:
    native, portable = linear["native"], linear["portable"]
    floats = save(mlp(), tmp_path / "float.onnx")
    by_block = quantized(LINEAR, Recipe("b", blocks()), "portable", tmp_path / "b.onnx")
    weights = {"w": normal(2, 64, 64)}
    batched = text("y = MatMul (x, w)", "float[2, 4, 64] x", "float[2, 4, 64] y", weights)
    per_item = quantized((batched, {}), "int8", "portable", tmp_path / "items.onnx")
    model = onnx.load(native)
    model.graph.node[0].op_type = "Hyperlinear"
    newer = save(model, tmp_path / "newer.onnx")
    wrong: list[tuple[Path, dict[str, str], type[Exception], list[str]]] = [
        (native, {"to": "native"}, ModelError, ["of target native already"]),
        (portable, {"to": "portable"}, ModelError, ["of target portable already"]),
        (floats, {"to": "native"}, ModelError, ["no quantized layers"]),
        (floats, {"to": "portable"}, ModelError, ["no quantized layers"]),
        (by_block, {"to": "native"}, NothingQuantizedError, ["MatMulNBits"]),
        (per_item, {"to": "native"}, NothingQuantizedError, ["target native"]),
        (newer, {"to": "portable"}, ModelError, ["ai.octavo.Hyperlinear", "newer"]),
        (native, {"to": "torch"}, OptionError, ["torch", "native, portable"]),
        (portable, {"to": "native", "cpu": "any"}, OptionError, ["cpu"]),
        (native, {"to": "portable", "cpu": "arm"}, OptionError, ["cpu='arm'"]),
    ]
    for path, options, kind, said in wrong:
        with refused(tmp_path, kind, *said):
            convert_target(path, tmp_path / "out.onnx", **options)


def test_command(
    linear: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.int8.onnx").write_bytes(linear["portable"].read_bytes())

    def command(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["convert-target", *arguments])

    done = command("m.int8.onnx", "--to", "native")
    assert done.exit_code == 0 and "3 Linear" in done.stdout, done.output
    assert (tmp_path / "m.int8.native.onnx").exists()
    again = command("m.int8.onnx", "--to", "native")
    assert again.exit_code == 6 and "exists" in again.stderr
    told = command("m.int8.native.onnx", "--to", "portable", "-o", "p.onnx", "--json")
    assert told.exit_code == 0 and json.loads(told.stdout)["layers"] == {"Linear": 3}
    wrong = command("p.onnx", "--to", "portable")
    assert wrong.exit_code == 3 and "already" in wrong.stderr
