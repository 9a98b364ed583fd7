"""The loop over simulated models: what it promises whatever a strategy does."""

import itertools
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import EvaluationError, HistoryError, OptionError, OutputError
from octavo.measure import waiting
from octavo.recipe import Scheme, preset
from octavo.results.benchmark import BUSY
from octavo.results.target import Built
from octavo.results.tuning import Status, Trial
from octavo.tune import Criterion, Objective, tune
from octavo.tune.arguments import strategy_named
from octavo.tune.contest import Contest
from octavo.tune.evaluators import CallableEvaluator
from octavo.tune.history import History
from octavo.tune.loop import Limits, Loop
from octavo.tune.measurements import Measurements
from octavo.tune.runners import InProcess
from octavo.tune.search import Quiet
from octavo.tune.space import Space
from octavo.tune.tasks import Compare, Setting, Task, TaskResult
from tests.tune.simulated_target import Simulated, evaluate

STRATEGIES = ("auto", "basic", "mse", "random", "exhaustive", "tpe")
SIZE: dict[str, Any] = {"objective": "modelsize"}


def plain(trials: Sequence[Trial]) -> list[Any]:
    """Without what depends on the clock."""
    return [replace(t, seconds=0.0, elapsed=0.0, error=t.error[-80:]).to_dict() for t in trials]


@settings(max_examples=40, deadline=None)
@given(
    damage=st.lists(st.floats(-0.02, 0.3), min_size=1, max_size=9).map(tuple),
    float_accuracy=st.sampled_from([0.9, 0.0, -2.0]),
    strategy=st.sampled_from(STRATEGIES),
    absolute=st.floats(0.0, 0.5),
    higher=st.booleans(),
    max_trials=st.integers(1, 30),
)
def test_a_search_ends_within_its_limits_and_calls_met_only_what_is(
    damage: tuple[float, ...],
    float_accuracy: float,
    strategy: str,
    absolute: float,
    higher: bool,
    max_trials: int,
) -> None:
    target = Simulated(damage, float_accuracy)
    criterion = Criterion(absolute=absolute, higher_is_better=higher)
    result = tune(
        target, evaluate, criterion=criterion, strategy=strategy, max_trials=max_trials, **SIZE
    )
    assert len(result.trials) <= max_trials
    assert len({trial.key for trial in result.trials}) == len(result.trials)
    assert [trial.index for trial in result.trials] == list(range(1, len(result.trials) + 1))
    for trial in result.trials:
        assert trial.recipe is not None
        accuracy = target.build(trial.recipe).model["accuracy"]
        assert trial.accuracy == accuracy
        assert trial.meets == criterion.meets(float_accuracy, accuracy)
    assert result.status in (Status.MET, Status.BEST_EFFORT)
    if result.status is Status.MET:
        assert result.best.meets
        assert result.best.score == min(t.score for t in result.trials if t.meets)
    else:
        assert not any(trial.meets for trial in result.trials)
        assert result.output == ""


