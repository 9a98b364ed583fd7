"""`tune`: a fast recipe that keeps a measured accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.errors import OctavoError, OptionError
from octavo.files.staging import Staging
from octavo.front_ends import target_of
from octavo.measure.data import Dataset
from octavo.measure.readers import BATCH_SIZE
from octavo.recipe import Recipe, Rule
from octavo.results.report import Report
from octavo.results.target import Target
from octavo.results.tuning import Approach, Status, TuneResult
from octavo.tune.arguments import (
    Plan,
    Shapes,
    checked_approaches,
    checked_calibration,
    checked_criterion,
    checked_evaluator,
    checked_recipes,
    checked_shapes,
    checked_timeout,
)
from octavo.tune.goals import Criterion, Objective
from octavo.tune.history import History
from octavo.tune.loop import Limits, Loop
from octavo.tune.measurements import Measurements, TimeUpError
from octavo.tune.runners import InProcess, Runner, Workers
from octavo.tune.search import Quiet, View
from octavo.tune.tasks import Setting

NATIVE_GAINS = 0.95
"""Of a portable file's time: target native is named where it takes less."""


def tune(
    model: Any,
    evaluate: Callable[[Any], Any] | str | None = None,
    *,
    metric: Any = None,
    data: str | Path | Dataset | Iterable[Any] | None = None,
    criterion: Criterion | float = 0.01,
    objective: str | Objective | Sequence[tuple[str, float]] = "performance",
    strategy: str = "auto",
    recipe: str | Path | Recipe | Sequence[str | Path | Recipe] | None = None,
    alternatives: Sequence[Rule] = (),
    approach: str = "dynamic",
    calibration: Dataset | Iterable[Any] | None = None,
    calibration_samples: int = 100,
    timeout: float = 0.0,
    max_trials: int = 100,
    seed: int = 1978,
    shapes: Shapes | Sequence[Shapes] = (),
    iteration: int = -1,
    batch_size: int = BATCH_SIZE,
    label: str | None = None,
    warmup: int = 5,
    rounds: int = 11,
    workspace: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    output: str | Path | None = None,
    view: View | None = None,
    path: Sequence[str] = (),
    **options: Any,
) -> TuneResult:
    """Search for the recipe with the best objective among those that keep the accuracy.

    Args:
        model: the path of an ONNX file or a ModelProto; a torch.nn.Module, or `module:factory`.
        evaluate: a callable that is given the model (an onnxruntime.InferenceSession, an nn.Module)
            and returns its accuracy, a number or a dict with one named `accuracy`; or its name,
            `module:function`.
        metric: in place of `evaluate`: a metric's name, (name, options), or several of
            ((name, options), weight); see `octavo.tune.inc.metrics`. Or an object with reset(),
            update(predictions, labels) and result(), as Neural Compressor has them; predictions
            are the list of an ONNX model's outputs, or what a PyTorch model returns.
        data: for the metric: a .npz, .jsonl, .csv or .parquet file, or an iterable of (inputs,
            label); with `evaluate`, for calibration and timing alone. With neither metric nor
            evaluate, outputs on it are compared with the float model's; without data, outputs on
            made-up inputs are.
        criterion: how much accuracy may be lost; a number is a share of the float model's.
        objective: `performance` (latency), `modelsize`, `footprint` (peak memory), `accuracy`, or
            (name, weight) pairs.
        strategy: `auto`, `basic`, `mse`, `random`, `exhaustive`, `bayesian` or `tpe`.
        recipe: what the search starts from: a preset's name, a YAML file or a Recipe; or several,
            of which strategy `auto` takes the best one. None: the presets, `int8` first.
        alternatives: rules whose schemes the layers that they match may take, too.
        approach: `dynamic`; `static` (ONNX only: ONNX Runtime's static quantizer, calibrated on
            `calibration`, or on `data`); `auto` for both.
        calibration_samples: how many inputs are used for calibration.
        timeout: seconds. 0: no clock, and the search stops at the first recipe that meets the
            criterion (`auto` when it has converged). Else it goes on for a better one until then.
            In worker processes a trial is ended at the deadline; in this process the clock is
            looked at between trials.
        max_trials: how many models are evaluated at the most.
        seed: of random choices and made-up inputs. The same seed gives the same trials, as far as
            they do not depend on measured time.
        shapes: of the inputs that are timed and made up, by name; several are timed one by one.
        iteration: how many batches of the data are used; -1: all.
        batch_size: of data files but .jsonl; models with a fixed batch axis need that size.
        label: the name of the label in data files; by default `label` or `labels`.
        warmup: runs before those that are timed.
        rounds: timed runs, in turns with the float model.
        workspace: a folder for the history; None keeps it in memory.
        resume: continue the search whose history is there.
        workers: processes for trials; None: this process.
        output: where the best model is written, if it meets the criterion.
        view: who watches (`octavo.tune.search.View`).
        path: folders in which modules named in strings are found by workers.
        options: of the model's front end: target, cpu, quant_format, threads, sess_options,
            custom_ops; example_inputs.

    Raises:
        OctavoError: see `octavo.errors`. An error in `evaluate` fails its trial; on the float model
            it is an EvaluationError.
    """
    if "executor" in options:
        raise OptionError("executor: trials run on this machine; give workers=N in its place")
    target = target_of(model, **options)
    shaped = checked_shapes(shapes)
    evaluator = checked_evaluator(
        evaluate,
        metric,
        data,
        target,
        shapes=shaped,
        seed=seed,
        limit=iteration,
        batch_size=batch_size,
        label=label,
        relative=not isinstance(criterion, Criterion) or criterion.relative is not None,
    )
    watcher = view or Quiet()
    plan = Plan(
        target,
        evaluator,
        checked_criterion(criterion, evaluator),
        Objective.of(objective),
        strategy,
        checked_recipes(recipe),
        tuple(alternatives),
        checked_approaches(approach),
        seed,
    )
    setting = Setting(
        target,
        evaluator,
        shaped,
        checked_calibration(plan, calibration, calibration_samples),
        seed,
        warmup,
        rounds,
        path=tuple(path),
    )
    if isinstance(max_trials, bool) or not isinstance(max_trials, int) or max_trials < 1:
        raise OptionError(f"max_trials is a whole number from 1, not {max_trials!r}")
    limits = Limits(checked_timeout(timeout), max_trials)
    searches = plan.searches()
    for shape in shaped:
        target.made_up(shape, seed)  # a wrong name or size is known now, not after an evaluation
    if output is not None:
        _check_output(target, Path(output))
    with ExitStack() as stack:
        folder = None if workspace is None else Path(workspace)
        history = stack.enter_context(History(folder, plan.subject(data, setting), resume=resume))
        runner = stack.enter_context(_runner(setting, workers))
        measuring = Measurements(plan.criterion, plan.objective, history, runner, watcher)
        loop = Loop(measuring, target.decisions, limits, seed, evaluator.agreement_only)
        timed = setting.timed_words() if measuring.timed else ""
        watcher.start(
            target.label,
            str(plan.criterion),
            str(plan.objective),
            strategy,
            searches[0][1][0].total_layers,
            max_trials,
            limits.timeout - history.elapsed if limits.keeps_going else None,
            bound=plan.criterion.bound,
            relative=plan.criterion.relative is not None,
            timed=timed,
        )
        if history.resumed:
            watcher.note(f"resumed: {history.resumed} measurements were there")
        status = loop.run(searches)
        native = _native_ratio(plan, loop, status)
        found = _finished(plan, loop, status, setting, output, watcher)
        return replace(found, native_ratio=native, timed_inputs=timed)


