"""The rows about tuning: what is counted, and that a miss stays one."""

import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tune as script
from benchmarks import tune_cluster, tune_kills, tune_models, tune_planted, tune_stacks
from benchmarks.results import Row
from benchmarks.timing import Comparison, Timing
from benchmarks.zoo.sessions import open_session
from octavo.onnx import OnnxTarget
from octavo.recipe import Kind, Layer, Recipe, plan
from octavo.results.tuning import Status, Trial, TuneResult
from octavo.tune import load_config


def layer(name: str, kind: Kind, op: str) -> Layer:
    return Layer(name, kind, op, ((f"{name}.w", (4, 4)),), 64, 16)


def result(recipe: Recipe | None, status: Status = Status.MET, loss: float = 0.0) -> TuneResult:
    exact = Trial(0, None, "float model", "float", accuracy=0.9)
    trial = Trial(
        1, recipe, "int8", "k", accuracy=0.9 * (1 - loss), loss=loss, meets=status.met, bytes=5
    )
    return TuneResult(status, trial, (trial,), exact, "m", "c", "o", "auto", 1.0)


def planted(folder: Path) -> tuple[OnnxTarget, tune_stacks.Stack]:
    stack, _ = tune_planted.planted(3, 0)
    return OnnxTarget(tune_stacks.write_onnx(stack, folder / "stack.onnx")), stack


def test_auto_changes_the_bad_layer_alone(tmp_path: Path) -> None:
    model, stack = planted(tmp_path)
    wrong, evaluations = tune_planted._auto_rows(model, stack, "words", "section")
    basic = tune_planted._basic_row(tmp_path / "stack.onnx", stack, "words", "section")
    assert (wrong.measured, wrong.at_most, wrong.verdict) == (0, 0, "reached")
    assert evaluations.verdict == "reached"
    assert evaluations.at_most == pytest.approx(2 + 2 * math.log2(3))
    assert "runs of the model" in evaluations.note
    assert basic.reached is None
    assert basic.measured >= 2  # all int8 fails, so that one more is needed


@pytest.mark.parametrize(
    ("found", "measured"),
    [
        (result(tune_planted.left_float(["layer000"])), 2),  # a wrong one, and the bad one missed
        (result(tune_planted.left_float(["layer000", "layer002"])), 1),
        (result(None), 2),  # the float model changes all three
        (result(tune_planted.left_float(["layer002"]), Status.BEST_EFFORT, 0.3), None),
    ],
    ids=["another layer", "one too many", "float model", "criterion not met"],
)
def test_a_wrong_result_is_a_missed_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: TuneResult, measured: int | None
) -> None:
    model, stack = planted(tmp_path)
    assert stack.bad_names == ("layer002",)
    monkeypatch.setattr(tune_planted, "tune", lambda *a, **k: found)
    wrong, evaluations = tune_planted._auto_rows(model, stack, "words", "section")
    assert wrong.verdict == "missed"
    assert math.isnan(wrong.measured) if measured is None else wrong.measured == measured
    assert evaluations.verdict == "reached"
    assert evaluations.measured == 1


def test_the_fewest_float_layers_are_found_by_looking_at_all(tmp_path: Path) -> None:
    model, _ = planted(tmp_path)
    row = tune_planted.fewest_row(model, result(None), "section")
    assert (row.measured, row.unit) == (1, "of 3")
    assert row.note.startswith("4 subsets evaluated")  # none, then layers 0, 1 and 2


def trial(index: int, key: str, accuracy: float) -> Trial:
    return Trial(index, None, key, key, accuracy=accuracy, loss=0.0, meets=True, bytes=9)


def test_trials_are_compared_by_what_they_measured() -> None:
    one = replace(result(None), trials=(trial(1, "a", 0.5), trial(2, "b", 0.25)))
    later = replace(one, trials=tuple(replace(t, seconds=9.0, elapsed=9.0) for t in one.trials))
    assert tune_cluster.different(one, later) == 0
    assert tune_cluster.different(one, replace(one, trials=one.trials[:1])) == 1
    other = replace(one, trials=(one.trials[0], trial(2, "b", 0.5)))
    assert tune_cluster.different(one, other) == 2


