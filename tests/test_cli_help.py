"""The help of every command: whole, within 80 columns, plain in a pipe; and that what README, the
docs and the examples name exists."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from octavo.cli import checkpoints, torch_models
from octavo.cli.commands import EXAMPLES, app
from octavo.cli.options import To
from octavo.errors import OptionError
from tests.cli_support import run

ROOT = Path(__file__).parents[1]
PROGRAM: Any = typer.main.get_command(app)  # not the one that main keeps
COMMANDS = PROGRAM.commands
EVERY = [pytest.param(name, id=name or "octavo") for name in ("", *COMMANDS)]


def helped(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert run(*filter(None, [command]), "--help") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def visible(command: Any) -> list[Any]:
    """Its parameters but those that only refuse what was there once."""
    return [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]


@pytest.mark.parametrize("command", EVERY)
def test_a_help_is_plain_within_80_columns_and_has_examples(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """And it says where output goes."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = helped(capsys, command)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "stdout" in text.partition("Options:")[0]
    shown = re.findall(r"^    (octavo .*)$", text.partition("Examples:")[2], re.MULTILINE)
    assert tuple(shown) == EXAMPLES[command]
    assert all(line.startswith(f"octavo {command}") for line in shown)


@pytest.mark.parametrize("command", EVERY)
def test_a_narrow_terminal_gets_the_whole_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = helped(capsys, command)
    for parameter in visible(COMMANDS[command] if command else PROGRAM):
        assert parameter.opts[0].lstrip("-") in text or parameter.metavar in text


def test_every_parameter_is_explained() -> None:
    """In sentences; an option that takes a value and may be left out says what holds then."""
    for name, command in COMMANDS.items():
        for parameter in visible(command):
            named, text = f"{name} {parameter.opts[0]}", parameter.help
            assert text and text.strip().endswith((".", ")")), named
            takes_value = parameter.opts[0].startswith("-") and not parameter.is_flag
            if takes_value and not parameter.required:
                shown = parameter.show_default and parameter.default not in (None, [], ())
                assert shown or "Default:" in text or "Needed:" in text, named


def test_options_of_one_name_take_the_same() -> None:
    taken = defaultdict(set)
    for command in COMMANDS.values():
        for parameter in command.params:
            if parameter.opts[0].startswith("--"):
                taken[parameter.opts[0]].add((parameter.metavar, *parameter.secondary_opts))
    different = {name for name, kinds in taken.items() if len(kinds) > 1}
    assert different == {"--threads"}  # bench times several numbers


def accepted(refuse: Callable[[Any], None]) -> set[str]:
    """Options of `octavo quantize` that `refuse` lets pass, each given alone."""
    found = set()
    for given in COMMANDS["quantize"].params[1:]:

        def source(name: str, given: Any = given) -> Any:
            return SimpleNamespace(name="COMMANDLINE" if name == given.name else "DEFAULT")

        context = SimpleNamespace(command=COMMANDS["quantize"], get_parameter_source=source)
        with contextlib.suppress(OptionError):
            refuse(context)
            found.update(option for option in given.opts if option.startswith("--"))
    return found


def test_quantize_says_which_options_each_kind_of_model_takes() -> None:
    taken = re.findall(r"take\s(.*?)(?:\.|, and are)", COMMANDS["quantize"].help, re.DOTALL)
    but, modules, folders, for_torch, for_onnx = (
        {*re.findall(r"--[a-z-]+", some)} for some in taken
    )
    every = accepted(lambda _: None)
    assert every - accepted(lambda context: checkpoints.refuse_to(context, "m")) == but
    assert accepted(lambda context: torch_models.refuse_onnx_options(context, "m:f")) == modules
    for to in To:
        more = for_torch if to is To.TORCH else for_onnx
        found = accepted(lambda context, to=to: checkpoints.refuse_options(context, "m", to))
        assert found == folders | more


def lines() -> Iterator[Any]:
    for name, examples in EXAMPLES.items():
        for line in examples:
            yield pytest.param(line, id=f"{name or 'octavo'}: {line}")
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        for line in re.findall(r"^\$ (octavo .*)$", path.read_text(), re.MULTILINE):
            yield pytest.param(line, id=f"{path.name}: {line}")


@pytest.mark.parametrize("line", [*lines()])
def test_a_line_that_is_shown_can_be_typed(line: str) -> None:
    """Its command, options and their values exist."""
    _, name, *arguments = shlex.split(line, comments=True)
    if arguments == ["--help"]:
        assert name in COMMANDS
    else:
        COMMANDS[name].make_context(name, arguments)


def test_the_page_of_the_command_line_shows_every_command() -> None:
    block = (ROOT / "docs" / "command_line.md").read_text().partition("```console")[2]
    shown = {line.split()[2] for line in block.splitlines() if line.startswith("$ octavo")}
    assert shown == {*COMMANDS}


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))], ids=lambda path: path.stem
)
def test_options_that_are_named_exist(path: Path) -> None:
    known = {
        option for command in COMMANDS.values() for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }  # fmt: skip
    of_benchmarks = set("--torch --onnx --quick --only --into --for --config --isa".split())
    named = set(re.findall(r"`(--[a-z0-9-]+)", path.read_text()))
    assert named - of_benchmarks <= known | {"--version", "--help"}
