"""Tuning real models: all-MiniLM-L6 on Lee, silero-vad on the area under the ROC curve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import latency, variants
from benchmarks.results import Row, say
from benchmarks.sections import Rows
from benchmarks.timing import Comparison
from benchmarks.zoo import minilm, silero
from benchmarks.zoo.sessions import Feed, Session, open_session
from octavo.onnx import supported_ops
from octavo.recipe import Recipe, Report, Rule, preset
from octavo.results.tuning import TuneResult
from octavo.tune import Criterion, tune

FLOAT, INT8, BEST, PICKED = "float", "all int8", "best", "LSTM only"
LEE, LEE_FORCED, AUC = Criterion(relative=0.01), Criterion(relative=0.005), Criterion(0.005)
FORCED = "int8-per-tensor"
SHAPE = (1, 128)
THREADS = 1  # of the search's sessions, as of those that are compared afterwards
BLOCK = 512  # frames of one call of silero-vad's sequence form, as in its package


def sections(folder: Path, quick: bool) -> dict[str, Rows]:
    """Rows by title; files are made in `folder`."""
    found: dict[str, Rows] = {
        "all-MiniLM-L6, 1% on Lee": minilm_rows,
        f"all-MiniLM-L6, {FORCED} forced, 0.5% on Lee": partial(forced_rows, folder, quick),
        "silero-vad, every op allowed": partial(silero_rows, folder, "portable", quick),
    }
    if not quick:
        found["silero-vad, every op allowed, target native"] = partial(
            silero_rows, folder, "native", quick
        )
        found["silero-vad, every op allowed, other forms"] = other_form_rows
    return found


def evaluate_lee(session: Session) -> float:
    """Pearson correlation on Lee."""
    embed = minilm.embedder(session)
    return minilm.Evaluation(embed).lee(embed)


def minilm_rows() -> Iterator[Row]:
    """The preset as it is will do."""
    section = "all-MiniLM-L6, 1% on Lee"
    say(section)
    result = tune(
        minilm.onnx_path(), evaluate_lee, criterion=LEE, shapes=_tokens(), threads=THREADS
    )
    yield _loss_row(result, LEE, section)
    yield Row("evaluations", len(result.trials), at_most=1, section=section, note=_said(result))


def forced_rows(folder: Path, quick: bool) -> Iterator[Row]:
    """A base that loses too much: the search gives back as little speed as it must."""
    section = f"all-MiniLM-L6, {FORCED} forced, 0.5% on Lee"
    say(section)
    model, best = minilm.onnx_path(), folder / "minilm-tuned.onnx"
    result = tune(
        model,
        evaluate_lee,
        criterion=LEE_FORCED,
        recipe=FORCED,
        shapes=_tokens(),
        output=best,
        threads=THREADS,
    )
    yield _base_row(result, section)
    yield _loss_row(result, LEE_FORCED, section)
    yield Row("evaluations", len(result.trials), section=section, note=_said(result))
    if not result.output:
        raise RuntimeError(f"{result.status.value}: no model was written, and none can be timed")
    say(f"{section}: latency")
    files = {FLOAT: model, INT8: folder / "minilm-per-tensor.onnx", BEST: best}
    variants.octavo_quantize(model, files[INT8], recipe=FORCED)
    feeds = {latency.label(SHAPE): latency.tokens(SHAPE)}
    found = _compared(files, feeds, quick)
    yield _time_row(found, FLOAT, None, 1.0, section)
    yield _time_row(found, INT8, 1.0, None, section)


def silero_rows(folder: Path, target: str, quick: bool) -> Iterator[Row]:
    """The sequence form: int8 gains time in its LSTM, and loses it in its convolutions."""
    section = "silero-vad, every op allowed"
    section += "" if target == "portable" else f", target {target}"
    asked = target == "portable"
    say(section)
    model, best = silero.forms()["initializers"], folder / f"silero-{target}.onnx"
    state = (1, 1, silero.UNITS)
    shapes = {"input": (BLOCK, silero.CONTEXT + silero.FRAME), "h": state, "c": state}
    result = tune(
        model,
        silero.frame_auc,
        criterion=AUC,
        recipe=every_op(),
        shapes=shapes,
        target=target,
        output=best,
        threads=THREADS,
    )
    yield _all_ops_row(model, folder, target, section)
    yield _loss_row(result, AUC, section)
    yield Row("evaluations", len(result.trials), section=section, note=_said(result))
    yield _lstm_row(result.report, section, asked)
    if not result.output:
        raise RuntimeError(f"{result.status.value}: no model was written, and none can be timed")
    say(f"{section}: latency")
    picked = folder / f"silero-lstm-{target}.onnx"
    files = {FLOAT: model, BEST: best, PICKED: picked}
    report = variants.octavo_quantize(model, picked, recipe=lstm_only(), target=target)
    frames, zeros = silero.recording().frames[:BLOCK], np.zeros(state, np.float32)
    feeds = {f"{BLOCK} frames": {"input": frames, "h": zeros, "c": zeros}}
    found = _compared(files, feeds, quick)
    same = result.report is not None and _schemes(report) == _schemes(result.report)
    yield _picked_row(found, same, section, asked)
    yield _time_row(found, FLOAT, None, None, section)


def _all_ops_row(model: Path, folder: Path, target: str, section: str) -> Row:
    """What the recipe that the search starts from loses: for information."""
    made = folder / f"silero-every-op-{target}.onnx"
    report = variants.octavo_quantize(model, made, recipe=every_op(), target=target)
    exact, found = (silero.frame_auc(open_session(path)) for path in (model, made))
    note = f"{found:.4f}, float {exact:.4f}; {len(report.quantized)} layers quantized"
    return Row("every op int8: lost", 100 * AUC.loss(exact, found), "%", section=section, note=note)


def other_form_rows() -> Iterator[Row]:
    """The forms that take a frame a run: for information."""
    section = "silero-vad, every op allowed, other forms"
    state = {"state": (2, 1, silero.UNITS)}
    shapes = {"input": (1, silero.CONTEXT + silero.FRAME), **state}
    for form, path in {**silero.forms(), **silero.more_forms()}.items():
        if form == "initializers":
            continue
        say(f"{section}: {form}")
        # A frame takes a tenth of a millisecond, and made-up rates are no rates: by size.
        result = tune(
            path,
            silero.frame_auc,
            criterion=AUC,
            recipe=every_op(),
            objective="modelsize",
            shapes=shapes,
        )
        lost = math.nan if result.best.loss is None else 100 * result.best.loss
        yield Row(f"{form}: AUC lost", lost, "%", section=section, note=_said(result))


def every_op() -> Recipe:
    """`int8` for every operator that can be quantized, convolutions too."""
    base = preset("int8")
    return base.with_rules_first(*(Rule(base.default, op=op) for op in supported_ops()))


def lstm_only() -> Recipe:
    """What somebody who knows the model would write."""
    from octavo.recipe import FLOAT as LEFT_FLOAT

    return Recipe(PICKED, LEFT_FLOAT, (Rule(preset("int8").default, op="LSTM"),))


def _schemes(report: Report) -> dict[str, str]:
    return {o.layer.name: o.scheme if o.quantized else "float" for o in report.layers}


def _lstm_row(report: Report | None, section: str, asked: bool) -> Row:
    lstms = [] if report is None else [o for o in report.layers if o.layer.op == "LSTM"]
    others = [] if report is None else [o for o in report.quantized if o.layer.op != "LSTM"]
    return Row(
        "LSTM layers quantized",
        sum(o.quantized for o in lstms),
        f"of {len(lstms)}",
        at_least=max(1, len(lstms)) if asked else None,
        section=section,
        note=f"and {', '.join(o.layer.name for o in others) or 'nothing else'}",
    )


def _picked_row(found: Comparison, same: bool, section: str, asked: bool) -> Row:
    """Slower than the hand-picked recipe is what even the upper quartile of the rounds is."""
    speed = found.speed(BEST, PICKED)
    note = "the same layers, the same schemes; " if same else ""
    return Row(
        f"speed over the hand-picked recipe, {PICKED}: upper quartile of the rounds",
        speed.high,
        "x",
        at_least=1.0 if asked else None,
        section=section,
        note=f"{note}median {speed.median:.3f}, lower quartile {speed.low:.3f}; "
        f"{_milliseconds(found, BEST)} to {_milliseconds(found, PICKED)}",
    )


def _time_row(
    found: Comparison, over: str, at_least: float | None, at_most: float | None, section: str
) -> Row:
    share = found.time(BEST, over)
    return Row(
        f"time as a share of the {over} model's",
        share.median,
        at_least=at_least,
        at_most=at_most,
        section=section,
        note=f"{_milliseconds(found, BEST)} to {_milliseconds(found, over)}; quartiles "
        f"{share.low:.3f} to {share.high:.3f}",
    )


def _milliseconds(found: Comparison, name: str) -> str:
    return f"{found[name].median * 1e3:.2f} ms"


def _compared(files: Mapping[str, Path], feeds: Mapping[str, Feed], quick: bool) -> Comparison:
    processes = 1 if quick else 5
    (found,) = latency.compare(files, feeds, processes=processes).values()
    return found


def _base_row(result: TuneResult, section: str) -> Row:
    """What the recipe that the search starts from loses: for information."""
    loss = result.trials[0].loss
    ratio = result.trials[0].time_ratio
    note = "" if ratio is None else f"{ratio:.3f} of the float model's time"
    lost = math.nan if loss is None else 100 * loss
    return Row(f"{result.trials[0].words}: lost", lost, "%", section=section, note=note)


def _loss_row(result: TuneResult, criterion: Criterion, section: str) -> Row:
    loss = result.best.loss
    exact, found = result.baseline.accuracy, result.best.accuracy
    lost = math.nan if loss is None or not result.status.met else 100 * loss
    note = f"{result.status.value}: {found:.4f}, float {exact:.4f}"
    return Row(
        "accuracy lost", lost, "%", at_most=100 * criterion.bound, section=section, note=note
    )


def _said(result: TuneResult) -> str:
    return (
        f"{result.status.value}: {result.best.words}; {result.model_runs} runs of the model; "
        f"{result.seconds:.0f} s"
    )


def _tokens() -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(minilm.INPUT_NAMES, SHAPE)
