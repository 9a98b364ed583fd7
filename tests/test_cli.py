"""The command line: what it passes on, what it prints where, and what it exits with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import octavo.onnx
from octavo import errors
from octavo.cli import main
from octavo.recipe import FLOAT, PRESETS, Decision, Kind, Layer, Recipe, Scheme
from octavo.results.inspection import Inspection
from octavo.results.report import Report
from tests.cli_support import LAYER, REPORT, FrontEnd, printed, run


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FrontEnd:
    monkeypatch.chdir(tmp_path)
    return FrontEnd(monkeypatch)


DEFAULTS = {
    "nodes_to_quantize": None,
    "nodes_to_exclude": None,
    "use_external_data_format": False,
    "recipe": PRESETS["int8"],
    "target": "portable",
    "cpu": "vnni",
    "quant_format": "qoperator",
    "check_inputs": None,
    "verify": True,
    "progress": None,
    "allow_quantized": False,
    "allow_nothing": False,
    "error_feedback": False,
}
EVERY = {
    "nodes_to_quantize": ["/c*"],
    "nodes_to_exclude": ["/a/*", "/b"],
    "use_external_data_format": True,
    "recipe": PRESETS["int8-accurate"],
    "target": "portable",
    "cpu": "any",
    "quant_format": "qdq",
    "check_inputs": Path("data.npz"),
    "verify": False,
    "progress": None,
    "allow_quantized": True,
    "allow_nothing": True,
    "error_feedback": True,
}
EVERY_LINE = (
    "-o out.onnx --recipe int8-accurate --exclude /a/* --exclude /b --only /c* --inputs data.npz "
    "--cpu any --target portable --format qdq --external-data --no-verify --allow-quantized "
    "--allow-nothing --error-feedback --force --verbose"
)


@pytest.mark.parametrize(
    ("line", "output", "options"),
    [
        ("", "model.v2.int8.onnx", DEFAULTS),
        ("--recipe float16", "model.v2.fp16.onnx", DEFAULTS | {"recipe": PRESETS["float16"]}),
        (EVERY_LINE, "out.onnx", EVERY),
    ],
    ids=["defaults", "float16", "every"],
)
def test_options_reach_the_front_end(
    front_end: FrontEnd, line: str, output: str, options: dict[str, Any]
) -> None:
    assert run("quantize", "folder/model.v2.onnx", *line.split()) == 0
    assert front_end.model == Path("folder/model.v2.onnx")
    assert front_end.output == Path(output)
    assert front_end.options == options


def decided(recipe: Recipe, op: str, kind: Kind, name: str = "/x") -> Scheme:
    rule = recipe.rule_for(Layer(name, kind, op, (), 0, None))
    return recipe.default if rule is None else rule.scheme


def test_ops_are_quantized_in_addition_but_not_over_rules_by_name(
    front_end: FrontEnd, tmp_path: Path
) -> None:
    (tmp_path / "r.yaml").write_text(
        "base: int8\nname: mine\nrules:\n- {name: /stem, scheme: float}\n"
    )
    line = "quantize m.onnx --recipe r.yaml --ops Conv,MatMul --ops Attention"
    assert run(*line.split()) == 0
    recipe = front_end.options["recipe"]
    assert recipe.name == "mine"
    assert decided(recipe, "Conv", Kind.CONV) == Scheme()
    assert decided(recipe, "Conv", Kind.CONV, "/stem") == FLOAT
    assert decided(recipe, "MatMul", Kind.LINEAR) == Scheme()
    assert decided(recipe, "com.microsoft.Attention", Kind.ATTENTION) == Scheme()
    assert decided(recipe, "MatMul", Kind.ACTIVATION_MATMUL) == FLOAT


@pytest.mark.parametrize("named", [(), ("-o", "m.int8.onnx")], ids=["default", "named"])
def test_an_output_that_exists_needs_force(
    front_end: FrontEnd, tmp_path: Path, named: tuple[str, ...]
) -> None:
    (tmp_path / "m.int8.onnx").touch()
    assert run("quantize", "m.onnx", *named) == 6
    assert front_end.model is None
    assert run("quantize", "m.onnx", *named, "--force") == 0


def test_the_report_keeps_what_the_command_line_was_given(
    front_end: FrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--exclude", "a*", "--exclude", "b", "--recipe", "int4", "--target", "native")
    given = (*chosen, "--external-data", "--inputs", "my data.npz")
    found = printed(capsys, "quantize", "m.onnx", "-o", "x.onnx", "--force", *given)["options"]
    assert sorted(map(tuple, found)) == [
        ("--exclude", "a*"),
        ("--exclude", "b"),
        ("--external-data", ""),
        ("--inputs", "my data.npz"),
        ("--recipe", "int4"),
        ("--target", "native"),
    ]


def test_the_report_alone_is_on_stdout(
    front_end: FrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "m.onnx") == 0
    assert capsys.readouterr() == (f"{REPORT}\n", "")
    assert run("quantize", "m.onnx", "-v") == 0
    assert "  /fc/MatMul  384x384  589.8 kB  149.0 kB  40.0 dB\n" in capsys.readouterr().out
    assert run("quantize", "m.onnx", "--json") == 0
    out, err = capsys.readouterr()
    assert Report.from_dict(json.loads(out)) == REPORT
    assert err == ""


def test_inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    decision = Decision(LAYER, Scheme())
    inspected = Inspection("m.onnx", 1_000_000, "int8", (decision,), 17, 8, (589_824,), (147_456,))
    seen: dict[str, Any] = {}

    def inspect(model: Path, recipe: Recipe, **options: Any) -> Inspection:
        seen.update(model=model, recipe=recipe, **options)
        return inspected

    monkeypatch.setitem(vars(octavo.onnx), "inspect", inspect)
    assert run("inspect", "m.onnx", "--recipe", "int8-block", "--cpu", "any", "--format=qdq") == 0
    assert seen == {
        "model": Path("m.onnx"),
        "recipe": PRESETS["int8-block"],
        "target": "portable",
        "cpu": "any",
        "quant_format": "qdq",
    }
    assert "/fc/MatMul  384x384  589.8 kB  100%" in capsys.readouterr().out
    assert printed(capsys, "inspect", "m.onnx") == inspected.to_dict()


ERRORS = {
    errors.ModelError: 3,
    errors.AlreadyQuantizedError: 3,
    errors.RecipeError: 2,
    errors.OptionError: 2,
    errors.NothingQuantizedError: 4,
    errors.VerificationError: 5,
    errors.OutputError: 6,
    errors.InputDataError: 2,
}


def failing(front_end: FrontEnd, error: BaseException) -> None:
    def fail(_: Recipe) -> None:
        raise error

    front_end.does = fail


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_one_message_and_a_code(
    front_end: FrontEnd, capsys: pytest.CaptureFixture[str], error: type[errors.OctavoError]
) -> None:
    failing(front_end, error("m.onnx: it is\nwrong\x1b[31m"))
    assert run("quantize", "m.onnx", "--json") == ERRORS[error]
    assert capsys.readouterr() == ("", "error: m.onnx: it is\nwrong\\x1b[31m\n")


def test_ctrl_c_is_one_line(front_end: FrontEnd, capsys: pytest.CaptureFixture[str]) -> None:
    failing(front_end, KeyboardInterrupt())
    assert run("quantize", "m.onnx") == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_what_is_unexpected_keeps_its_traceback(front_end: FrontEnd) -> None:
    failing(front_end, ZeroDivisionError("boom"))
    with pytest.raises(ZeroDivisionError):
        main(["quantize", "m.onnx"])


def test_every_exit_code_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["quantize"], ["inspect"], ["doctor"]):
        assert run(*command, "--help") == 0
        text = capsys.readouterr().out
        codes = {int(code) for code in re.findall(r"^    (\d+)  ", text, re.MULTILINE)}
        assert codes == {0, 1, 7, 8, 9, 10, 130, *ERRORS.values()}


def test_help_names_values_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quantize", "-h") == 0
    text = " ".join(capsys.readouterr().out.split())
    values = ("<vnni|any>", "<portable|native>", "<qoperator|qdq>", ".npz or .jsonl", ".int8.onnx")
    defaults = ("[default: int8]", "[default: vnni]", "[default: qoperator]")
    for word in (*PRESETS, *values, *defaults):
        assert word in text
    assert run("--help") == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
