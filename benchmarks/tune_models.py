"""Tuning real models: all-MiniLM-L6 on Lee, silero-vad on the area under the ROC curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import latency, variants
from benchmarks.latency import Setting
from benchmarks.results import Row, say
from benchmarks.runner import Rows
from benchmarks.zoo import minilm, silero
from benchmarks.zoo.sessions import Feed, Session, open_session
from octavo.measure.timing import Comparison
from octavo.onnx import supported_ops
from octavo.recipe import FLOAT as LEFT_FLOAT
from octavo.recipe import Recipe, Rule, preset
from octavo.results.report import Report
from octavo.results.tuning import TuneResult
from octavo.tune import Criterion, tune

FLOAT, INT8, BEST, PICKED = "float", "all int8", "best", "LSTM only"
LEE, LEE_FORCED, AUC = Criterion(relative=0.01), Criterion(relative=0.005), Criterion(0.005)
FORCED = "int8-per-tensor"
SHAPE = (1, 128)
TOKENS = dict.fromkeys(minilm.INPUT_NAMES, SHAPE)
BLOCK = 512  # frames of one call of silero-vad's sequence form, as in its package
STATE = (1, 1, silero.UNITS)


def sections(folder: Path, quick: bool) -> dict[str, Rows]:
    """Rows by title; files are made in `folder`."""
    every = "silero-vad, every op allowed"
    parts: dict[str, Callable[[str], Iterator[Row]]] = {
        "all-MiniLM-L6, 1% on Lee": minilm_rows,
        f"all-MiniLM-L6, {FORCED} forced, 0.5% on Lee": partial(forced_rows, folder, quick),
        every: partial(silero_rows, folder, "portable", quick),
        f"{every}, target native": partial(silero_rows, folder, "native", quick),
        f"{every}, other forms": other_form_rows,
    }
    asked = list(parts)[: 3 if quick else 5]
    return {section: partial(parts[section], section) for section in asked}


def _tuned(model: Path, evaluate: Any, criterion: Criterion, **options: Any) -> TuneResult:
    """On one thread, as the sessions that are compared afterwards."""
    return tune(model, evaluate, criterion=criterion, **{"threads": 1, "recipe": "int8", **options})


def evaluate_lee(session: Session) -> float:
    """Pearson correlation on Lee."""
    embed = minilm.embedder(session)
    return minilm.Evaluation(embed).lee(embed)


def minilm_rows(section: str) -> Iterator[Row]:
    """The preset as it is will do."""
    say(section)
    result = _tuned(minilm.onnx_path(), evaluate_lee, LEE, shapes=TOKENS)
    yield _loss_row(result, LEE, section)
    yield _count_row(result, section, at_most=1)


def forced_rows(folder: Path, quick: bool, section: str) -> Iterator[Row]:
    """A base that loses too much: the search gives back as little speed as it must."""
    say(section)
    model, best = minilm.onnx_path(), folder / "minilm-tuned.onnx"
    options: dict[str, Any] = {"recipe": FORCED, "shapes": TOKENS, "output": best}
    result = _tuned(model, evaluate_lee, LEE_FORCED, **options)
    first = result.trials[0]
    ratio = first.time_ratio
    note = "" if ratio is None else f"{ratio:.3f} of the float model's time"
    lost = math.nan if first.loss is None else 100 * first.loss
    yield Row(f"{first.words}: lost", lost, "%", section=section, note=note)
    yield _loss_row(result, LEE_FORCED, section)
    yield _count_row(result, section)
    files = {FLOAT: model, INT8: folder / "minilm-per-tensor.onnx", BEST: best}
    variants.octavo_quantize(model, files[INT8], recipe=FORCED)
    found = _compared(result, files, latency.tokens([SHAPE]), quick, section)
    yield _time_row(found, FLOAT, section, at_most=1.0)
    yield _time_row(found, INT8, section, at_least=1.0)


def silero_rows(folder: Path, target: str, quick: bool, section: str) -> Iterator[Row]:
    """The sequence form: int8 gains time in its LSTM, and loses it in its convolutions."""
    say(section)
    asked = target == "portable"
    model, best = silero.forms()["initializers"], folder / f"silero-{target}.onnx"
    shapes = {"input": (BLOCK, silero.CONTEXT + silero.FRAME), "h": STATE, "c": STATE}
    options: dict[str, Any] = {"recipe": every_op(), "target": target}
    result = _tuned(model, silero.frame_auc, AUC, shapes=shapes, output=best, **options)
    made = folder / f"silero-every-op-{target}.onnx"
    report = variants.octavo_quantize(model, made, **options)
    exact, auc = (silero.frame_auc(open_session(path)) for path in (model, made))
    note = f"{auc:.4f}, float {exact:.4f}; {len(report.quantized)} layers quantized"
    yield Row("every op int8: lost", 100 * AUC.loss(exact, auc), "%", section=section, note=note)
    yield _loss_row(result, AUC, section)
    yield _count_row(result, section)
    yield _lstm_row(result.report, section, asked)
    picked = folder / f"silero-lstm-{target}.onnx"
    report = variants.octavo_quantize(model, picked, recipe=lstm_only(), target=target)
    zeros = np.zeros(STATE, np.float32)
    feed = {"input": silero.recording().frames[:BLOCK], "h": zeros, "c": zeros}
    files = {FLOAT: model, BEST: best, PICKED: picked}
    found = _compared(result, files, {f"{BLOCK} frames": feed}, quick, section)
    same = result.report is not None and _schemes(report) == _schemes(result.report)
    yield _picked_row(found, same, section, asked)
    yield _time_row(found, FLOAT, section)


def other_form_rows(section: str) -> Iterator[Row]:
    """The forms that take a frame a run: for information."""
    shapes = {"input": (1, silero.CONTEXT + silero.FRAME), "state": (2, 1, silero.UNITS)}
    for form, path in {**silero.forms(), **silero.more_forms()}.items():
        if form == "initializers":
            continue
        say(f"{section}: {form}")
        # A frame takes a tenth of a millisecond, and made-up rates are no rates: by size.
        options: dict[str, Any] = {"recipe": every_op(), "objective": "modelsize"}
        result = _tuned(path, silero.frame_auc, AUC, shapes=shapes, threads=None, **options)
        lost = math.nan if result.best.loss is None else 100 * result.best.loss
        yield Row(f"{form}: AUC lost", lost, "%", section=section, note=_said(result))


def every_op() -> Recipe:
    """`int8` for every operator that can be quantized, convolutions too."""
    base = preset("int8")
    return base.with_rules_first(*(Rule(base.default, op=op) for op in supported_ops()))


def lstm_only() -> Recipe:
    """What somebody who knows the model would write."""
    return Recipe(PICKED, LEFT_FLOAT, (Rule(preset("int8").default, op="LSTM"),))


def _schemes(report: Report) -> dict[str, str]:
    return {o.layer.name: o.scheme if o.quantized else "float" for o in report.layers}


def _lstm_row(report: Report | None, section: str, asked: bool) -> Row:
    lstms = [] if report is None else [o for o in report.layers if o.layer.op == "LSTM"]
    others = [] if report is None else [o for o in report.quantized if o.layer.op != "LSTM"]
    least = max(1, len(lstms)) if asked else None
    note = f"and {', '.join(o.layer.name for o in others) or 'nothing else'}"
    count, unit = sum(o.quantized for o in lstms), f"of {len(lstms)}"
    return Row("LSTM layers quantized", count, unit, at_least=least, section=section, note=note)


def _picked_row(found: Comparison, same: bool, section: str, asked: bool) -> Row:
    """Slower than the hand-picked recipe is what even the upper quartile of the rounds is."""
    speed = found.speed(BEST, PICKED)
    note = "the same layers, the same schemes; " if same else ""
    note += f"median {speed.median:.3f}, lower quartile {speed.low:.3f}; {_times(found, PICKED)}"
    what = f"speed over the hand-picked recipe, {PICKED}: upper quartile of the rounds"
    least = 1.0 if asked else None
    return Row(what, speed.high, "x", at_least=least, section=section, note=note)


def _time_row(found: Comparison, over: str, section: str, **bound: float) -> Row:
    share = found.time(BEST, over)
    note = f"{_times(found, over)}; quartiles {share.low:.3f} to {share.high:.3f}"
    what = f"time as a share of the {over} model's"
    return Row(what, share.median, section=section, note=note, **bound)  # type: ignore[arg-type]


def _times(found: Comparison, over: str) -> str:
    return f"{found[BEST].median * 1e3:.2f} ms to {found[over].median * 1e3:.2f} ms"


def _compared(
    result: TuneResult,
    files: Mapping[str, Path],
    feeds: Mapping[str, Feed],
    quick: bool,
    section: str,
) -> Comparison:
    if not result.output:
        raise RuntimeError(f"{result.status.value}: no model was written, and none can be timed")
    say(f"{section}: latency")
    (found,) = latency.compare(files, feeds, Setting(processes=1 if quick else 5)).values()
    return found


def _loss_row(result: TuneResult, criterion: Criterion, section: str) -> Row:
    loss = result.best.loss
    lost = math.nan if loss is None or not result.status.met else 100 * loss
    exact, found = result.baseline.accuracy, result.best.accuracy
    note = f"{result.status.value}: {found:.4f}, float {exact:.4f}"
    most = 100 * criterion.bound
    return Row("accuracy lost", lost, "%", at_most=most, section=section, note=note)


def _count_row(result: TuneResult, section: str, at_most: float | None = None) -> Row:
    count, note = len(result.trials), _said(result)
    return Row("evaluations", count, at_most=at_most, section=section, note=note)


def _said(result: TuneResult) -> str:
    return (
        f"{result.status.value}: {result.best.words}; {result.model_runs} runs of the model; "
        f"{result.seconds:.0f} s"
    )
