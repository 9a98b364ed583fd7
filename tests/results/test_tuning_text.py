"""A tuning run as text: the whole page, the last line for each status, terminals and pipes."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from octavo.report.html import tuning_html
from octavo.results.trial_words import (
    Bound,
    accuracy,
    last_of,
    latency,
    outcome,
    recipe,
    traceback_lines,
    versus_float,
)
from octavo.results.tuning import Approach, LeftOut, Status, Stop, Trial, TuneResult
from octavo.results.tuning_page import last_line, verdict
from tests.report.tuning_samples import BASELINE, BEST, FAILED, MET, MISSED, TRACEBACK, result
from tests.results.terminals import on_terminal

CRITERION = "at most 1% of the float model's accuracy lost"
FOUND = "int8, 1 of 12 layers float (fc3)"
FIGURES = "0.912 (float 0.915, loss 0.328% of at most 1%)"
NEAREST = "int8, all 12 layers: accuracy 0.8312 (float 0.915, loss 9.16% of at most 1%)"


def test_the_whole_text() -> None:
    assert result().text() == (
        """\
model.onnx
Met: Trial 2 (int8, 1 of 12 layers float: fc3) keeps the criterion: """
        """at most 1% of the float model's accuracy lost.

Accuracy  0.915 -> 0.912 (loss 0.328% of at most 1%)
Latency   8.10 ms -> 4.21 ms a run (1.92x as fast)
Size      90.4 MB -> 23.1 MB (3.9x smaller)
Search    auto, objective performance: 4 trials and 13 model runs in 1 min 2 s
Needs     ONNX Runtime 1.17 or newer (opset 17)
Made for  VNNI, AMX or NEON; other x86 processors need octavo.onnx.session
Wrote     model.int8.onnx

trial  recipe                                accuracy    loss  latency  time     size  result
float  the float model                          0.915          8.10 ms  1.00  90.4 MB
    1  int8, all 12 layers                     0.8312   9.16%  4.05 ms  0.50  22.5 MB  missed
    2  int8, 1 of 12 layers float: fc3          0.912  0.328%  4.21 ms  0.52  23.1 MB  best
    3  int8, 2 of 12 layers float: fc3, fc1    0.9131  0.208%  5.10 ms  0.63  25.1 MB  met
    4  int8, fc3 in blocks of 32                                                       failed
time: of a run, over the float model's, both timed in turns

