"""Whether a model can be shipped, and the commands that follow."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace

import pytest

from octavo.recipe import Report, Verification
from octavo.results.advice import MOST, advice
from octavo.results.evidence import FLOAT, QUANTIZED, Evidence
from octavo.results.judgement import CLOSE, Finding, Judgement, Ship, judge
from tests.report.evidence_samples import BENCHMARK, comparison, difference, evidence, pair
from tests.report.tuning_samples import layer_report

BOUND = 0.1
REPORT = layer_report()
CALM = comparison(broken=None)


def judged(report: Report | None = REPORT, given: Evidence | None = None) -> Judgement:
    sizes = (REPORT.model_bytes_before, REPORT.model_bytes_after)
    return judge(report, Evidence() if given is None else given, sizes, BOUND)


def checked(**changes: object) -> Report:
    return replace(REPORT, verification=replace(REPORT.verification, **changes))  # type: ignore[arg-type]


def timed(ratio: float, within: float = 0.01) -> Evidence:
    rows = (pair(FLOAT, QUANTIZED, ratio, within),)
    return evidence(comparison=CALM, benchmark=replace(BENCHMARK, rows=rows), ort=None)


def outputs(error: float, **changes: object) -> Evidence:
    worst = replace(CALM.outputs[0], difference=difference(error, **changes))
    return evidence(comparison=replace(CALM, outputs=(worst,)), ort=None)


CASES = {
    "all is well": (REPORT, evidence(comparison=CALM), Ship.READY, []),
    "no report": (None, evidence(comparison=CALM), Ship.READY, []),
    "given inputs, not timed": (checked(inputs="given"), Evidence(), Ship.READY, []),
    "made-up inputs": (REPORT, Evidence(), Ship.CHECK, [Finding.MADE_UP]),
    "compared with made-up inputs": (
        REPORT,
        evidence(comparison=replace(CALM, inputs="made up")),
        Ship.CHECK,
        [Finding.MADE_UP],
    ),
    "skipped": (
        replace(REPORT, verification=Verification("skipped")),
        Evidence(),
        Ship.CHECK,
        [Finding.NOT_COMPARED],
    ),
    "in part": (
        checked(inputs="given", status="compared", unreached=("a", "b")),
        Evidence(),
        Ship.CHECK,
        [Finding.IN_PART, Finding.UNREACHED],
    ),
    "close": (REPORT, outputs(CLOSE), Ship.READY, []),
    "not close": (REPORT, outputs(CLOSE * 1.01), Ship.CHECK, [Finding.NOT_CLOSE]),
    "at the bound": (REPORT, outputs(BOUND), Ship.CHECK, [Finding.NOT_CLOSE]),
    "above the bound": (REPORT, outputs(BOUND * 1.01), Ship.NOT, [Finding.ABOVE_BOUND]),
    "not finite": (REPORT, outputs(math.inf, non_finite=3), Ship.NOT, [Finding.NOT_FINITE]),
    "a layer stands out": (REPORT, evidence(), Ship.CHECK, [Finding.SUSPECT]),
    "slower": (REPORT, timed(1.2), Ship.CHECK, [Finding.SLOWER]),
    "as fast": (REPORT, timed(1.0), Ship.READY, []),
    "noisy": (REPORT, timed(1.0, within=0.5), Ship.READY, []),
    "hardly smaller": (
        replace(checked(inputs="given"), model_bytes_after=REPORT.model_bytes_before),
        Evidence(),
        Ship.CHECK,
        [Finding.NOT_SMALLER],
    ),
    "nothing quantized": (
        replace(REPORT, layers=REPORT.layers[-1:]),
        evidence(comparison=CALM),
        Ship.NOT,
        [Finding.NOTHING_QUANTIZED],
    ),
}


@pytest.mark.parametrize(("report", "given", "ship", "found"), CASES.values(), ids=CASES)
def test_what_speaks_against_shipping(
    report: Report | None, given: Evidence, ship: Ship, found: list[Finding]
) -> None:
    made = judged(report, given)
    assert (made.ship, [finding for finding, _ in made.findings]) == (ship, found)
    assert made.sentence.count(". ") == 0  # one sentence
    assert all(said in made.sentence for _, said in made.findings[:2])


def test_the_sentence_says_how_small_how_fast_and_how_close() -> None:
    said = judged(given=timed(0.5)).sentence
    assert "3.9x smaller (90.4 MB to 23.1 MB)" in said
    assert "2.00x as fast as the float model" in said
    assert "99.8% like it in its outputs" in said
    assert "not timed" in judged().sentence
    assert "0.83x as fast" in judged(given=timed(1.2)).sentence
    assert "too noisy to tell" in judged(given=timed(1.0, within=0.5)).sentence
    assert "% like" not in judged(given=outputs(math.inf, non_finite=3)).sentence


@pytest.mark.parametrize(
    ("cosine", "said"),
    [(1.0, "100%"), (0.9999999, "99.999%"), (0.99995, "99.995%"), (0.9994, "99.94%")],
)
def test_what_differs_is_never_called_the_same(cosine: float, said: str) -> None:
    assert f" {said} like it" in judged(given=outputs(1e-6, cosine=cosine)).sentence


def commands(report: Report | None, given: Evidence) -> list[str]:
    return [one.command for one in advice(report, given, judged(report, given))]


@pytest.mark.parametrize(("report", "given", "ship", "found"), CASES.values(), ids=CASES)
def test_every_verdict_has_something_to_do_next(
    report: Report | None, given: Evidence, ship: Ship, found: list[Finding]
) -> None:
    said = commands(report, given)
    assert 1 <= len(said) <= MOST
    assert len(set(said)) == len(said)
    assert any("InferenceSession" in one for one in said) <= (ship is not Ship.NOT)


def test_commands_follow_from_what_was_found() -> None:
    inputs, bench, native = commands(REPORT, Evidence())
    assert inputs == (
        "octavo report model.onnx model.int8.onnx --html model.int8.html --inputs data.npz"
    )
    assert bench == "octavo bench model.onnx model.int8.onnx --threads 1"
    assert native.endswith("-o model.int8.native.onnx --target native")
    exclude, *_ = commands(REPORT, evidence())
    assert exclude == "octavo quantize model.onnx -o model.int8.onnx --exclude fc5"
    accurate, *_ = commands(REPORT, outputs(0.05))
    assert accurate.endswith("--recipe int8-accurate")
    assert commands(*CASES["nothing quantized"][:2]) == ["octavo inspect model.onnx --verbose"]  # type: ignore[arg-type]
    native_report = replace(REPORT, target="native", output="m.native.onnx")
    assert "octavo.onnx.session('m.native.onnx')" in commands(native_report, timed(0.5))[-1]
    assert "--target native" in commands(native_report, evidence())[0]


def test_pytorch_models_get_commands_that_take_them() -> None:
    module = replace(REPORT, target="torch", source="nets.a:make", output="a.int8.safetensors")
    said = commands(module, Evidence())
    assert said[0].startswith("octavo report nets.a:make a.int8.safetensors --html a.int8.html")
    assert said[-1] == "model = octavo.torch.load('a.int8.safetensors', nets.a.make)"
    folder = replace(REPORT, target="torch", source="bert", output="bert-int8")
    assert commands(folder, Evidence()) == ["model = AutoModel.from_pretrained('bert-int8')"]
    exported = replace(REPORT, target="native", source="bert", output="bert-int8-native")
    assert commands(exported, Evidence()) == [
        "session = octavo.onnx.session('bert-int8-native/model.onnx')"
    ]


def test_names_are_quoted_for_the_shell() -> None:
    name = "my model's [1].onnx"
    said = commands(replace(REPORT, source=name, output=f"out {name}"), evidence())
    assert shlex.split(said[0])[2:5] == [name, "-o", f"out {name}"]
