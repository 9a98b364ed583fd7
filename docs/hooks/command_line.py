"""The command line's reference, from the commands themselves: `<!-- command line -->` in a page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from octavo.cli import app

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

MARK = "<!-- command line -->"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fills in the reference."""
    return markdown.replace(MARK, "\n".join(reference())) if MARK in markdown else markdown


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
        yield from (f"| `{names}` | {_cell(said)} |" for names, said in records)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _exit_codes(epilog: str) -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning |", "|--:|---|")
    for line in epilog.splitlines():
        code, _, meaning = line.strip().partition(" ")
        if code.isdecimal():
            yield f"| {code} | {_cell(meaning)} |"