def test_a_worker_is_killed_half_way_and_not_before(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    lines = ["start", "baseline", *["trial"] * 3]
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as victim:
        with tune_cluster.KillHalfWay(history, 3, victim) as watch:
            time.sleep(0.1)
            history.write_text("".join(json.dumps({"kind": k}) + "\n" for k in lines[:4]))
            time.sleep(0.1)
            assert victim.poll() is None
            assert watch.seen == 2
            history.write_text("".join(json.dumps({"kind": k}) + "\n" for k in lines))
            assert victim.wait(10) == -9
        assert (watch.done, watch.seen) == (1, 3)


def test_evaluate_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tune_stacks.write_onnx(tune_stacks.healthy(3), tmp_path / "stack.onnx")
    search = tune_kills.Search(tmp_path, model, tmp_path / "conf.yaml")
    assert search.calls == 0
    monkeypatch.setenv(tune_kills.CALLS, str(tmp_path / "calls"))
    session = open_session(model)
    assert tune_kills.evaluate(session) == tune_kills.evaluate(session) > 0.99
    assert search.calls == 2


def test_only_times_may_differ_after_a_kill() -> None:
    calm = {"best": {"key": "a", "seconds": 1.0}, "trials": [{"accuracy": 0.5, "elapsed": 2.0}]}
    late = {"best": {"key": "a", "seconds": 3.0}, "trials": [{"accuracy": 0.5, "elapsed": 9.0}]}
    assert tune_kills._timeless(calm) == tune_kills._timeless(late)
    late["trials"] = [{"accuracy": 0.25, "elapsed": 2.0}]
    assert tune_kills._timeless(calm) != tune_kills._timeless(late)


def test_the_configuration_of_the_killed_search_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(tune_kills.CONF.format(strategy="random", trials=80))
    config = load_config(path)
    assert (config.strategy, config.max_trials, config.timeout) == ("random", 80, 3600)
    assert [part.name for part in config.objectives] == ["modelsize"]


def test_every_op_means_convolutions_too() -> None:
    layers = [layer("conv", Kind.CONV, "Conv"), layer("lstm", Kind.RNN, "LSTM")]
    every = [not d.scheme.is_float for d in plan(layers, tune_models.every_op())]
    picked = [not d.scheme.is_float for d in plan(layers, tune_models.lstm_only())]
    assert (every, picked) == ([True, True], [False, True])


@pytest.mark.parametrize(
    ("best", "verdict"),
    [((2.1, 2.1, 2.1), "missed"), ((2.1, 2.0, 1.9), "reached"), ((1.5, 1.5, 1.5), "reached")],
)
def test_slower_is_what_even_the_upper_quartile_is(best: Any, verdict: str) -> None:
    names = (tune_models.FLOAT, tune_models.BEST, tune_models.PICKED)
    seconds = zip(names, ((3.0,) * 3, best, (2.0,) * 3), strict=True)
    found = Comparison({name: Timing(s, (1.0,) * 3) for name, s in seconds})
    row = tune_models._picked_row(found, True, "section", True)
    assert row.verdict == verdict
    assert row.measured == pytest.approx(found.speed(names[1], names[2]).high)
    assert "the same layers" in row.note


def test_a_part_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def every(sections: dict[str, object]) -> list[Row]:
        asked.extend(sections)
        return [Row("figure", 1.0, at_most=0.5, section="part")]

    monkeypatch.setattr(script, "every", every)
    assert script.main(["--only", "silero"]) == 0
    assert asked
    assert all("silero" in title for title in asked)
    shown = capsys.readouterr().out
    assert "nothing is written" in shown
    assert "missed: part: figure: 1, asked at most 0.5" in shown


@pytest.mark.real_time
def test_kills_come_all_along_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, time, pathlib\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "while not path.exists() or path.read_text().count('\\n') < 40:\n"
        "    time.sleep(0.005)\n"
        "    with path.open('a') as file:\n"
        "        file.write('line\\n')\n"
    )
    search = tune_kills.Search(tmp_path, tmp_path / "model.onnx", tmp_path / "conf.yaml")
    command = [sys.executable, "-c", code, str(search.history)]
    monkeypatch.setattr(tune_kills.Search, "start", lambda _: subprocess.Popen(command))
    monkeypatch.setattr(tune_kills, "STARTING", 0.01)
    process, moments = tune_kills.kill_often(search, 8, 40, 0.005)
    assert process.wait(10) == 0
    assert search.lines == 40
    assert len(moments) == 8
    assert moments == sorted(moments)
    assert moments[0] < 20 < moments[-1] <= 40