Most sensitive of 3 layers (the output's error, 13 model runs)
   error  layer
    0.21  fc3
   0.012  fc1
   0.004  fc2

Notes
  - calibration.sampling_size does nothing for dynamic quantization

Failed
  - trial 4: ValueError: no labels

Tracebacks
  trial 4:
    Traceback (most recent call last):
      File "score.py", line 3, in evaluate
        raise ValueError("no labels")
    ValueError: no labels"""
    )


RESUME = "--resume continues the search"
LARGER = "allow a larger loss, or begin with a more accurate --recipe"
WROTE, NOTHING = "; wrote model.int8.onnx", "; nothing was written"
MEETS = f" in 1 min 2 s: the best so far meets the criterion: {FOUND}: accuracy {FIGURES}"
NONE = f"no recipe met the criterion ({CRITERION}); "
NEAR, NO_ACCURACY = f"the nearest: {NEAREST}", "no trial gave an accuracy"
LEFT: dict[str, object] = {"best": BASELINE, "output": ""}


@pytest.mark.parametrize(
    ("status", "changes", "line"),
    [
        (Status.MET, {}, f"met: {FOUND}: accuracy {FIGURES}{WROTE}"),
        (Status.MET, {"output": ""}, f"met: {FOUND}: accuracy {FIGURES}{NOTHING}"),
        (Status.MET_AGREEMENT, {}, f"met (agreement only): {FOUND}: agreement {FIGURES}{WROTE}"),
        (
            Status.BEST_EFFORT,
            {"best": MISSED, "output": ""},
            f"best effort: {NONE}{NEAR}{NOTHING}; {LARGER}",
        ),
        (
            Status.BEST_EFFORT,
            {**LEFT, "trials": (FAILED,)},
            f"best effort: {NONE}{NO_ACCURACY}{NOTHING}; mend what failed",
        ),
        (Status.TIMED_OUT, {}, f"timed out after 4 trials{MEETS}{WROTE}; {RESUME}"),
        (
            Status.TIMED_OUT,
            {"best": MISSED, "trials": (MISSED,), "output": ""},
            f"timed out after 1 trial in 1 min 2 s: {NONE}{NEAR}{NOTHING}; {RESUME}",
        ),
        (
            Status.INTERRUPTED,
            {"output": "a\nb.onnx"},
            rf"interrupted after 4 trials{MEETS}; wrote a\nb.onnx; {RESUME}",
        ),
        (
            Status.INTERRUPTED,
            {**LEFT, "trials": ()},
            f"interrupted after 0 trials in 1 min 2 s: {NONE}{NO_ACCURACY}{NOTHING}; {RESUME}",
        ),
    ],
)
def test_the_last_line(status: Status, changes: dict[str, object], line: str) -> None:
    assert last_line(result(status=status, **changes)) == line


def test_a_gain_that_was_not_reached_is_not_answered_with_a_larger_loss() -> None:
    changes = {"best": MISSED, "output": "", "bound": -0.01}
    line = last_line(result(status=Status.BEST_EFFORT, **changes))
    assert LARGER not in line
    assert line.endswith("which quantization rarely gives: ask for a loss of 0 or more")


@pytest.mark.parametrize("stop", [None, *Stop])
def test_why_it_ended_is_said_where_it_is_known(stop: Stop | None) -> None:
    lines = [line for line in result(stop=stop).text().splitlines() if line.startswith("Ended")]
    assert len(lines) == (stop is not None)
    assert result(stop=stop) == TuneResult.from_dict(result(stop=stop).to_dict())


def test_an_end_without_a_timeout_says_how_to_search_on() -> None:
    first = result(stop=Stop.ENDED, timeout=0.0, trials=(MISSED, BEST)).text()
    assert "Ended     at the first recipe that met the criterion (timeout 0)" in first
    assert "give a timeout (tuning.exit_policy.timeout)" in first
    assert "Ended     by itself (timeout 0)" in result(stop=Stop.ENDED, timeout=0.0).text()
    assert "nothing was left" in result(stop=Stop.ENDED, timeout=60.0).text()


def test_whole_recipes_that_were_timed_are_shown_with_what_became_of_them() -> None:
    def timed(words: str, ratio: float, width: float = 0.01, **changes: object) -> Trial:
        low, high = ratio - width, ratio + width
        one = replace(BEST, index=0, words=words, key=words, accuracy=None, loss=None, meets=False)
        how: dict[str, object] = {"time_ratio": ratio, "time_low": low, "time_high": high}
        return replace(one, score=ratio, **how | changes)  # type: ignore[arg-type]

    shown = result(
        timed=(
            timed("int8", 0.52, key=BEST.key),
            timed("float16", 1.2, left_out=LeftOut.NO_GAIN),
            timed("int4", 0.3, left_out=LeftOut.NO_NEARER),
            timed("int4-128", 0.4, error=TRACEBACK),
            timed("int8-block", 0.6, left_out=LeftOut.BEHIND),
            timed("int8-accurate", 0.515, left_out=LeftOut.BEHIND),
            timed("int4-mixed", 0.7, left_out=None),
        )
    )
    lines = shown.text().split("Whole recipes, timed in turns before any was evaluated\n")[1]
    rows = [re.split(r"  +", line) for line in lines.split("\n\n")[0].splitlines()]
    assert rows[0] == ["recipe", "time", "99% interval", "size", "what became of it"]
    assert [(row[0], row[2], row[4]) for row in rows[1:]] == [
        ("int4", "0.29 to 0.31", "not evaluated: hardly more exact than one that missed"),
        ("int8-accurate", "0.51 to 0.53", "not evaluated: no better than trial 2, which met"),
        ("int8", "0.51 to 0.53", "evaluated: trial 2"),
        ("int8-block", "0.59 to 0.61", "not evaluated: no better than trial 2, which met"),
        ("int4-mixed", "0.69 to 0.71", "not evaluated: the search ended before its turn"),
        ("float16", "1.19 to 1.21", "not evaluated: no better than the float model"),
        ("int4-128", "0.39 to 0.41", "cannot be run: ValueError: no labels"),
    ]
    assert shown == TuneResult.from_dict(shown.to_dict())
    html = tuning_html(shown)
    assert "not evaluated: no better than trial 2, which met" in html
    stopped = result(status=Status.TIMED_OUT, timed=(timed("int4", 0.3),))
    assert "the search ended before its turn" in stopped.text()


SLOW = replace(BEST, time_ratio=1.1, score=1.1)
ALIKE = replace(BEST, time_ratio=0.97, score=0.97, time_low=0.9, time_high=1.1)
NATIVE = "; --target native would be 2.00x as fast"


@pytest.mark.parametrize(
    ("best", "native", "hint"),
    [(SLOW, None, ""), (SLOW, 0.5, NATIVE), (ALIKE, 0.5, NATIVE), (SLOW, 1.05, "")],
)
def test_what_gains_nothing_is_no_plain_met(best: Trial, native: float | None, hint: str) -> None:
    shown = result(best=best, native_ratio=native)
    reason = "by the objective (performance) it is no better than the float model"
    assert verdict(shown)[0] == "Met, but nothing gained"
    assert verdict(shown)[1].endswith(f" lost. But {reason}{hint}.")
    assert last_line(shown).startswith("met, but nothing gained: ")
    assert last_line(shown).endswith(f"{WROTE}; {reason}{hint}")
    assert '<h1 class="warn">' in tuning_html(shown)
    smaller = replace(best, score=0.6)  # by an objective that counts bytes, too
    assert verdict(result(best=smaller))[0] == "Met"
    assert verdict(result(best=best, objective="accuracy"))[0] == "Met"  # which loses some


def test_a_gain_is_no_negative_loss() -> None:
    gained = replace(BEST, accuracy=0.9224, loss=-0.0083)
    assert "(gained 0.83%)" in result(best=gained).text()
    assert "gained 0.83%, at least 2% asked" in result(best=gained, bound=-0.02).text()
    assert "loss 0.328%, a gain of at least 2% asked" in result(bound=-0.02).text()


def test_a_table_leaves_long_lists_of_layers_out() -> None:
    names = ", ".join(f"encoder.layer.{i}" for i in range(9))
    long = replace(MET, words=f"int8, 9 of 12 layers float: {names}; 2 layers in 8 bits: a, b")
    row = next(x for x in result(trials=(BEST, long)).text().splitlines() if x.startswith("    3"))
    assert "int8, 9 of 12 layers float; 2 layers in 8 bits  " in row


def test_agreement_is_never_called_accuracy() -> None:
    shown = result(status=Status.MET_AGREEMENT)
    assert "No accuracy was measured" in verdict(shown)[1]
    assert "\nAgreement  0.915 -> 0.912" in shown.text()


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_is_never_overrun(width: int) -> None:
    long = replace(BEST, words="int8, 9 of 400 layers float: " + "/encoder/layer/x" * 20)
    shown = result(best=long, trials=(MISSED, long), ranking=(("/deep" * 60, math.inf),))
    screen = on_terminal(shown, width=width)
    assert max(len(line) for line in screen.splitlines()) <= width
    assert "…" not in screen


def test_hostile_names_are_shown_and_do_nothing() -> None:
    bad = "\x1b[31m[red]<img onerror=alert(1)>\r\n"
    failed = replace(FAILED, error="Traceback\n  \x1b]0;title\x07\nValueError: \x1b[2J\n")
    shown = result(
        model=bad,
        best=replace(BEST, words=bad),
        trials=(replace(BEST, words=bad), failed),
        ranking=((bad, 0.5),),
        notes=(bad,),
        output=bad,
        criterion=bad,
    )
    for page in (shown.text(), on_terminal(shown), last_line(shown)):
        assert not any(c not in "\n" and not c.isprintable() for c in page)
    assert r"\x1b[31m[red]<img onerror=alert(1)>\r\n" in shown.text()
    assert "\n" not in last_line(shown)


def test_what_was_not_measured_has_no_column() -> None:
    quiet = [replace(t, latency=None, time_ratio=None) for t in (BASELINE, BEST)]
    text = result(baseline=quiet[0], best=quiet[1], trials=(quiet[1],)).text()
    assert not any(w in text for w in ("latency", "Latency", "time: of a run", "memory"))
    heavy = replace(BEST, peak_memory=50_000_000)
    shown = result(best=heavy, trials=(heavy,), baseline=replace(BASELINE, peak_memory=10**8))
    assert "Memory    100.0 MB -> 50.0 MB at the peak\n" in shown.text()


def test_a_traceback_that_ended_many_trials_is_shown_once() -> None:
    failed = tuple(replace(FAILED, index=i) for i in range(1, 9))
    text = result(status=Status.BEST_EFFORT, best=BASELINE, trials=failed).text()
    assert text.count('raise ValueError("no labels")') == 1
    assert "- trials 1, 2, 3, 4, 5 and 3 more: ValueError: no labels\n" in text


def test_only_the_worst_of_a_long_ranking_are_named() -> None:
    ranking = tuple((f"layer{i}", 1 / (i + 1)) for i in range(400))
    text = result(ranking=ranking).text()
    assert "Most sensitive of 400 layers" in text
    assert "layer4\n" in text
    assert "layer5" not in text


@pytest.mark.parametrize(
    ("bound", "loss", "shown"),
    [
        (Bound(0.01, True), 0.00328, "0.328%"),
        (Bound(0.01, True), 0.01, "1%"),
        (Bound(0.01, True), 0.010001, "1.0001%"),  # beyond the bound, so it must not read as 1%
        (Bound(0.57, True), 0.57, "57%"),
        (Bound(0.01, True), -0.0, "0%"),
        (Bound(0.01, True), -0.5, "-50%"),
        (Bound(0.01, True), 12.345, "1,234%"),
        (Bound(0.01, True), math.inf, "inf"),
        (Bound(0.01, False), 0.00328, "0.00328"),
        (Bound(0.01, False), 0.01000001, "0.01000001"),
        (Bound(None, False), 0.5, "0.5"),
        (Bound(0.0, True), 1e-9, "1e-07%"),
        (Bound(), None, ""),
        (Bound(0.02, True), 0.020000000000000018, "2%"),
        (Bound(0.02, True), 0.0200001, "2.00001%"),
        (Bound(0.02, True), 0.30000000000000004, "30%"),
        (Bound(0.02, True), 1.79e-6, "<0.001%"),
        (Bound(0.02, True), -1.79e-6, "-0.000179%"),
    ],
)
def test_a_loss_beyond_the_bound_never_reads_as_within(
    bound: Bound, loss: float | None, shown: str
) -> None:
    assert bound.loss(loss) == shown


def test_numbers() -> None:
    numbers = {0.91234: "0.9123", 0.0: "0", 123456.7: "123,457", -1.5: "-1.5"}
    assert {x: accuracy(x) for x in numbers} == numbers and accuracy(math.nan) == "nan"
    times = {0.0081: "8.10 ms", 0.0456: "45.6 ms", 0.456: "456 ms", 1.234: "1.23 s"}
    times |= {8.12e-4: "812 us", 3e-7: "0.30 us"}
    assert {x: latency(x) for x in times} == times
    speeds = {0.52: "1.92x as fast", 1.1: "takes 1.10 times as long", 1.001: "no difference seen"}
    speeds[None] = ""
    assert {x: versus_float(replace(BEST, time_ratio=x)) for x in speeds} == speeds
    noisy = replace(BEST, time_ratio=0.9, time_low=0.7, time_high=1.05)
    assert versus_float(noisy) == "no difference seen"


def test_marks_and_recipes() -> None:
    marks = [outcome(t, t is BEST) for t in (BASELINE, MISSED, BEST, MET, FAILED)]
    assert marks == ["", "missed", "best", "met", "failed"]
    assert outcome(MISSED, best=True) == "nearest"
    static = replace(BEST, approach=Approach.STATIC, words="int8, all")
    assert recipe(static) == "static: int8, all"


def test_the_end_of_a_traceback() -> None:
    assert last_of(TRACEBACK) == "ValueError: no labels"
    assert last_of("") == ""
    assert last_of("E: " + "x" * 1000) == "E: " + "x" * 297 + " ..."
    assert traceback_lines("a\n\n\tb\x1b\n") == ["a", r"        b\x1b"]


def test_the_float_model_has_one_time_whatever_it_took_beside_each_trial() -> None:
    """The machine was busy when the float model was timed alone: the ratios are right all the
    same, and the figures agree with them."""
    base = replace(BASELINE, latency=0.048)
    trials = tuple(
        replace(t, latency=f * t.time_ratio, float_latency=f, time_low=0.4, time_high=0.7)
        for t, f in ((MISSED, 0.0021), (BEST, 0.0020), (MET, 0.0030))
    )
    text = result(baseline=base, best=trials[1], trials=trials).text()
    assert "Latency   2.10 ms -> 1.09 ms a run (1.92x as fast, 0.40 to 0.70 of the time)" in text
    rows = [line.split() for line in text.splitlines() if " ms  " in line and " MB" in line]
    shown = [(float(r[r.index("ms") - 1]), float(r[r.index("ms") + 1])) for r in rows]
    assert [ratio for _, ratio in shown] == [1.0, 0.5, 0.52, 0.63]
    assert all(ms == pytest.approx(2.1 * ratio, rel=0.01) for ms, ratio in shown)
    assert "48" not in text


def test_a_slower_model_is_called_so_as_a_benchmark_does() -> None:
    slow = replace(BEST, time_ratio=1.81, float_latency=0.001, latency=0.00181)
    assert last_line(result(best=slow)).count("takes 1.81 times as long as float") == 1
    text = result(best=slow, trials=(slow,)).text()
    assert "1.00 ms -> 1.81 ms a run (takes 1.81 times as long)" in text


def test_long_names_of_layers_in_a_recipe_are_short() -> None:
    long = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/Dense_1/einsum/MatMul"
    shown = replace(BEST, words=f"int8, 2 of 9 layers float: {long}, fc1")
    assert recipe(shown) == (
        "int8, 2 of 9 layers float: */pjit_get_logits_/MagikaV2/Dense_1/einsum/MatMul, fc1"
    )
