"""`OnnxTarget`: one ONNX model as tuning sees it."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.errors import (
    AlreadyQuantizedError,
    InputDataError,
    ModelError,
    OptionError,
    OutputError,
    RecipeError,
    VerificationError,
)
from octavo.onnx import OnnxTarget, inspect, quantize_dynamic, session
from octavo.onnx.tuning.sensitivity import worst_error
from octavo.recipe import FLOAT, PRESETS, Recipe, Rule
from octavo.results.target import Target
from tests import graphs
from tests.graphs import F32, mlp, normal, refused, run, save, text

INT8 = PRESETS["int8"]
FIRST_FLOAT = INT8.with_rules_first(Rule(FLOAT, name="layer0", reason="kept"))
ALL_FLOAT = Recipe("float", FLOAT)
FEED = {"x": normal(5, 64)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(mlp(3, 64), tmp_path / "m.onnx")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("target", ["portable", "native"])
def test_decisions_are_those_of_inspect(target: str) -> None:
    for model, _ in (graphs.linear(), graphs.tied(), graphs.conv()):
        ours = OnnxTarget(model, target=target)
        name = ours.decisions(INT8)[0].layer.name
        recipes = [*PRESETS.values(), INT8.with_rules_first(Rule(FLOAT, name=name))]
        for recipe in [*recipes, *recipes]:  # the second time from what was resolved before
            expected = inspect(model, recipe, target=target).decisions
            assert tuple(ours.decisions(recipe)) == expected


def test_decisions_of_an_old_opset_are_those_of_the_raised_one() -> None:
    model = mlp(2, 64)
    model.opset_import[0].version = 10
    ours = OnnxTarget(model)
    for name in ("int8", "int8-per-tensor", "int8"):  # activations per tensor need opset 11
        assert tuple(ours.decisions(PRESETS[name])) == inspect(model, name).decisions


def test_layers_and_models_that_do_not_fit_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'layer9' matches no layer"):
        OnnxTarget(path).decisions(INT8.with_rules_first(Rule(FLOAT, name="layer9")))
    quantize_dynamic(path, tmp_path / "q.onnx", verify=False)
    with pytest.raises(AlreadyQuantizedError, match=r"q\.onnx"):
        OnnxTarget(tmp_path / "q.onnx").decisions(INT8)


@pytest.mark.parametrize("target", ["portable", "native"])
def test_what_is_built_is_what_quantize_dynamic_writes(
    target: str, path: Path, tmp_path: Path, temporary: Path
) -> None:
    out = tmp_path / "q.onnx"
    expected = quantize_dynamic(path, out, recipe=FIRST_FLOAT, target=target, verify=False)
    built = OnnxTarget(path, target=target).build(FIRST_FLOAT)
    np.testing.assert_array_equal(built.run(FEED)[0], session(out).run(None, FEED)[0])
    assert built.report is not None
    assert built.report.layers == expected.layers
    assert built.bytes == out.stat().st_size == built.report.model_bytes_after
    assert [*temporary.iterdir()] == []


def test_weights_in_a_data_file_are_counted_and_found(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = save(mlp(3, 64), tmp_path / "m.onnx", external="m.data"), tmp_path / "q.onnx"
    ours = OnnxTarget(path)
    whole = sum((tmp_path / name).stat().st_size for name in ("m.onnx", "m.data"))
    assert ours.float_model().bytes == whole
    monkeypatch.setattr("octavo.onnx.write.save.ONE_FILE_LIMIT", 0)
    built = ours.build(INT8)
    quantize_dynamic(path, out, use_external_data_format=True, verify=False)
    assert (tmp_path / "q.onnx.data").stat().st_size >= 3 * 64 * 64
    np.testing.assert_array_equal(built.run(FEED)[0], session(out).run(None, FEED)[0])
    files = [p.stat().st_size for p in tmp_path.glob("q.onnx*")]
    assert built.bytes == pytest.approx(sum(files), abs=100)  # the names of the files differ
    assert [*temporary.iterdir()] == []


@pytest.mark.parametrize("calibration", [None, [FEED]])
def test_where_all_stays_float_it_is_the_float_model(path: Path, calibration: Any) -> None:
    built = OnnxTarget(path).build(ALL_FLOAT, calibration)
    assert built.report is None
    assert built.bytes == path.stat().st_size
    np.testing.assert_array_equal(built.run(FEED)[0], run(path, FEED)[0])


def test_sessions_have_the_threads_that_were_asked_for(path: Path) -> None:
    ours = OnnxTarget(path, threads=2)
    for built in (ours.float_model(), ours.build(INT8)):
        assert built.model.get_session_options().intra_op_num_threads == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "torch"}, "target='torch'"),
        ({"quant_format": "qlinear"}, "quant_format='qlinear'"),
        ({"threads": 0}, "threads=0"),
        ({"model": 3}, "model is a int"),
    ],
)
def test_options_are_checked_at_once(path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        OnnxTarget(**{"model": path, **arguments})


def test_a_measured_model_is_saved_whatever_its_error_on_made_up_inputs(
    path: Path, tmp_path: Path
) -> None:
    strict = replace(INT8, max_error=1e-12)
    out = tmp_path / "out" / "q.onnx"
    out.parent.mkdir()
    with refused(out.parent, VerificationError, "max_error 1e-12"):
        quantize_dynamic(path, out, recipe=strict)
    ours = OnnxTarget(path)
    report = ours.save(strict, out)
    assert report is not None
    assert report.verification.status == "passed"
    assert report.verification.max_error is None
    assert report.verification.error > 1e-12
    assert report.recipe["max_error"] == 1e-12
    assert "at most" not in str(report)
    found, expected = session(out).run(None, FEED)[0], ours.build(strict).run(FEED)[0]
    np.testing.assert_array_equal(found, expected)
    assert [p.name for p in out.parent.iterdir()] == ["q.onnx"]


def test_outputs_whose_shape_depends_on_the_data_do_not_keep_a_model_from_being_saved(
    tmp_path: Path,
) -> None:
    body = """[fc] h = MatMul (x, w) kept = Greater (h, zero) flat = Reshape (kept, minus)
        y = Compress (h, flat)"""
    weights = {"w": normal(64, 4096), "zero": np.float32(0), "minus": np.array([-1])}
    model = text(body, "float[m, 64] x", weights=weights)
    v = quantize_dynamic(model, tmp_path / "q.onnx").verification
    assert v.status == "compared" and "before Greater" in v.detail
    report = OnnxTarget(model).save(INT8, tmp_path / "q.onnx")
    assert report is not None
    assert len(report.quantized) == 1
    assert run(tmp_path / "q.onnx", {"x": normal(2, 64)})[0].size


def test_a_model_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    """Verification of `save` is unbounded, not blind."""
    # Positive in float; next to the large weights of one scale for all, the small ones become 0.
    tiny = np.zeros((64, 2), np.float32)
    tiny[:, 0], tiny[:, 1] = 1.0, 1e-4
    body = "[first] h = MatMul (x, w) y = Relu (h) [keep] t = MatMul (y, tiny) r = Reciprocal (t)"
    weights = {"w": normal(64, 64) / 8, "tiny": tiny}
    model = text(body, "float[m, 64] x", "float[] r", weights)
    with refused(tmp_path, VerificationError, "non-finite numbers"):
        OnnxTarget(model).save(PRESETS["int8-per-tensor"], tmp_path / "q.onnx")


def test_the_source_is_never_overwritten(path: Path) -> None:
    with refused(path.parent, OutputError, "is the input"):
        OnnxTarget(path).save(INT8, path)


def test_a_fingerprint_tells_weights_and_options_apart(tmp_path: Path) -> None:
    path = save(mlp(2, 64), tmp_path / "a.onnx", external="w.data")
    first = OnnxTarget(path).fingerprint()
    (tmp_path / "b").mkdir()
    copy = save(mlp(2, 64), tmp_path / "b" / "a.onnx", external="w.data")
    assert OnnxTarget(copy).fingerprint() == first
    options: list[dict[str, Any]] = [
        {"target": "native"},
        {"cpu": "any"},
        {"quant_format": "qdq"},
        {"threads": 1},
    ]
    others = {OnnxTarget(path, **o).fingerprint() for o in options}
    data = bytearray((tmp_path / "b" / "w.data").read_bytes())
    data[-1] ^= 1
    (tmp_path / "b" / "w.data").write_bytes(data)
    others.add(OnnxTarget(copy).fingerprint())
    others.add(OnnxTarget(mlp(2, 64)).fingerprint())
    others.add(OnnxTarget(mlp(2, 64, seed=1)).fingerprint())
    assert len(others | {first}) == 8


def test_it_can_be_pickled_and_finds_its_model_from_anywhere(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    for ours in (OnnxTarget("m.onnx", threads=1), OnnxTarget(onnx.load(path), target="native")):
        expected, digest = ours.build(FIRST_FLOAT).run(FEED)[0], ours.fingerprint()
        ours.errors(INT8, [["layer0"]], [FEED])  # opens a session that cannot be pickled
        monkeypatch.chdir("/")
        again = pickle.loads(pickle.dumps(ours))
        np.testing.assert_array_equal(again.build(FIRST_FLOAT).run(FEED)[0], expected)
        assert again.fingerprint() == digest
        assert again.label == ours.label
        monkeypatch.chdir(path.parent)


def test_it_fills_in_the_protocol(path: Path) -> None:
    ours: Target = OnnxTarget(path)
    wanted = {name for name in vars(Target) if not name.startswith("_")}
    assert {name for name in wanted if not hasattr(ours, name)} == set()
    assert ours.output_suffix == ".onnx"
    assert ours.label == str(path)


@pytest.mark.parametrize("recipe", [None, INT8, ALL_FLOAT])
def test_an_opener_opens_one_file_again_and_again(
    path: Path, temporary: Path, recipe: Recipe | None
) -> None:
    ours = OnnxTarget(path)
    expected = ours.float_model() if recipe is None else ours.build(recipe)
    with ours.opener(recipe) as opened:
        first, second = opened(), opened()
    assert first.model is not second.model
    for one in (first, second):
        np.testing.assert_array_equal(one.run(FEED)[0], expected.run(FEED)[0])
        assert one.bytes == expected.bytes
    assert not list(temporary.iterdir())


def test_native_is_offered_where_nobody_has_said_the_target(path: Path) -> None:
    offered = OnnxTarget(path, threads=1).native()
    assert offered is not None
    assert offered.build(INT8).report.target == "native"  # type: ignore[union-attr]
    again = pickle.loads(pickle.dumps(OnnxTarget(path)))
    assert again.native() is not None
    for said in ({"target": "portable"}, {"target": "native"}, {"quant_format": "qdq"}):
        assert OnnxTarget(path, **said).native() is None


@pytest.mark.parametrize("target", ["portable", "native"])
def test_raised_schemes_are_more_accurate_than_the_default_one(target: str) -> None:
    """On rows with one large number, which costs the others their resolution."""
    ours = OnnxTarget(mlp(1, 512), target=target)
    feed = {"x": normal(5, 512) * np.where(np.arange(512) == 7, 100, 1).astype(np.float32)}
    recipes = [INT8, *(replace(INT8, default=scheme) for scheme in ours.raised())]
    reference = [ours.float_model().run(feed)]
    errors = [worst_error(reference, [ours.build(r).run(feed)]) for r in recipes]
    assert errors[0] > 2 * max(errors[1:])
    assert errors[-1] < 1e-6  # float16


STATIC_FEEDS = [{"x": normal(5, 64, seed=i)} for i in range(3)]


def test_calibration_makes_onnxruntimes_static_model(
    tmp_path: Path, temporary: Path, capfd: Any
) -> None:
    proto = mlp(3, 64)
    for node in proto.graph.node[1:3]:
        node.name = ""  # the layer is called after its output, and left out all the same
    ours = OnnxTarget(proto, quant_format="qdq")
    recipe = INT8.with_rules_first(Rule(FLOAT, name="MatMul:h1"))
    assert ours.save(recipe, tmp_path / "s.onnx", STATIC_FEEDS) is None
    static = onnx.load(tmp_path / "s.onnx")
    weights = {t.name: t.data_type for t in static.graph.initializer if t.dims == [64, 64]}
    assert sorted(weights.values()) == [F32, onnx.TensorProto.INT8, onnx.TensorProto.INT8]
    assert weights["w1"] == F32
    (scales,) = (t for t in static.graph.initializer if t.name == "w0_scale")
    assert numpy_helper.to_array(scales).shape == (64,)
    reference = [ours.float_model().run(STATIC_FEEDS[0])]
    found = [run(tmp_path / "s.onnx", STATIC_FEEDS[0])]
    assert 1e-6 < worst_error(reference, found) < 0.01
    assert [*temporary.iterdir()] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_static_models_are_built_in_operators_too(path: Path, temporary: Path) -> None:
    ours = OnnxTarget(path)
    built = ours.build(FIRST_FLOAT, STATIC_FEEDS)
    assert built.report is None
    assert 2 * 64 * 64 + 4 * 64 * 64 < built.bytes < path.stat().st_size
    expected, found = ours.float_model().run(STATIC_FEEDS[0]), built.run(STATIC_FEEDS[0])
    assert 1e-6 < worst_error([expected], [found]) < 0.01
    assert [*temporary.iterdir()] == []


@pytest.mark.slow
def test_a_failure_of_the_static_quantizer_says_why(temporary: Path) -> None:
    model = mlp(2, 64)
    model.graph.node.append(helper.make_node("Nowhere", ["y"], ["z"], domain="nobody"))
    model.graph.output.append(helper.make_tensor_value_info("z", F32, None))
    model.opset_import.append(helper.make_opsetid("nobody", 1))
    with pytest.raises(ModelError, match=r"static quantizer fails: .*Nowhere"):
        OnnxTarget(model).build(INT8, [FEED])
    with pytest.raises(InputDataError, match="no input 'z'"):
        OnnxTarget(mlp(2, 64)).build(INT8, [{"z": FEED["x"]}])
    assert [*temporary.iterdir()] == []


def test_peak_memory_is_what_the_weights_and_one_run_take() -> None:
    width, layers = 1024, 10
    ours = OnnxTarget(mlp(layers, width), threads=1)
    feed, weights = {"x": normal(2, width)}, 4 * layers * width * width
    plain, small = ours.peak_memory(None, feed), ours.peak_memory(INT8, feed)
    assert weights < plain < 4 * weights
    # What a session itself takes varies by 9 MB from run to run, with what else the machine does.
    assert weights / 4 < small < 0.9 * plain


def test_peak_memory_of_a_model_that_does_not_run_is_an_error() -> None:
    model, _ = graphs.products()
    feed = {"a": normal(2, 8, 32), "b": normal(3, 32, 16)}
    with pytest.raises(ModelError, match=r"does not run to have its memory measured: .*scores"):
        OnnxTarget(model).peak_memory(None, feed)