@pytest.mark.parametrize(
    ("strategy", "workers"), [*((name, None) for name in STRATEGIES), ("auto", 2)]
)
def test_a_search_cut_anywhere_and_resumed_ends_as_one_undisturbed(
    tmp_path: Path, strategy: str, workers: int | None
) -> None:
    target = Simulated((0.001, 0.02, 0.003, 0.03, 0.004), calls=str(tmp_path / "calls"))
    how: dict[str, Any] = {
        "strategy": strategy,
        "max_trials": 12,
        "timeout": 3600,
        "workspace": tmp_path,
        **SIZE,
    }
    whole = tune(target, evaluate, **how)
    lines = (tmp_path / "history.jsonl").read_bytes().splitlines(keepends=True)
    for cut in (1,) if workers else (1, 2, len(lines) // 2, len(lines)):
        (tmp_path / "calls").write_text("")
        torn = lines[cut][:30] if cut < len(lines) else b""
        (tmp_path / "history.jsonl").write_bytes(b"".join(lines[:cut]) + torn)
        again = tune(target, evaluate, **how, resume=True, workers=workers)
        assert plain(again.trials) == plain(whole.trials)
        assert plain([again.best, again.baseline]) == plain([whole.best, whole.baseline])
        assert again.status is whole.status
        assert again.ranking == whole.ranking
        known = [json.loads(line)["kind"] for line in lines[1:cut]]
        evaluated = len((tmp_path / "calls").read_text().splitlines())
        assert evaluated == 1 + len(whole.trials) - sum(k in ("trial", "baseline") for k in known)


def test_the_first_that_meets_ends_it_without_a_clock() -> None:
    result = tune(Simulated((0.1, 0.0, 0.1)), evaluate, strategy="exhaustive", **SIZE)
    assert result.status is Status.MET
    assert result.best is result.trials[-1]
    assert [trial.meets for trial in result.trials] == [False] * (len(result.trials) - 1) + [True]


def test_with_a_clock_it_goes_on_for_a_better_one() -> None:
    quick, long = (
        tune(Simulated((0.1, 0.0, 0.1)), evaluate, strategy="exhaustive", timeout=timeout, **SIZE)
        for timeout in (0, 600)
    )
    assert len(long.trials) > len(quick.trials)
    assert long.best.score is not None and quick.best.score is not None
    assert long.best.score <= quick.best.score


@pytest.mark.real_time
def test_the_deadline_is_kept_between_trials() -> None:
    target = Simulated((0.5,) * 6, seconds=0.2)
    result = tune(target, evaluate, strategy="random", timeout=1.0, **SIZE)
    assert result.status is Status.TIMED_OUT
    assert 1 <= len(result.trials) <= 5
    assert result.seconds < 5
    assert not result.best.meets


@pytest.mark.real_time
def test_a_deadline_before_the_first_trial_still_gives_a_result() -> None:
    result = tune(Simulated((0.5,), seconds=0.3), evaluate, timeout=0.1, **SIZE)
    assert (result.status, result.trials) == (Status.TIMED_OUT, ())
    assert result.best is result.baseline


@pytest.mark.parametrize("at", [0, 1, 3])
def test_ctrl_c_gives_the_best_so_far(at: int) -> None:
    calls: list[Any] = []

    def it(model: Any) -> float:
        if len(calls) == at:
            raise KeyboardInterrupt
        calls.append(model)
        return evaluate(model)

    result = tune(
        Simulated((0.0, 0.0, 0.5)), it, strategy="exhaustive", timeout=600, max_trials=50, **SIZE
    )
    assert result.status is Status.INTERRUPTED
    assert len(result.trials) == max(0, at - 1)
    assert result.best in (result.baseline, *result.trials)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trial_that_fails_is_marked_and_the_search_goes_on(strategy: str) -> None:
    def fails_on_int8(model: Any) -> Any:
        if "int8" in json.loads(model["held"]).get("fc1", ""):
            raise RuntimeError("fc1 is not served")
        return {"accuracy": evaluate(model), "loss": 3.0}

    target = Simulated((0.0, 0.0, 0.0))
    result = tune(target, fails_on_int8, strategy=strategy, max_trials=60, **SIZE)
    failed = [trial for trial in result.trials if trial.failed]
    assert failed
    assert all('raise RuntimeError("fc1 is not served")' in trial.error for trial in failed)
    assert result.status is Status.MET
    assert not result.best.failed


@pytest.mark.parametrize("accuracy", [math.nan, math.inf, -math.inf])
def test_an_accuracy_that_is_not_finite_is_no_accuracy(accuracy: float) -> None:
    def it(model: Any) -> float:
        return accuracy if "int8" in model["held"] else 1.0

    result = tune(Simulated((0.1, 0.1)), it, recipe="int8", **SIZE)
    assert result.status is Status.BEST_EFFORT
    assert {trial.error for trial in result.trials} == {f"the accuracy is {accuracy}"}
    assert result.best is result.baseline


def test_a_numpy_number_and_a_dict_are_accuracies() -> None:
    assert tune(Simulated((0.0,)), lambda m: np.float32(0.5), **SIZE).baseline.accuracy == 0.5
    assert tune(Simulated((0.0,)), lambda m: {"accuracy": 1}, **SIZE).baseline.accuracy == 1.0


@pytest.mark.parametrize("parallel", [1, 3])
def test_stopping_at_the_first_does_not_depend_on_how_many_run_at_once(
    parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, how = Simulated((0.1, 0.1, 0.0, 0.0)), {"strategy": "exhaustive", **SIZE}
    alone = tune(target, evaluate, **how)
    monkeypatch.setattr(InProcess, "parallel", parallel)
    result = tune(target, evaluate, **how)
    assert plain(result.trials) == plain(alone.trials)


def test_made_up_inputs_stand_in_and_the_status_says_so() -> None:
    result = tune(Simulated((0.01, 0.5)), **SIZE)
    assert result.status is Status.MET_AGREEMENT
    assert result.best.words == "int8-accurate"  # a tenth of the damage


def test_the_output_is_written_only_if_the_criterion_is_met(tmp_path: Path) -> None:
    met, missed = tmp_path / "met.onnx", tmp_path / "missed.onnx"
    assert tune(Simulated((0.0,)), evaluate, output=met, **SIZE).output == str(met)
    assert met.exists()
    assert tune(Simulated((0.5,)), lambda m: -len(m["held"]), output=missed, **SIZE).output == ""
    assert not missed.exists()


class TimesUp:
    """A clock that cuts tasks off from its `at`th on."""

    parallel = 1

    def __init__(self, setting: Setting, at: int, error: BaseException | None) -> None:
        self.inner, self.left, self.error = InProcess(setting), at, error

    def run(self, tasks: Any, deadline: Any, on_done: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            if self.error is not None:
                raise self.error
            return [None] * len(tasks)
        return self.inner.run(tasks, deadline, on_done)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()])
def test_a_trial_that_was_evaluated_counts_though_its_timing_was_cut_off(
    error: BaseException | None,
) -> None:
    setting = Setting(Simulated((0.0, 0.0)), CallableEvaluator(evaluate), rounds=2, warmup=0)
    measuring = Measurements(
        Criterion(relative=0.01),
        Objective(),
        History(None, {}),
        TimesUp(setting, 3, error),
        Quiet(),
    )
    loop = Loop(measuring, setting.target.decisions, Limits(timeout=60.0))
    space = Space.of(setting.target.decisions(preset("int8")), preset("int8"))
    status = loop.run([(strategy_named("exhaustive"), [space])])
    assert status is (Status.MET if error is None else Status.INTERRUPTED)
    assert [(trial.index, trial.meets, trial.latency) for trial in loop.trials] == [(1, True, None)]
    assert loop.best is loop.trials[0]


class Asked(InProcess):
    """Is told the tasks, and answers that nothing could be compared."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def run(self, tasks: Sequence[Task], *more: Any) -> list[Any]:
        self.tasks.extend(tasks)
        blank = [None] * 3
        return [TaskResult({"seconds": blank, "bytes": blank, "errors": [""] * 3, "pairs": []})]


@pytest.mark.parametrize(
    ("timeout", "latency", "evaluation", "share", "limit"),
    [
        (None, 5.0, 60.0, 0.15, math.inf),
        (100.0, 0.1, 1.0, 0.15, 15.0),
        (100.0, 0.1, 46.0, 0.15, 8.0),  # two evaluations come after it
        (100.0, 0.1, 46.0, 1.0, 100.0),
        (100.0, 0.5, 1.0, 0.15, None),
        (100.0, 0.1, 50.0, 0.15, None),
        (1.0, 0.1, 1.0, 1.0, None),
    ],
)
def test_a_comparison_leaves_time_for_evaluations_or_is_left_out(
    timeout: float | None, latency: float, evaluation: float, share: float, limit: float | None
) -> None:
    """By the float model's figures; a search that is resumed takes the same way."""
    criterion, history, asked = Criterion(relative=0.01), History(None, {}), Asked()
    measuring = Measurements(criterion, Objective(), history, asked, Quiet())
    measuring.deadline = None if timeout is None else time.monotonic() + timeout
    measuring.baseline = replace(measuring.baseline, latency=latency, seconds=evaluation)
    trials = [Trial(0, preset(name), name, name) for name in ("int8", "int4")]
    for _ in range(2):
        assert not measuring.compared(trials, 5.0, "", share)["pairs"]
    limits = [task.limit for task in asked.tasks if isinstance(task, Compare)]
    assert limits == pytest.approx(
        [] if limit is None else [limit] * (1 if share < 1 else 2), abs=1
    )


def test_a_best_trial_that_can_no_longer_be_run_is_not_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settle(contest: Contest, trials: Sequence[Trial]) -> tuple[list[Trial], None]:
        best = min((t for t in trials if t.meets), key=lambda trial: trial.score or 0.0)
        gone = replace(best, error="RuntimeError: gone", meets=False, accuracy=None)
        return [gone if trial is best else trial for trial in trials], None

    monkeypatch.setattr(Contest, "settle", settle)
    result = tune(Simulated((0.0, 0.0, 0.5)), evaluate, strategy="exhaustive", timeout=600, **SIZE)
    (failed,) = (trial for trial in result.trials if trial.failed)
    assert result.best.meets
    assert result.best.score == min(t.score for t in result.trials if t.meets)
    (note,) = result.notes
    assert f"trial {failed.index} " in note and "RuntimeError: gone" in note


def test_what_failed_for_a_full_disk_is_tried_again_on_resumption(tmp_path: Path) -> None:
    full = [True]

    def it(model: Any) -> float:
        if full and "int8" in model["held"]:
            raise OSError(28, "No space left on device")
        return evaluate(model)

    target = Simulated((0.0, 0.0))
    how: dict[str, Any] = {"recipe": "int8", "workspace": tmp_path, **SIZE}
    assert tune(target, it, **how).status is Status.BEST_EFFORT
    full.clear()
    again = tune(target, it, **how, resume=True)
    assert again.status is Status.MET
    assert again.best.index == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"metric": ("topk", {"k": 2})},
        {"metric": ("topk", {"k": 1}), "iteration": 1},
        {"metric": ("topk", {"k": 1}), "criterion": 0.0100000001},
    ],
)
def test_another_measure_is_another_search(tmp_path: Path, changed: dict[str, Any]) -> None:
    data = [({"x": np.eye(3)}, np.arange(3))]
    same: dict[str, Any] = {"metric": ("topk", {"k": 1}), "data": data, "workspace": tmp_path}
    tune(Simulated((0.0,)), **same, **SIZE)
    assert tune(Simulated((0.0,)), **same, **SIZE, resume=True).status is Status.MET
    with pytest.raises(HistoryError, match="it is another search's"):
        tune(Simulated((0.0,)), **{**same, **changed}, **SIZE, resume=True)


