"""The command line's reference, from the commands themselves."""

from __future__ import annotations

import html
import inspect
from collections.abc import Iterator
from typing import Any

import typer

from octavo.cli import app


def reference() -> Iterator[str]:
    """Markdown: a section for each command, then the exit codes, which all share."""
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield from section(name, command)
    yield from _exit_codes(group.epilog)


def section(name: str, command: Any) -> Iterator[str]:
    """One command: usage, what it does, and a table of what it takes."""
    context = typer.Context(command, info_name=f"octavo {name}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    yield from (f"## octavo {name}", "", f"`{usage}`", "", inspect.cleandoc(command.help), "")
    records = [found for p in command.params if (found := p.get_help_record(context))]
    if records:
        yield from ("| argument or option | meaning |", "|---|---|")
        for names, said in records:
            # Two dialects of Markdown differ in how a bar stands in backticks.
            code = html.escape(names, quote=False).replace("|", "&#124;")
            yield f"| <code>{code}</code> | {_cell(said)} |"
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _exit_codes(epilog: str) -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning |", "|--:|---|")
    for line in epilog.splitlines():
        code, _, meaning = line.strip().partition(" ")
        if code.isdecimal():
            yield f"| {code} | {_cell(meaning)} |"
