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
from onnx import TensorProto, helper
from onnxruntime_extensions import get_library_path

from octavo.errors import ModelError, OptionError, VerificationError
from octavo.front_ends import target_of
from octavo.measure.data import Dataset
from octavo.onnx import OnnxTarget, compare, convert_target, quantize_dynamic, session
from octavo.onnx.custom_ops import CustomOps, open_session, session_options
from octavo.recipe import preset
from octavo.tune import tune
from tests.cli_support import run as run_command
from tests.graphs import F32, build, normal, save

LIBRARY = get_library_path()
CONTRIB = helper.make_opsetid("ai.onnx.contrib", 1)


def reader(width: int = 64) -> onnx.ModelProto:
    """Texts [n] -> their lengths (onnxruntime-extensions) -> two layers -> y [n, width]."""
    nodes = [
        helper.make_node("StringLength", ["text"], ["n"], domain="ai.onnx.contrib"),
        helper.make_node("Cast", ["n"], ["f"], to=F32),
        helper.make_node("Unsqueeze", ["f", "last"], ["column"]),
        helper.make_node("Mul", ["column", "spread"], ["x"]),
        helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"], name="second"),
    ]
    weights = {
        "last": np.array([1]),
        "spread": normal(1, width),
        "w0": normal(width, width, seed=1),
        "w1": normal(width, width, seed=2),
    }
    inputs = [("text", TensorProto.STRING, ["n"])]
    model = build(nodes, inputs, [("y", F32, ["n", width])], weights)
    model.opset_import.append(CONTRIB)
    return model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(reader(), tmp_path / "reader.onnx")


def with_library() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.register_custom_ops_library(LIBRARY)
    return options