def test_a_recipe_slower_than_the_float_model_is_said() -> None:
    target = Simulated((0.0,))
    result = tune(target, evaluate, objective="footprint")
    assert not any("float model is better" in note for note in result.notes)
    heavy = HeavyWhenQuantized((0.0,))
    result = tune(heavy, evaluate, objective="footprint")
    assert result.status is Status.MET
    assert any("float model is better than any recipe" in note for note in result.notes)


class HeavyWhenQuantized(Simulated):
    """Needs more memory in int8."""

    def peak_memory(self, recipe: Any, feed: Any, calibration: Any = None) -> int:
        return 100 if recipe is None else 150


def test_an_output_that_cannot_be_written_does_not_lose_the_result(tmp_path: Path) -> None:
    class Unwritable(Simulated):
        def save(self, recipe: Any, out: Path, calibration: Any = None) -> Any:
            raise OutputError(f"{out} cannot be written: No space left on device")

    result = tune(Unwritable((0.0,)), evaluate, output=tmp_path / "best.onnx", **SIZE)
    assert result.status is Status.MET
    assert result.output == ""
    assert any("No space left" in note for note in result.notes)


class Same(Simulated):
    """Float it returns what it is fed; quantized it is off by as much as its layers cost."""

    def _built(self, held: Mapping[str, Scheme]) -> Built:
        built, off = super()._built(held), bool(held)
        return replace(built, run=lambda feed: [feed["x"] + off if off else feed["x"]])


