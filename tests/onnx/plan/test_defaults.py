"""What no user asked for does no harm, and what another target would do is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from octavo.errors import NothingQuantizedError
from octavo.files.metadata import metadata
from octavo.onnx import inspect
from octavo.onnx.read.stored_report import stored_report
from octavo.recipe import Recipe, Rule, Scheme, preset
from octavo.results.stored import outcomes_from_json, outcomes_to_json
from tests.graphs import FLOAT, convert, mlp, node, save, text, values, weight
from tests.native_target.recurrent_layers import Layer
from tests.native_target.test_conv_places import CHAIN
from tests.native_target.test_conv_places import model as convolutions

TARGETS = pytest.mark.parametrize("target", ["portable", "native"])


@pytest.fixture(autouse=True, scope="module")
def small_layers_are_quantized() -> None:
    """Are not: that is tested here."""


def headed(outputs: int, inputs: int = 64, transposed: int = 0) -> onnx.ModelProto:
    """x -> body [64 x inputs] -> head, a Gemm of `outputs`."""
    body = f"[body] h = MatMul (x, w) [head] y = Gemm <transB = {transposed}> (h, v, b)"
    shape = (outputs, inputs) if transposed else (inputs, outputs)
    weights = {"w": weight(64, inputs), "v": weight(*shape), "b": values(outputs)}
    return text(body, "float[n, 64] x", weights=weights)


@pytest.mark.parametrize(
    ("target", "outputs", "transposed"),
    [("portable", 1, 1), ("portable", 4, 0), ("native", 1, 0), ("native", 3, 1), ("native", 4, 1)],
)
def test_layers_of_a_few_outputs_stay_float(
    tmp_path: Path, target: str, outputs: int, transposed: int
) -> None:
    done = convert(headed(outputs, transposed=transposed), tmp_path, target=target)
    assert [o.layer.name for o in done.report.quantized] == ["body"]
    few = "1 output " if outputs == 1 else f"{outputs} outputs "
    assert f"a layer of {few}gains nothing from integers" in done.outcome("head").reason


@TARGETS
def test_layers_of_more_do_not(tmp_path: Path, target: str) -> None:
    done = convert(headed(5, inputs=256), tmp_path, target=target)
    assert not done.report.left_float


def test_large_ones_save_bytes_in_target_portable_alone(tmp_path: Path) -> None:
    """Target native holds 16 outputs at least, so that it would take four times the bytes."""
    made = headed(2, inputs=4096)
    assert not convert(made, tmp_path, target="portable").report.left_float
    asked = convert(made, tmp_path, target="native", op_types_to_quantize=["Gemm"])
    assert asked.outcome("head").bytes_after > asked.outcome("head").bytes_before
    default = convert(made, tmp_path, target="native")
    assert not default.outcome("head").quantized


ASKED: dict[str, dict[str, Any]] = {
    "by type": {"op_types_to_quantize": ["Gemm"]},
    "by name": {"nodes_to_quantize": ["head"]},
    "by a rule": {"recipe": preset("int8").with_rules_first(Rule(Scheme(), name="he*"))},
}


@TARGETS
@pytest.mark.parametrize("how", ASKED)
def test_whoever_asks_gets_them(tmp_path: Path, target: str, how: str) -> None:
    assert convert(headed(3), tmp_path, target=target, **ASKED[how]).outcome("head").quantized


def test_quantize_dynamic_s_own_form_is_not_changed(tmp_path: Path) -> None:
    assert not convert(headed(3), tmp_path, recipe="int8-per-tensor").report.left_float


def test_a_table_that_is_a_layer_too_stays_shared(tmp_path: Path) -> None:
    body = "[lookup] e = Gather (v, ids) [head] y = Gemm <transB = 1> (e, v)"
    done = convert(text(body, "int64[n] ids", weights={"v": weight(4, 4096)}), tmp_path)
    assert [o.quantized for o in done.report.layers] == [True, True]


def gru_and_more() -> onnx.ModelProto:
    made = Layer("gru").model()
    y = made.graph.output[0].name
    made.graph.node.append(node("MatMul", [y, "w"], ["out"], name="dense"))
    hidden = next(a.i for a in made.graph.node[0].attribute if a.name == "hidden_size")
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight(hidden, 512), "w"))
    del made.graph.output[:]
    made.graph.output.append(onnx.helper.make_tensor_value_info("out", FLOAT, None))
    return made


def test_native_lists_what_portable_leaves_float(tmp_path: Path) -> None:
    done = convert(gru_and_more(), tmp_path, target="native")
    assert "int8 here, float in target portable: 1 GRU (layer)" in done.report.notes
    convs = convert(convolutions(CHAIN), tmp_path, target="native")
    assert "int8 here, float in target portable: 1 Conv (b)" in convs.report.notes


def test_portable_lists_what_native_takes(tmp_path: Path) -> None:
    done = convert(gru_and_more(), tmp_path)
    assert "float here, int8 with --target native: 1 GRU (layer)" in done.report.notes


@TARGETS
def test_nothing_is_listed_where_they_do_not_differ(tmp_path: Path, target: str) -> None:
    notes = convert(mlp(2), tmp_path, target=target).report.notes
    assert not any("target" in note for note in notes)
    asked = convert(convolutions(CHAIN), tmp_path, target=target, op_types_to_quantize=["Conv"])
    assert not any("target" in note for note in asked.report.notes)


def test_a_layer_of_too_many_inputs_for_onnx_runtimes_sums_is_listed(tmp_path: Path) -> None:
    body, weights = "[long] y = MatMul (x, w)", {"w": weight(70_000, 8)}
    done = convert(text(body, "float[n, 70000] x", weights=weights), tmp_path, target="native")
    assert any("1 MatMul (long)" in n for n in done.report.notes)


def test_native_says_what_asking_for_convolutions_would_gain(tmp_path: Path) -> None:
    """Two of three are float by default, and hold most of the bytes; --ops Conv leaves none."""
    done = convert(convolutions(CHAIN), tmp_path, target="native")
    (said,) = (n for n in done.report.notes if "--ops Conv" in n)
    assert said.startswith("2 Conv (a, c) are float by default") and "octavo compare" in said
    left = sum(o.bytes_before for o in done.report.left_float)
    asked = convert(
        convolutions(CHAIN), tmp_path, target="native", op_types_to_quantize=["Conv", "MatMul"]
    ).report
    assert not asked.left_float and not any("--ops Conv" in n for n in asked.notes)
    gained = done.report.model_bytes_after - asked.model_bytes_after
    assert gained > 0.7 * left  # they share one weight
    assert not any("--ops Conv" in n for n in convert(gru_and_more(), tmp_path).report.notes)


ONLY = {
    "a GRU": (Layer("gru").model, "1 GRU (layer)"),
    "an RNN": (Layer("tanh").model, "1 RNN (layer)"),
    "convolutions": (lambda: convolutions(CHAIN), "1 Conv (b)"),
}


@pytest.mark.parametrize("case", ONLY)
def test_the_error_names_the_target_that_would(tmp_path: Path, case: str) -> None:
    make, listed = ONLY[case]
    with pytest.raises(NothingQuantizedError) as caught:
        convert(make(), tmp_path)
    said = str(caught.value)
    assert f"Target native (--target native, target='native') holds {listed} in int8" in said
    assert convert(make(), tmp_path, target="native").report.quantized


def test_the_error_names_no_target_that_would_not(tmp_path: Path) -> None:
    one = convolutions(CHAIN[:1])
    one.graph.output[0].name = one.graph.node[0].output[0]
    for target in ("portable", "native"):
        with pytest.raises(NothingQuantizedError) as caught:
            convert(one, tmp_path, target=target)
        assert "Target native (" not in str(caught.value)
        assert "--ops Conv" in str(caught.value)


def test_equal_reasons_are_counted_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(NothingQuantizedError, match=r"\n  3 Conv: float by default"):
        convert(convolutions(CHAIN), tmp_path)


def test_it_is_a_hundredth_of_a_file_of_forty_kilobytes(tmp_path: Path) -> None:
    """Less than 600 bytes and 40 for each layer, whatever the reasons are."""
    for layers in (2, 8, 40):
        done = convert(mlp(layers, 64), tmp_path)
        stored = len(metadata(done.path)["octavo.layers"])
        assert stored < 600 + 40 * layers
        assert stored < 0.01 * done.path.stat().st_size or layers < 40


def test_it_reads_as_it_was_written(tmp_path: Path) -> None:
    done = convert(gru_and_more(), tmp_path, target="native")
    again = outcomes_from_json(metadata(done.path)["octavo.layers"])
    assert again == tuple(
        replace(o, sqnr_db=None if o.sqnr_db is None else round(o.sqnr_db, 2))
        for o in done.report.layers
    )


def test_files_of_the_first_version_are_read(tmp_path: Path) -> None:
    done = convert(mlp(2), tmp_path)
    model = onnx.load(done.path)
    (entry,) = (p for p in model.metadata_props if p.key == "octavo.layers")
    entry.value = json.dumps([o.to_dict(str) for o in done.report.layers])
    onnx.save(model, tmp_path / "old.onnx")
    floating = save(mlp(2), tmp_path / "f.onnx")
    stored = stored_report(tmp_path / "old.onnx", Path(floating))
    assert stored is not None and stored.layers == done.report.layers


@pytest.mark.parametrize("name", ["naïve/層/MatMul", 'a "quoted" \\ name', "line\nbreak"])
def test_names_of_any_letters(tmp_path: Path, name: str) -> None:
    (outcome, *_) = convert(mlp(1), tmp_path).report.layers
    odd = replace(outcome, sqnr_db=None, layer=replace(outcome.layer, name=name, scope=name))
    assert outcomes_from_json(outcomes_to_json([odd])) == (odd,)


SMALL = "weights is slower in integers than in float"


@pytest.mark.parametrize("size", [(16, 16), (31, 33), (8, 64), (200, 5)])
def test_small_products_stay_float_in_portable_alone(tmp_path: Path, size: tuple[int, int]) -> None:
    model = mlp_of(*size)
    assert SMALL in inspect(model).decisions[0].reason
    for options in (
        {"target": "native"},
        {"op_types_to_quantize": ["MatMul"]},
        {"recipe": "int8-per-tensor"},  # as ONNX Runtime's own
    ):
        assert not convert(model, tmp_path, **options).report.left_float


@pytest.mark.parametrize("size", [(32, 32), (16, 64), (128, 8)])
def test_larger_ones_do_not(size: tuple[int, int]) -> None:
    assert not inspect(mlp_of(*size)).decisions[0].scheme.is_float


def mlp_of(inputs: int, outputs: int) -> onnx.ModelProto:
    stored = {"w": weight(inputs, outputs)}
    return text("y = MatMul (x, w)", f"float[n, {inputs}] x", weights=stored)


def test_inspect_says_the_same_of_few_outputs() -> None:
    (body, head) = inspect(headed(3)).decisions
    assert not body.scheme.is_float and "3 outputs" in head.reason


def test_a_recipe_that_is_float_stays_so() -> None:
    own = Recipe("own", Scheme(), (Rule(Scheme(None, None), name="head", reason="mine"),))
    assert inspect(headed(3), own).decisions[1].reason == "mine"
