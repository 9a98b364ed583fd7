"""Whether a model can be shipped, and the commands that follow."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace

import pytest
from typer.main import get_command

from octavo.cli.bit_budget import limited
from octavo.cli.commands import app
from octavo.cli.options import shape_of
from octavo.core.form import Form
from octavo.recipe import preset
from octavo.results.advice import MOST, UNKNOWN_RECIPE, advice
from octavo.results.comparison import OutputDifference, worst_first
from octavo.results.evidence import FLOAT, QUANTIZED, Evidence
from octavo.results.judgement import BOUND, CLOSE, Finding, Judgement, Ship, judge
from octavo.results.report import Report, Verification
from tests.report.evidence_samples import BENCHMARK, comparison, difference, evidence, pair
from tests.report.tuning_samples import layer_report

REPORT = layer_report()
CALM = comparison(broken=None)


def judged(report: Report | None = REPORT, given: Evidence | None = None) -> Judgement:
    sizes = (REPORT.model_bytes_before, REPORT.model_bytes_after)
    return judge(report, Evidence() if given is None else given, sizes)


def checked(**changes: object) -> Report:
    return replace(REPORT, verification=replace(REPORT.verification, **changes))  # type: ignore[arg-type]


def timed(ratio: float, within: float = 0.01) -> Evidence:
    rows = (pair(FLOAT, QUANTIZED, ratio, within),)
    return evidence(comparison=CALM, benchmark=replace(BENCHMARK, rows=rows), ort=None)


def outputs(error: float, **changes: object) -> Evidence:
    worst = replace(CALM.outputs[0], difference=difference(error, **changes))
    return evidence(comparison=replace(CALM, outputs=(worst,)), ort=None)


MADE_UP = evidence(comparison=replace(CALM, inputs="made up"))
SKIPPED = replace(REPORT, verification=Verification("skipped"))
LABEL = OutputDifference("label", None)
UNREACHED = replace(CALM.layers[0], alone=None, accumulated=None)
CASES = {
    "all is well": (REPORT, evidence(comparison=CALM), Ship.READY, []),
    "no report": (None, evidence(comparison=CALM), Ship.READY, []),
    "given inputs, not timed": (checked(inputs="given"), Evidence(), Ship.READY, []),
    "made-up inputs": (REPORT, Evidence(), Ship.CHECK, [Finding.MADE_UP]),
    "compared with made-up inputs": (REPORT, MADE_UP, Ship.CHECK, [Finding.MADE_UP]),
    "skipped": (SKIPPED, Evidence(), Ship.CHECK, [Finding.NOT_COMPARED]),
    "in part": (
        checked(inputs="given", status="compared", unreached=("a", "b")),
        Evidence(),
        Ship.CHECK,
        [Finding.IN_PART, Finding.UNREACHED],
    ),
    "an output without numbers": (
        REPORT,
        evidence(comparison=replace(CALM, outputs=(*CALM.outputs, LABEL))),
        Ship.CHECK,
        [Finding.IN_PART],
    ),
    "no output with numbers": (
        SKIPPED,
        evidence(comparison=replace(CALM, outputs=(LABEL,))),
        Ship.CHECK,
        [Finding.NOT_COMPARED],
    ),
    "the float model has NaN": (
        REPORT,
        outputs(0.001, float_non_finite=2),
        Ship.CHECK,
        [Finding.FLOAT_NOT_FINITE],
    ),
    "the float model has nothing but NaN": (
        REPORT,
        outputs(math.inf, values=0, float_non_finite=4),
        Ship.CHECK,
        [Finding.FLOAT_NOT_FINITE],
    ),
    "the float model gives 0": (REPORT, outputs(math.inf), Ship.NOT, [Finding.ABOVE_BOUND]),
    "NaN": (REPORT, outputs(math.nan), Ship.NOT, [Finding.NOT_FINITE]),
    "NaN in the check": (
        checked(inputs="given", error=math.nan),
        Evidence(),
        Ship.NOT,
        [Finding.NOT_FINITE],
    ),
    "layers that nothing came to": (
        REPORT,
        evidence(comparison=replace(CALM, layers=(UNREACHED,))),
        Ship.CHECK,
        [Finding.UNREACHED],
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


def commands(report: Report | None, given: Evidence) -> list[str]:
    return [one.command for one in advice(report, given, judged(report, given))]


@pytest.mark.parametrize(("report", "given", "ship", "found"), CASES.values(), ids=CASES)
def test_what_speaks_against_shipping_and_what_to_do_next(
    report: Report | None, given: Evidence, ship: Ship, found: list[Finding]
) -> None:
    made = judged(report, given)
    assert (made.ship, [finding for finding, _ in made.findings]) == (ship, found)
    assert made.sentence.count(". ") == 0  # one sentence
    assert all(said in made.sentence for _, said in made.findings[:2])
    next_steps = commands(report, given)
    assert 1 <= len(set(next_steps)) == len(next_steps) <= MOST
    assert any("InferenceSession" in one for one in next_steps) <= (ship is not Ship.NOT)


def test_a_model_that_nobody_timed_is_ready_if_it_is_fast_enough() -> None:
    given = checked(inputs="given")
    for report, found in ((given, Evidence()), (REPORT, timed(1.0, within=0.5))):
        made = judged(report, found)
        assert made.in_short.startswith("Ready to ship, if it is fast enough: its outputs are")
        assert ": ready to ship, if it is fast enough, as its outputs are" in made.sentence
    assert judged(given=timed(0.5)).heading == "Ready to ship"
    assert judged(given=timed(1.2)).heading == judged().heading == "Check before you ship"


def test_layers_of_which_floats_numbers_are_not_finite_are_not_blamed() -> None:
    nan = replace(CALM.layers[0], alone=difference(math.inf, values=0, float_non_finite=4))
    layers = worst_first((*CALM.layers[1:], nan))
    assert layers[-1] is nan
    assert replace(CALM, layers=layers).suspect is None
    assert replace(CALM, layers=(nan,)).suspect is None


def test_the_sentence_says_how_small_how_fast_and_how_close() -> None:
    said = judged(given=timed(0.5)).sentence
    assert "3.9x smaller (90.4 MB to 23.1 MB)" in said
    assert "2.00x as fast as the float model" in said
    assert "99.8% like it in its worst output last_hidden_state:" in said
    assert "not timed" in judged().sentence
    assert "0.83x as fast" in judged(given=timed(1.2)).sentence
    noisy = judged(given=timed(0.3, within=0.5)).sentence
    assert "2.2x to 6.7x as fast as the float model (noisy)" in noisy
    assert "3.33x" not in noisy
    assert "too noisy to tell" in judged(given=timed(1.0, within=0.5)).sentence
    assert "% like" not in judged(given=outputs(math.inf, non_finite=3)).sentence


@pytest.mark.parametrize(
    ("cosine", "said"),
    [(1.0, "99.999%"), (0.9999999, "99.999%"), (0.99995, "99.995%"), (0.9994, "99.94%")],
)
def test_what_differs_is_never_called_the_same(cosine: float, said: str) -> None:
    assert f" {said} like it" in judged(given=outputs(1e-6, cosine=cosine)).sentence
    assert " 100% like it" in judged(given=outputs(0, cosine=cosine)).sentence
    tiny = checked(inputs="given", error=1e-18, cosine_error=0.0)
    assert " 99.999% like it" in judged(tiny).sentence
    assert "1 - cosine" not in str(tiny)


def test_commands_follow_from_what_was_found() -> None:
    inputs, bench, native = commands(REPORT, Evidence())
    assert inputs == (
        "octavo report model.onnx model.int8.onnx --html model.int8.html --inputs data.npz"
    )
    assert bench == "octavo bench model.onnx model.int8.onnx --threads 1"
    assert native.endswith("-o model.int8.native.onnx --target native")
    exclude, *_ = commands(REPORT, evidence())
    assert exclude == "octavo quantize model.onnx -o model.int8.excluded.onnx --exclude fc5"
    accurate, *_ = commands(REPORT, outputs(0.05))
    assert accurate.endswith("--recipe int8-accurate")
    assert commands(*CASES["nothing quantized"][:2]) == ["octavo inspect model.onnx --verbose"]  # type: ignore[arg-type]
    native_report = replace(REPORT, target="native", output="m.native.onnx")
    serve = "import octavo.onnx; session = octavo.onnx.session('m.native.onnx')"
    assert commands(native_report, timed(0.5))[-1] == serve
    assert "--target native" in commands(native_report, evidence())[0]


def test_commands_keep_what_the_command_line_was_given() -> None:
    given = (
        ("--inputs", "my data.npz"),
        ("--exclude", "a*"),
        ("--recipe", "my.yaml"),
        ("--target", "native"),
        ("--external-data", ""),
    )
    report = replace(REPORT, options=given)
    kept = "--inputs 'my data.npz' --exclude 'a*' --recipe my.yaml --target native --external-data"
    exclude, *_ = commands(report, evidence())
    assert exclude == (
        f"octavo quantize model.onnx -o model.int8.excluded.onnx {kept} --exclude fc5"
    )
    accurate, *_ = commands(report, outputs(0.05))
    assert "--recipe my.yaml" not in accurate
    assert accurate.endswith("--target native --external-data --recipe int8-accurate")
    inputs, *_ = commands(report, Evidence())
    assert inputs.endswith("--html model.int8.html --inputs 'my data.npz'")
    missed, *_ = commands(
        replace(report, verification=replace(REPORT.verification, unreached=("a",))), Evidence()
    )
    assert missed.endswith("--inputs data.npz")


GIVEN: dict[str, tuple[tuple[str, str], ...]] = {
    "nothing": (),
    "QDQ": (("--format", "qdq"), ("--cpu", "any")),
    "bits": (("--recipe", "int4-mixed"), ("--bits", "5"), ("--error-feedback", "")),
    "size": (("--size", "9MB"), ("--recipe", "int4-mixed")),
    "a recipe's file of unknown place": (UNKNOWN_RECIPE, ("--exclude", "a [[]1]")),
    "native": (("--target", "native"), ("--inputs", "my data.npz"), ("--custom-ops", "o.so")),
    "all else": (("--only", "fc*"), ("--max-error", "0.2"), ("--external-data", "")),
}
FOUND = (*(case[:2] for case in CASES.values()), (REPORT, outputs(0.05)))


@pytest.mark.parametrize("options", GIVEN.values(), ids=GIVEN)
def test_every_command_runs_as_it_is_printed(options: tuple[tuple[str, str], ...]) -> None:
    program = get_command(app)
    seen = set()
    for report, found in FOUND:
        if report is None:
            continue
        target = dict(options).get("--target", "portable")
        for said in commands(replace(report, options=options, target=target), found):
            _, *words = shlex.split(said)
            if said.startswith("octavo "):
                command = program.commands[words[0]]  # type: ignore[attr-defined]
                given = command.make_context(words[0], words[1:]).params
                seen.add(words[0])
                if words[0] == "quantize":
                    Form.of(given["target"], given["cpu"], given["format"])
                    limited(preset(given["recipe"]), given["bits"], "", None, lambda _: None)  # type: ignore[arg-type, return-value]
                    assert not given["size"] or given["recipe"] == "int4-mixed"
                elif words[0] == "bench":
                    assert all(shape_of(text) for text in given["shape"])
            else:
                compile(said, "advice", "exec")
    assert seen == {"report", "quantize", "bench", "inspect"}


def test_a_command_that_would_say_nothing_new_is_left_out() -> None:
    accurate = replace(REPORT, recipe={"name": "int8-accurate"})
    assert not any("int8-accurate" in one for one in commands(accurate, outputs(0.05)))
    unknown = replace(REPORT, options=(UNKNOWN_RECIPE,))
    assert not any("octavo quantize" in one for one in commands(unknown, evidence()))
    scalar = timed(1.0)
    assert scalar.benchmark is not None
    rows = tuple(replace(row, shape="x=scalar") for row in scalar.benchmark.rows)
    scalar = replace(scalar, benchmark=replace(scalar.benchmark, rows=rows))
    assert not any("octavo bench" in one for one in commands(REPORT, scalar))
    assert any("octavo bench" in one for one in commands(REPORT, timed(1.0)))
    nan, *_ = commands(*CASES["the float model has nothing but NaN"][:2])  # type: ignore[arg-type]
    assert nan.startswith("octavo report ") and nan.endswith("--inputs data.npz")


def test_what_is_in_memory_gets_no_command() -> None:
    module = replace(REPORT, target="torch", source="BertModel", output="")
    assert commands(module, Evidence()) == [
        "import octavo.torch; print(octavo.torch.compare(float_model, model, **batch))",
        "octavo.torch.save(model, 'model.safetensors')",
    ]
    proto = replace(REPORT, source="(ModelProto)")
    again, serve = commands(proto, Evidence())
    assert again == (
        "octavo.onnx.quantize_dynamic(model, 'model.int8.onnx', check_inputs='data.npz')"
    )
    assert serve.startswith("import onnxruntime")
    assert commands(replace(proto, layers=REPORT.layers[-1:]), Evidence()) == []


def test_a_file_for_vnni_says_what_others_need() -> None:
    vnni, any_cpu = (
        advice(r, timed(0.5), judged(r, timed(0.5)))[-1].what
        for r in (REPORT, replace(REPORT, cpu="any"))
    )
    assert "on x86 without VNNI or AMX with octavo.onnx.session" in vnni
    assert any_cpu == "Serve it from Python."


def test_pytorch_models_get_commands_that_take_them() -> None:
    module = replace(REPORT, target="torch", source="nets.a:make", output="a.int8.safetensors")
    said = commands(module, Evidence())
    assert said[0].startswith("octavo report nets.a:make a.int8.safetensors --html a.int8.html")
    load = "model = octavo.torch.load('a.int8.safetensors', nets.a.make)"
    assert said[-1] == f"import octavo.torch, nets.a; {load}"
    folder = replace(REPORT, target="torch", source="bert", output="bert-int8")
    texts, load = commands(folder, Evidence())
    assert texts == "octavo report bert bert-int8 --html bert-int8.html --inputs texts.jsonl"
    assert load == (
        "import octavo.torch; from transformers import AutoModel; "
        "model = AutoModel.from_pretrained('bert-int8')"
    )
    exported = replace(REPORT, target="native", source="bert", output="bert-int8-native")
    assert commands(exported, Evidence()) == [
        "import octavo.onnx; session = octavo.onnx.session('bert-int8-native/model.onnx')"
    ]
    below = replace(exported, files=("onnx/model.onnx",))  # of sentence-transformers
    assert commands(below, Evidence()) == [
        "import octavo.onnx; session = octavo.onnx.session('bert-int8-native/onnx/model.onnx')"
    ]


def test_names_are_quoted_for_the_shell() -> None:
    name = "my model's [1].onnx"
    said = commands(replace(REPORT, source=name, output=f"out {name}"), evidence())
    assert shlex.split(said[0])[2:5] == [name, "-o", "out my model's [1].excluded.onnx"]