X = np.arange(1, 9, dtype=np.float64).reshape(4, 2)
ZEROS: dict[str, tuple[Any, Any]] = {
    "MAE": (X, X),
    "MSE": (X, X),
    "RMSE": (X, X),
    "Loss": (0 * X, X),
    "WER": (np.array(["a b", "c"]), ["a b", "c"]),
    "CER": (np.array(["a b", "c"]), ["a b", "c"]),
    "topk": (np.eye(4), np.array([1, 2, 3, 0])),  # an accuracy, of wrong labels
}


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("metric", ZEROS)
def test_no_share_is_taken_of_a_float_model_s_0(tmp_path: Path, metric: str, timed: bool) -> None:
    """At once: nothing is timed, and no recipe tried; resumed alike."""
    x, labels = ZEROS[metric]
    target = Same((0.1,), calls=str(tmp_path / "calls"))
    given_data: dict[str, Any] = {"data": [({"x": x}, labels)], "metric": metric}
    objective = "performance" if timed else "modelsize"
    for resume in (False, True):
        with pytest.raises(OptionError, match=r"exactly 0, .* Criterion\(absolute=0\.01\)"):
            tune(target, **given_data, objective=objective, workspace=tmp_path, resume=resume)
    absolute = Criterion(absolute=0.1, higher_is_better=metric == "topk")
    found = tune(target, **given_data, **SIZE, criterion=absolute, max_trials=2)
    assert found.baseline.accuracy == 0


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, np.float32(0)])
def test_nor_of_a_function_s_0(zero: Any) -> None:
    calls = []

    def it(model: Any) -> Any:
        calls.append(model)
        return zero

    with pytest.raises(OptionError, match="the float model's accuracy is exactly 0"):
        tune(Simulated((0.0,)), it, **SIZE)
    assert len(calls) == 1


