"""The rows about tuning: what is counted, and that a miss stays one."""

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import runner, tune_models, tune_planted, tune_stacks
from benchmarks import tune as script
from benchmarks.results import Row
from octavo.measure.timing import Comparison, Timing
from octavo.onnx import OnnxTarget
from octavo.recipe import Recipe
from octavo.results.tuning import Status, Trial, TuneResult

pytestmark = pytest.mark.slow


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

    monkeypatch.setattr(runner, "every", every)
    assert script.main(["--only", "silero"]) == 0
    assert asked
    assert all("silero" in title for title in asked)
    shown = capsys.readouterr().out
    assert "nothing is written" in shown
    assert "missed: part: figure: 1, asked at most 0.5" in shown