def _native_ratio(plan: Plan, loop: Loop, status: Status) -> float | None:
    """Return the best recipe's time in Octavo's own operators over the float model's, if a gain.

    None where somebody has chosen a target, or where these operators are no gain or not timed.
    """
    best, measuring = loop.best, loop.measuring
    asked = status.met and measuring.timed and best.meets and not best.is_static
    if not asked or best.recipe is None or plan.target.native() is None:
        return None
    try:
        ratio = measuring.native_ratio(best)
    except (TimeUpError, KeyboardInterrupt):
        return None
    gains = ratio is not None and best.time_ratio and ratio < NATIVE_GAINS * best.time_ratio
    return ratio if gains else None


def _finished(
    plan: Plan, loop: Loop, status: Status, setting: Setting, output: Any, view: View
) -> TuneResult:
    """Build the result; write the best model where it meets the criterion."""
    best, written, notes = loop.best, "", list(loop.measuring.notes)
    report: Report | None = None
    if best.meets and best.score is not None and best.score > 1:
        notes.append(
            f"by the objective ({plan.objective}) the float model is better than any recipe found: "
            "quantization may not pay for a model or inputs this small (--shape, shapes)"
        )
    if best.recipe is not None and best.meets:
        static = best.approach is Approach.STATIC
        calibration = setting.calibration if static else None
        try:
            if output is not None:
                view.doing(f"writing {output}")
                report = plan.target.save(best.recipe, Path(output), calibration)
                written = str(output)
            elif not static:
                report = plan.target.build(best.recipe).report
        except OctavoError as error:  # what was found must not be lost with it
            notes.append(f"{output} is not written: {error}")
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        accepted = _accepted(best.recipe, report)
        best = best if accepted is best.recipe else replace(best, recipe=accepted)
    for note in notes[len(loop.measuring.notes) :]:
        view.note(note)
    return TuneResult(
        status=status,
        best=best,
        trials=tuple(loop.trials),
        baseline=loop.baseline,
        model=plan.target.label,
        criterion=str(plan.criterion),
        objective=str(plan.objective),
        strategy=plan.strategy,
        seconds=loop.measuring.elapsed(),
        ranking=loop.ranking,
        model_runs=loop.model_runs,
        report=report,
        bound=plan.criterion.bound,
        relative=plan.criterion.relative is not None,
        higher_is_better=plan.criterion.higher_is_better,
        output=written,
        notes=tuple(notes),
        stop=loop.stop,
        timeout=loop.limits.timeout,
        timed=tuple(loop.measuring.appraised.values()),
    )


def _accepted(recipe: Recipe, report: Report | None) -> Recipe:
    """Give `recipe` room for the error that the saved model has on made-up inputs.

    The model's accuracy was measured, so that quantizing by this recipe must not refuse it.
    """
    error = None if report is None else report.verification.error
    if error is None or not recipe.max_error < 2 * error < math.inf:
        return recipe
    return replace(recipe, max_error=2 * error)


def _runner(setting: Setting, workers: int | None) -> Runner:
    """Return who runs the tasks."""
    if workers is None:
        return InProcess(setting)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise OptionError(f"workers is a whole number from 1, not {workers!r}")
    return Workers(setting, workers)


def _check_output(target: Target, output: Path) -> None:
    if output.suffix.lower() != target.output_suffix:
        raise OptionError(
            f"output {output}: {target.label} is written as {target.output_suffix}; end the name so"
        )
    Staging(output)  # a place that cannot be written is known now, not after the search
