"""What messages advise exists, and lists of names end where nobody reads on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

from octavo.cli.commands import app
from octavo.core.packages import TORCH
from octavo.errors import did_you_mean, listed
from tests.sources import FILES, SRC, parsed

OTHERS = {
    *("--force-reinstall", "--extra-index-url"),  # pip
    *("--opset", "--outputs", "--output", "--saved-model", "--graphdef"),  # tf2onnx
}
"""Options of other programs that Octavo calls or names."""


@cache
def options() -> dict[str, set[str]]:
    """The options of every command of the program, by its name."""
    group = typer.main.get_command(app)
    commands = group.commands  # type: ignore[attr-defined]
    return {
        name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
        for name, command in commands.items()
    } | {"": {"--version", "--help", "-h"}}


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """What the modules hold, by their paths."""
    return {path.relative_to(SRC): [*ast.walk(parsed(path.read_text("utf-8")))] for path in FILES}


def literals(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """The texts in a module, docstrings too; a placeholder of an f-string is `{}`."""
    inside = {id(part) for n in nodes if isinstance(n, ast.JoinedStr) for part in n.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            yield node.lineno, str(node.value)


@cache
def texts() -> list[tuple[str, str]]:
    return [
        (f"{path}:{line}", text)
        for path, found in nodes().items()
        for line, text in literals(found)
    ]


def test_every_option_that_a_text_names_exists() -> None:
    known = {option for found in options().values() for option in found} | OTHERS
    seen = set()
    for where, text in texts():
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text):
            seen.add(option)
            assert option in known, f"{where} names {option}, which no command has"
    assert len(seen) > 30  # the search finds something


def test_an_option_that_is_named_with_its_command_is_one_of_that_command() -> None:
    found = 0
    for where, text in texts():
        for command, rest in re.findall(r"\boctavo ([a-z][a-z-]+)\b([^;.\n]*)", text):
            if command not in options():
                continue
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest.partition(", ")[0]):
                found += 1
                assert option in options()[command], f"{where}: octavo {command} has no {option}"
    assert found > 5


def test_arguments_that_messages_name_exist() -> None:
    """`name=value` and names in backquotes, in what is raised."""
    known = names()
    found = 0
    for path, held in nodes().items():
        for node in held:
            if not isinstance(node, ast.Raise):
                continue
            for text in (c.value for c in ast.walk(node) if isinstance(c, ast.Constant)):
                # Calls of other libraries' functions have arguments of their own.
                own = re.sub(r"\bonnx\.[\w.]+\([^)]*\)", "", str(text))
                named = re.findall(r"`([a-z]\w*)`|\b([a-z]\w+)=(?:True|False|\[|')", own)
                for name in filter(None, (part for pair in named for part in pair)):
                    found += 1
                    assert name in known, f"{path}:{node.lineno}: {name}"
    assert found > 15


def names() -> set[str]:
    """Every parameter, field and attribute that the package defines."""
    found: set[str] = set()
    for node in (node for held in nodes().values() for node in held):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


@pytest.mark.parametrize(("count", "end"), [(9, "n8"), (10, "n9"), (11, "n9 and 1 more")])
def test_a_list_of_names_ends_after_ten(count: int, end: str) -> None:
    assert listed(f"n{i}" for i in range(count)).endswith(f", {end}")


def test_what_is_known_is_cut_and_what_is_near_is_not() -> None:
    known = [f"/encoder/layer.{i:03}/MatMul" for i in range(400)]
    said = did_you_mean("/encoder/layer.399/MatMull", known)
    assert "Did you mean '/encoder/layer.399/MatMul'" in said
    assert said.endswith("/encoder/layer.009/MatMul and 390 more.")
    assert len(said) < 600


def test_what_is_installed_comes_from_pypi_and_pytorch_for_cpus() -> None:
    """Octavo is not on PyPI: no advice names it there."""
    for where, text in texts():
        assert not re.search(r"pip install '?octavo", text), where
    project = (SRC.parent / "pyproject.toml").read_text("utf-8")
    assert f'"torch=={TORCH}"' in project
