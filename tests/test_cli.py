"""The command line: what it passes on, what it prints where, and what it exits with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import octavo.onnx
from octavo import errors
from octavo.cli import main
from octavo.recipe import (
    FLOAT,
    PRESETS,
    Decision,
    Inspection,
    Kind,
    Layer,
    Recipe,
    Report,
    Scheme,
)
from tests.cli_support import LAYER, REPORT, run

OPS = ("Conv", "Gather", "MatMul", "com.microsoft.Attention")


class FakeFrontEnd:
    """Stands for `octavo.onnx.quantize_dynamic` and remembers its arguments."""

    def __init__(self) -> None:
        self.model: Any = None
        self.output: Any = None
        self.options: dict[str, Any] = {}
        self.does: Callable[[], None] = lambda: None

    def __call__(self, model_input: Any, model_output: Any, **options: Any) -> Report:
        self.model, self.output, self.options = model_input, model_output, options
        self.does()
        return REPORT


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeFrontEnd:
    fake = FakeFrontEnd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(octavo.onnx), "quantize_dynamic", fake)
    monkeypatch.setitem(vars(octavo.onnx), "supported_ops", lambda: OPS)
    return fake


# What is passed on


def test_defaults(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "folder/model.v2.onnx") == 0
    assert front_end.model == Path("folder/model.v2.onnx")
    assert front_end.output == Path("model.v2.int8.onnx")
    assert front_end.options == {
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


def test_every_option_reaches_the_front_end(front_end: FakeFrontEnd) -> None:
    line = (
        "quantize m.onnx -o out.onnx --recipe int8-accurate --exclude /a/* --exclude /b "
        "--only /c* --inputs data.npz --cpu any --target portable --format qdq --external-data "
        "--no-verify --allow-quantized --allow-nothing --error-feedback --force --verbose"
    )
    assert run(*line.split()) == 0
    assert front_end.output == Path("out.onnx")
    assert front_end.options == {
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


def test_float16_has_its_own_suffix(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "m.onnx", "--recipe", "float16") == 0
    assert front_end.output == Path("m.fp16.onnx")


def test_a_recipe_file(front_end: FakeFrontEnd, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: int8\nname: mine\n")
    assert run("quantize", "m.onnx", "--recipe", "mine.yaml") == 0
    assert front_end.options["recipe"].name == "mine"


def layer(op: str, kind: Kind, name: str = "/x") -> Layer:
    return Layer(name, kind, op, (), 0, None)


def decided(recipe: Recipe, of: Layer) -> Scheme:
    rule = recipe.rule_for(of)
    return recipe.default if rule is None else rule.scheme


def test_ops_are_quantized_in_addition(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "m.onnx", "--ops", "Conv,MatMul", "--ops", "Attention") == 0
    recipe = front_end.options["recipe"]
    assert decided(recipe, layer("Conv", Kind.CONV)) == Scheme()
    assert decided(recipe, layer("MatMul", Kind.LINEAR)) == Scheme()
    assert decided(recipe, layer("com.microsoft.Attention", Kind.ATTENTION)) == Scheme()
    assert decided(recipe, layer("MatMul", Kind.ACTIVATION_MATMUL)) == FLOAT


def test_ops_do_not_override_a_recipes_rules_by_name(
    front_end: FakeFrontEnd, tmp_path: Path
) -> None:
    (tmp_path / "r.yaml").write_text("base: int8\nrules:\n- {name: /stem, scheme: float}\n")
    assert run("quantize", "m.onnx", "--recipe", "r.yaml", "--ops", "Conv") == 0
    recipe = front_end.options["recipe"]
    assert decided(recipe, layer("Conv", Kind.CONV, "/stem")) == FLOAT
    assert decided(recipe, layer("Conv", Kind.CONV, "/other")) == Scheme()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ops", "Conb"], "unknown operator type 'Conb'. Did you mean 'Conv'?"),
        (["--recipe", "int9"], "neither a preset nor a file. Did you mean 'int8' or 'int4'?"),
        (["--recipe", "none.yaml"], "none.yaml"),
        (["--recipe", "float.yaml", "--ops", "Conv"], "'quiet''s default scheme, which is float"),
    ],
)
def test_what_does_not_exist_is_a_usage_error(
    front_end: FakeFrontEnd,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "float.yaml").write_text("name: quiet\ndefault: float\n")
    assert run("quantize", "m.onnx", *arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ")
    assert message in err
    assert out == ""
    assert front_end.model is None


@pytest.mark.parametrize("named", [(), ("-o", "m.int8.onnx")], ids=["default", "named"])
def test_an_output_that_exists_needs_force(
    front_end: FakeFrontEnd,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    named: tuple[str, ...],
) -> None:
    (tmp_path / "m.int8.onnx").touch()
    assert run("quantize", "m.onnx", *named) == 6
    said = "m.int8.onnx exists; name another with -o, or give --force to replace it"
    assert said in capsys.readouterr().err
    assert front_end.model is None
    assert run("quantize", "m.onnx", *named, "--force") == 0


def test_the_report_keeps_what_the_command_line_was_given(
    front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--exclude", "a*", "--exclude", "b", "--recipe", "int4", "--target", "native")
    given = (*chosen, "--external-data", "--inputs", "my data.npz")
    assert run("quantize", "m.onnx", "-o", "x.onnx", "--force", "--json", *given) == 0
    found = json.loads(capsys.readouterr().out)["options"]
    assert sorted(map(tuple, found)) == [
        ("--exclude", "a*"),
        ("--exclude", "b"),
        ("--external-data", ""),
        ("--inputs", "my data.npz"),
        ("--recipe", "int4"),
        ("--target", "native"),
    ]


# What is printed


def test_the_report_is_plain_in_a_pipe(
    front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "m.onnx") == 0
    out, err = capsys.readouterr()
    assert out == str(REPORT) + "\n"
    assert err == ""


def test_verbose_names_layers(front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quantize", "m.onnx", "-v") == 0
    assert "  /fc/MatMul  384x384  589.8 kB  149.0 kB  40.0 dB\n" in capsys.readouterr().out


def test_json_is_all_there_is_on_stdout(
    front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "m.onnx", "--json") == 0
    out, err = capsys.readouterr()
    assert Report.from_dict(json.loads(out)) == REPORT
    assert err == ""


INSPECTED = Inspection(
    "m.onnx", 1_000_000, "int8", (Decision(LAYER, Scheme()),), 17, 8, (589_824,), (147_456,)
)


def test_inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: dict[str, Any] = {}

    def inspect(model: Path, recipe: Recipe, **options: Any) -> Inspection:
        seen.update(model=model, recipe=recipe, **options)
        return INSPECTED

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
    assert run("inspect", "m.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out) == INSPECTED.to_dict()


# What it exits with

ERRORS = [
    (errors.ModelError, 3),
    (errors.AlreadyQuantizedError, 3),
    (errors.RecipeError, 2),
    (errors.OptionError, 2),
    (errors.NothingQuantizedError, 4),
    (errors.VerificationError, 5),
    (errors.OutputError, 6),
    (errors.InputDataError, 2),
]


def failing(front_end: FakeFrontEnd, error: BaseException) -> None:
    def fail() -> None:
        raise error

    front_end.does = fail


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda x: getattr(x, "__name__", None))
def test_errors_are_one_message_and_a_code(
    front_end: FakeFrontEnd,
    capsys: pytest.CaptureFixture[str],
    error: type[errors.OctavoError],
    code: int,
) -> None:
    failing(front_end, error("m.onnx: it is\nwrong\x1b[31m"))
    assert run("quantize", "m.onnx", "--json") == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: m.onnx: it is\nwrong\\x1b[31m\n")


def test_every_exit_code_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["quantize"], ["inspect"], ["doctor"]):
        assert run(*command, "--help") == 0
        text = capsys.readouterr().out
        codes = {int(code) for code in re.findall(r"^    (\d+)  ", text, re.MULTILINE)}
        assert codes == {0, 1, 7, 8, 9, 10, 130} | {code for _, code in ERRORS}


def test_a_page_about_the_outcome(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "m.onnx", "-o", "m.int8.onnx", "--report", "m.html") == 0
    text = Path("m.html").read_text()
    assert "/fc/MatMul" in text
    assert "<!doctype html>" in text.lower()


@pytest.mark.parametrize(("page", "words"), [("m.txt", ".html"), ("no/m.html", "no of")])
def test_a_page_that_cannot_be_written_is_known_before(
    front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str], page: str, words: str
) -> None:
    assert run("quantize", "m.onnx", "-o", "m.int8.onnx", "--report", page) in (2, 6)
    assert words in capsys.readouterr().err
    assert front_end.model is None


def test_ctrl_c_is_one_line(front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]) -> None:
    failing(front_end, KeyboardInterrupt())
    assert run("quantize", "m.onnx") == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_what_is_unexpected_keeps_its_traceback(front_end: FakeFrontEnd) -> None:
    failing(front_end, ZeroDivisionError("boom"))
    with pytest.raises(ZeroDivisionError):
        main(["quantize", "m.onnx"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["quantize"],
        ["quantize", "m.onnx", "--nonsense"],
        ["quantize", "m.onnx", "--cpu", "sse"],
        ["quantize", "m.onnx", "--target", "nativ"],
        ["nonsense"],
        ["inspect"],
    ],
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage: octavo" in err


# The help


def test_help_names_values_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quantize", "-h") == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in PRESETS:
        assert name in text
    for value in ("[default: int8]", "[default: vnni]", "[default: qoperator]"):
        assert value in text
    for value in (
        "<vnni|any>",
        "<portable|native>",
        "<qoperator|qdq>",
        ".npz or .jsonl",
        ".int8.onnx",
    ):
        assert value in text


def test_the_commands_are_listed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert "..." not in text.partition("Commands:")[2]
