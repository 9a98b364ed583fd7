"""Models with operators of another library: converted, and checked with that library."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnxruntime_extensions import get_library_path

from octavo.errors import ModelError, OptionError, VerificationError
from octavo.front_ends import target_of
from octavo.measure.data import Dataset
from octavo.onnx import OnnxTarget, compare, convert_target, quantize_dynamic, session
from octavo.onnx.custom_ops import CustomOps, open_session, session_options
from octavo.recipe import preset
from octavo.tune import tune
from octavo.tune.runners import InProcess
from tests.cli_support import run as run_command
from tests.cli_support import shorten_measurements
from tests.graphs import normal, save, text

LIBRARY = get_library_path()
FEED = {"text": np.array(["word "], object)}


def reader(more: str = "", output: str = "y", inputs: str = "", **weights: Any) -> onnx.ModelProto:
    """Texts [n] -> their lengths (onnxruntime-extensions) -> two layers -> y [n, 64]."""
    body = f"""n = ai.onnx.contrib.StringLength (text) f = Cast <to = 1> (n)
        column = Unsqueeze (f, last) x = Mul (column, spread) [first] h = MatMul (x, w0)
        r = Relu (h) [second] {output} = MatMul (r, w1) {more}"""
    weights |= {"last": np.array([1]), "spread": normal(1, 64)}
    weights |= {f"w{i}": normal(64, 64, seed=1 + i) for i in range(2)}
    model = text(body, f"string[n] text{inputs}", "float[n, 64] y", weights)
    model.opset_import.append(helper.make_opsetid("ai.onnx.contrib", 1))
    return model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(reader(), tmp_path / "reader.onnx")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    model, out = save(reader(), folder / "reader.onnx"), folder / "out.onnx"
    quantize_dynamic(model, out, verify=False)
    return model, out


def with_library() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.register_custom_ops_library(LIBRARY)
    return options


@pytest.mark.parametrize(
    ("way", "target"),
    [
        (lambda: {"custom_ops": [LIBRARY]}, "portable"),
        (lambda: {"custom_ops": LIBRARY}, "native"),
        (lambda: {"sess_options": with_library()}, "native"),
        (
            lambda: {"sess_options": ort.SessionOptions(), "custom_ops": [Path(LIBRARY)]},
            "portable",
        ),
    ],
    ids=["paths", "one-path", "options", "both"],
)
def test_a_model_is_checked_with_the_library(
    way: Any, target: str, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.onnx"
    report = quantize_dynamic(model, out, target=target, **way())
    assert report.verification.status == "passed"
    assert 0 < report.verification.error < 0.05
    found = compare(model, out, **way())
    assert found.outputs[0].difference.error == pytest.approx(report.verification.error, rel=1.0)
    assert len(found.layers) == 2


def test_without_it_the_message_names_the_option(files: tuple[Path, Path], tmp_path: Path) -> None:
    model, out = files
    with pytest.raises(VerificationError, match=r"StringLength.*--custom-ops FILE.*sess_options"):
        quantize_dynamic(model, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    for opens in (lambda: session(out), lambda: compare(model, out)):
        with pytest.raises(ModelError, match=r"StringLength.*--custom-ops FILE"):
            opens()
    assert len(session(out, sess_options=with_library()).get_outputs()) == 1


def test_blame_and_reach_open_sessions_with_it_too(tmp_path: Path) -> None:
    """A layer in a branch, and one that loses too much."""
    bad = normal(64, 64, seed=3)
    bad[0] = 1e4 * normal(64, seed=4)  # a channel of rows that int8 cannot hold beside the others
    branches = """y = If (deep) <
        then_branch = yes () => (float[] t) { [inside] t = MatMul (y0, w2) },
        else_branch = no () => (float[] e) { e = Identity (y0) }>"""
    path = save(reader(branches, "y0", ", bool deep", w2=bad), tmp_path / "branches.onnx")
    feed = {"text": np.array(["a", "some words"], object), "deep": np.array(False)}
    options: dict[str, Any] = {"check_inputs": feed, "custom_ops": [LIBRARY]}
    report = quantize_dynamic(path, tmp_path / "out.onnx", **options)
    assert "inside" in report.verification.detail  # not reached by these inputs: it was looked at
    strict = replace(preset("int8"), max_error=1e-9)
    with pytest.raises(VerificationError) as caught:
        quantize_dynamic(path, tmp_path / "strict.onnx", recipe=strict, **options)
    assert caught.value.layer in ("first", "second")  # not the one with the worst weight


def test_options_of_a_user_are_as_they_were(model: Path, tmp_path: Path) -> None:
    options = with_library()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    quantize_dynamic(model, tmp_path / "out.onnx", sess_options=options)
    assert (options.intra_op_num_threads, options.log_severity_level) == (1, 3)
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert not options.enable_profiling
    with CustomOps.of(None, options).in_force():
        assert open_session(model).get_session_options().intra_op_num_threads == 1
        with session_options(intra_op_num_threads=2) as used:
            assert used is options
            assert used.intra_op_num_threads == 2
    assert options.intra_op_num_threads == 1
    with pytest.raises(Exception, match="StringLength"):  # it was in force for the call alone
        open_session(model)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"custom_ops": ["nothing.so"]}, r"nothing\.so does not exist"),
        ({"custom_ops": ["."]}, "is no file"),
        ({"custom_ops": [__file__]}, "cannot register .*invalid ELF header"),
        ({"custom_ops": ["/proc/self/exe"]}, "cannot register"),
        ({"custom_ops": [3]}, "holds a int"),
        ({"sess_options": "fast"}, "sess_options is a str"),
    ],
)
def test_a_wrong_file_is_an_error_before_anything_is_done(
    given: dict[str, Any], said: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=said):
        quantize_dynamic(model, tmp_path / "out.onnx", **given)
    assert not (tmp_path / "out.onnx").exists()


def test_a_conversion_between_targets_is_checked_with_it(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "n.onnx"
    done = convert_target(files[1], out, to="native", custom_ops=[LIBRARY])
    assert done.verification.status == "passed"


def test_tuning_runs_with_it_in_workers(model: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"criterion": 0.05, "max_trials": 1, "objective": "modelsize"}
    out = tmp_path / "tuned.onnx"
    found = tune(str(model), workers=1, output=out, custom_ops=[LIBRARY], **options)
    assert found.status.met
    assert out.exists()


def test_options_of_a_user_stay_in_their_process(model: Path) -> None:
    found = tune(str(model), max_trials=1, objective="modelsize", sess_options=with_library())
    assert found.status.met
    with pytest.raises(OptionError, match=r"another process.*custom_ops="):
        tune(str(model), workers=1, max_trials=1, sess_options=with_library())
    target = OnnxTarget(model, sess_options=with_library())
    with pytest.raises(OptionError, match="another process"):
        target.peak_memory(None, FEED)


def test_memory_and_static_quantization_have_it_in_their_processes(model: Path) -> None:
    target = target_of(str(model), custom_ops=[LIBRARY])
    assert target.peak_memory(None, FEED) > 0
    texts = [({"text": np.array(["word " * (i + 1)], object)}, i) for i in range(4)]
    built = target.build(preset("int8"), Dataset.of(texts).feeds(4))
    words = np.array(["some words"], object)
    expected, got = (m.run({"text": words})[0] for m in (target.float_model(), built))
    assert 0 < np.abs(got - expected).max() < 0.1 * np.abs(expected).max()


def told(capsys: Any, *arguments: str | Path) -> Any:
    assert run_command(*map(str, arguments), "--custom-ops", LIBRARY) == 0
    return capsys.readouterr().out


def test_the_command_line_takes_files(
    model: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_measurements(monkeypatch)
    out = tmp_path / "out.onnx"
    done = told(capsys, "quantize", model, "-o", out, "--json")
    assert json.loads(done)["verification"]["status"] == "passed"
    assert len(json.loads(told(capsys, "compare", model, out, "--json"))["layers"]) == 2
    told(capsys, "bench", out, "--seconds", "0.1", "--json")
    told(capsys, "convert-target", out, "--to", "native", "-o", tmp_path / "n.onnx")


@pytest.mark.slow
def test_the_command_line_measures_memory_and_reports_with_files(
    files: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    timed = json.loads(told(capsys, "bench", files[1], "--seconds", "0.1", "--json"))["models"]
    assert [one["peak_memory"] is not None for one in timed] == [True]
    told(capsys, "report", *files, "--seconds", "0.1", "--html", tmp_path / "page.html")


def test_the_command_line_says_what_is_wrong_with_a_file(
    model: Path, tmp_path: Path, capsys: Any
) -> None:
    out = str(tmp_path / "out.onnx")
    assert run_command("quantize", str(model), "-o", out, "--custom-ops", "nothing.so") == 2
    assert "nothing.so does not exist" in capsys.readouterr().err
    assert run_command("compare", "module:factory", out, "--custom-ops", LIBRARY) == 2
    assert "--custom-ops is for ONNX models" in capsys.readouterr().err


def test_the_command_line_tunes_with_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("octavo.tune.api.Workers", lambda setting, count: InProcess(setting))
    monkeypatch.chdir(tmp_path)
    conf = tmp_path / "conf.yaml"
    conf.write_text(
        "model: {name: reader, framework: onnxrt_integerops}\n"
        "quantization: {approach: post_training_dynamic_quant}\n"
        "tuning: {accuracy_criterion: {relative: 0.05}, exit_policy: {max_trials: 1},\n"
        "  objective: modelsize}\n"
    )
    code = run_command("tune", str(conf), "--model", str(model), "--custom-ops", LIBRARY)
    assert code == 0, capsys.readouterr().err
    assert (tmp_path / "reader.tuned.onnx").exists()