@pytest.mark.parametrize("metrics", [["MSE", "MAE"], ["MAE", "MSE"]])
def test_nor_of_one_of_several_metrics(metrics: list[str]) -> None:
    """Each has to meet the criterion; of their weighted mean it is the mean that must not be 0."""
    given: Any = {"data": [({"x": X}, X)], **SIZE}
    with pytest.raises(EvaluationError, match=f"float model's {metrics[0]} is exactly 0"):
        tune(Same((0.1,)), metric=[(metrics[0], None), (metrics[1], None)], **given)
    with pytest.raises(OptionError, match="accuracy is exactly 0"):
        tune(Same((0.1,)), metric=[(name, 0.5) for name in metrics], **given)


@pytest.mark.parametrize("strategy", ["auto", "basic"])
def test_a_busy_machine_chooses_by_no_speed(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that keeps the criterion is chosen, and no time is told."""
    monkeypatch.setattr(waiting, "waited", itertools.count().__next__)
    result = tune(Simulated((0.0, 0.2, 0.0)), evaluate, strategy=strategy, max_trials=6)
    assert result.status.met and result.best.meets
    assert all(t.time_ratio is None and t.latency is None for t in result.trials)
    assert BUSY in result.notes
    assert not re.search(r"as fast|times as long|Latency", result.text())