WAYS = {
    "paths": lambda: {"custom_ops": [LIBRARY]},
    "one-path": lambda: {"custom_ops": LIBRARY},
    "options": lambda: {"sess_options": with_library()},
    "both": lambda: {"sess_options": ort.SessionOptions(), "custom_ops": [Path(LIBRARY)]},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_model_is_checked_with_the_library(
    way: str, target: str, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.onnx"
    report = quantize_dynamic(model, out, target=target, **WAYS[way]())
    assert report.verification.status == "passed"
    assert 0 < report.verification.error < 0.05
    found = compare(model, out, **WAYS[way]())
    assert found.outputs[0].difference.error == pytest.approx(report.verification.error, rel=1.0)
    assert len(found.layers) == 2


def test_without_it_the_message_names_the_option(model: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"StringLength.*--custom-ops FILE.*sess_options"):
        quantize_dynamic(model, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_other_commands_name_it_too(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    quantize_dynamic(model, out, custom_ops=[LIBRARY])
    for opens in (lambda: session(out), lambda: compare(model, out)):
        with pytest.raises(ModelError, match=r"StringLength.*another library.*--custom-ops FILE"):
            opens()
    assert len(session(out, sess_options=with_library()).get_outputs()) == 1


def test_blame_and_reach_open_sessions_with_it_too(tmp_path: Path) -> None:
    """A layer in a branch, and one that loses too much."""
    proto = reader()
    bad = normal(64, 64, seed=3)
    bad[0] = 1e4 * normal(64, seed=4)  # a channel of rows that int8 cannot hold beside the others
    body = helper.make_graph(
        [helper.make_node("MatMul", ["y0", "w2"], ["then"], name="inside")],
        "then",
        [],
        [helper.make_tensor_value_info("then", F32, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["y0"], ["else"])],
        "else",
        [],
        [helper.make_tensor_value_info("else", F32, None)],
    )
    proto.graph.node[-1].output[0] = "y0"
    proto.graph.initializer.append(onnx.numpy_helper.from_array(bad, "w2"))
    proto.graph.input.append(helper.make_tensor_value_info("deep", TensorProto.BOOL, []))
    proto.graph.node.append(
        helper.make_node("If", ["deep"], ["y"], then_branch=body, else_branch=other)
    )
    path = save(proto, tmp_path / "branches.onnx")
    feed = {"text": np.array(["a", "some words"], object), "deep": np.array(False)}
    report = quantize_dynamic(path, tmp_path / "out.onnx", check_inputs=feed, custom_ops=[LIBRARY])
    assert "inside" in report.verification.detail  # not reached by these inputs: it was looked at
    strict = replace(preset("int8"), max_error=1e-9)
    with pytest.raises(VerificationError) as caught:
        quantize_dynamic(
            path, tmp_path / "strict.onnx", recipe=strict, check_inputs=feed, custom_ops=[LIBRARY]
        )
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


def test_what_is_in_force_ends_with_the_call(model: Path, tmp_path: Path) -> None:
    quantize_dynamic(model, tmp_path / "out.onnx", custom_ops=[LIBRARY])
    with pytest.raises(Exception, match="StringLength"):
        open_session(model)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nothing.so", r"nothing\.so does not exist; give the shared library.*RegisterCustomOps"),
        (".", "is no file"),
        (__file__, "cannot register .*invalid ELF header"),
        ("/proc/self/exe", "cannot register"),
        (3, "holds a int; give paths"),
    ],
)
def test_a_wrong_file_is_an_error_before_anything_is_done(
    given: Any, said: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=said):
        quantize_dynamic(model, tmp_path / "out.onnx", custom_ops=[given])
    assert not (tmp_path / "out.onnx").exists()


def test_what_are_no_options_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="sess_options is a str"):
        quantize_dynamic(model, tmp_path / "out.onnx", sess_options="fast")  # type: ignore[arg-type]


def test_a_conversion_between_targets_is_checked_with_it(model: Path, tmp_path: Path) -> None:
    quantize_dynamic(model, tmp_path / "p.onnx", custom_ops=[LIBRARY])
    done = convert_target(
        tmp_path / "p.onnx", tmp_path / "n.onnx", to="native", custom_ops=[LIBRARY]
    )
    assert done.verification.status == "passed"


def texts(count: int) -> list[tuple[dict[str, Any], int]]:
    return [({"text": np.array(["word " * (i + 1)], object)}, i) for i in range(count)]


@pytest.mark.parametrize("workers", [None, 1])
def test_tuning_runs_with_it_in_this_process_and_in_workers(
    workers: int | None, model: Path, tmp_path: Path
) -> None:
    found = tune(
        str(model),
        criterion=0.05,
        max_trials=2,
        workers=workers,
        output=tmp_path / "tuned.onnx",
        rounds=2,
        warmup=0,
        custom_ops=[LIBRARY],
    )
    assert found.status.met
    assert (tmp_path / "tuned.onnx").exists()


def test_options_of_a_user_stay_in_their_process(model: Path) -> None:
    found = tune(str(model), max_trials=1, rounds=2, warmup=0, sess_options=with_library())
    assert found.status.met
    with pytest.raises(OptionError, match=r"cannot go to another process.*custom_ops="):
        tune(str(model), workers=1, max_trials=1, sess_options=with_library())
    target = OnnxTarget(model, sess_options=with_library())
    with pytest.raises(OptionError, match="cannot go to another process"):
        target.peak_memory(None, texts(1)[0][0])


def test_memory_and_static_quantization_have_it_in_their_processes(model: Path) -> None:
    target = target_of(str(model), custom_ops=[LIBRARY])
    assert target.peak_memory(None, texts(1)[0][0]) > 0
    feeds = Dataset.of(texts(4)).feeds(4)
    built = target.build(preset("int8"), feeds)
    text = np.array(["some words"], object)
    expected = target.float_model().run({"text": text})[0]
    got = built.run({"text": text})[0]
    assert 0 < np.abs(got - expected).max() < 0.1 * np.abs(expected).max()


def test_the_command_line_takes_files(model: Path, tmp_path: Path, capsys: Any) -> None:
    out, page = tmp_path / "out.onnx", tmp_path / "page.html"
    ops = ("--custom-ops", LIBRARY)
    assert run_command("quantize", str(model), "-o", str(out), *ops, "--json") == 0
    assert json.loads(capsys.readouterr().out)["verification"]["status"] == "passed"
    assert run_command("compare", str(model), str(out), *ops, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) == 2
    assert run_command("bench", str(model), str(out), *ops, "--seconds", "0.2", "--json") == 0
    timed = json.loads(capsys.readouterr().out)["models"]
    assert [one["peak_memory"] is not None for one in timed] == [True, True]
    brief = ("--seconds", "0.2", "--html", str(page))
    assert run_command("report", str(model), str(out), *ops, *brief) == 0
    native = str(tmp_path / "n.onnx")
    assert run_command("convert-target", str(out), "--to", "native", "-o", native, *ops) == 0


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
    monkeypatch.chdir(tmp_path)
    conf = tmp_path / "conf.yaml"
    conf.write_text(
        "model: {name: reader, framework: onnxrt_integerops}\n"
        "quantization: {approach: post_training_dynamic_quant}\n"
        "tuning: {accuracy_criterion: {relative: 0.05}, exit_policy: {max_trials: 2}}\n"
    )
    code = run_command("tune", str(conf), "--model", str(model), "--custom-ops", LIBRARY)
    assert code == 0, capsys.readouterr().err
    assert (tmp_path / "reader.tuned.onnx").exists()
