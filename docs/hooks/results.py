"""Figures come from benchmarks/results/NAME.json, as a script in benchmarks/ left them there.

In a page, each on a line of its own:

    <!-- measured: NAME -->             the command, the machine, the versions, the commit
    <!-- results: NAME: SECTION -->     the table of one section
    <!-- headlines: NAME: SECTION -->   of it, what was asked for, and means
    <!-- figures: NAME: SECTION -->     what was measured in it, without what was asked for
    <!-- gains: NAME: SECTION -->       of those, the headlines
    <!-- asked: NAME -->            all that was asked for, of every section
    <!-- families: NAME: TABLE -->      a table of `benchmarks.families_table`, a family a line
    <!-- missed -->                     every figure of all results that was missed
    <!-- every -->                      all results, with the command and commit of each

`results/NAME.md` is a page with all of them; the menu's entry `results/` stands for those pages.

Readers of the Markdown see them too: `python docs/hooks/results.py` writes them below the comment,
up to `<!-- end -->`, in every page but performance.md; `tests/docs/test_site.py` fails until then.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


REPOSITORY = Path(__file__).parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from benchmarks.families_table import TABLES  # noqa: E402
from benchmarks.results import FOLDER, Result, Row, read, table  # noqa: E402

_MARK = re.compile(
    r"^<!-- (measured|results|headlines|figures|gains|asked|families|missed|every)"
    r"(?:: ([^:]+?))?(?:: (.+?))? -->$"
    r"(?:\n(?:(?!<!--).*\n)*<!-- end -->$)?",
    re.M,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages of the results into the menu."""
    config.nav = menu(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each result."""
    from mkdocs.structure.files import File

    for name in names():
        text = _read(name).to_markdown()
        files.append(File.generated(config, f"results/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fills in what pages ask for."""
    from mkdocs.exceptions import PluginError

    try:
        return filled(markdown)
    except LookupError as error:
        raise PluginError(f"{page.file.src_path}: {error.args[0]}") from error


def menu(entries: Any) -> Any:
    """The menu with the pages that there are in place of `results/`, each by its title."""
    if entries == "results/":
        return [{_read(name).title: f"results/{name}.md"} for name in names()]
    if isinstance(entries, dict):
        return {title: menu(entry) for title, entry in entries.items()}
    return [menu(entry) for entry in entries] if isinstance(entries, list) else entries


def filled(markdown: str) -> str:
    """The page with its figures. Raises LookupError for a result or section that is not there."""
    return _MARK.sub(lambda match: _filling(match[1], match[2] or "", match[3] or ""), markdown)


def written(markdown: str) -> str:
    """The page with its figures below each comment, as the repository keeps it."""

    def fill(match: re.Match[str]) -> str:
        comment = match[0].partition("\n")[0]
        figures = _filling(match[1], match[2] or "", match[3] or "")
        return f"{comment}\n{figures}\n<!-- end -->"

    return _MARK.sub(fill, markdown)


def names() -> list[str]:
    """Of the results that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@cache
def _read(name: str) -> Result:
    if name not in names():
        raise LookupError(f"there is no result {name!r}; there are {', '.join(names())}")
    return read(FOLDER / f"{name}.json")


def _filling(what: str, name: str, section: str) -> str:
    if what in ("missed", "every"):
        return _missed() if what == "missed" else _every()
    result = _read(name)
    if what == "measured":
        return result.origin()
    if what == "asked":
        return _asked(result)
    if what == "families":
        if section not in TABLES:
            raise LookupError(f"there is no table {section!r}; there are {', '.join(TABLES)}")
        return "\n".join(TABLES[section](result))
    rows = [row for row in result.rows if row.section == section]
    if not rows:
        known = "\n".join(dict.fromkeys(row.section for row in result.rows))
        raise LookupError(f"result {name!r} has no section {section!r}; it has\n{known}")
    if what in ("headlines", "gains"):
        rows = [row for row in rows if row.reached is not None or "geometric mean" in row.what]
    return "\n".join(table(rows)) if what in ("results", "headlines") else _figures(rows)


def _figures(rows: list[Row]) -> str:
    """What and how much, for pages that are no account of what was asked for."""
    lines = ["| what | measured |", "|---|--:|"]
    lines += [f"| {_cell(row.what)} | {_cell(row.shown)} |" for row in rows]
    return "\n".join(lines)


def _asked(result: Result) -> str:
    """One table of all figures with a bound, each with its section before it."""
    lines = ["| where | what | asked | measured | |", "|---|---|---|--:|---|"]
    for row in result.rows:
        if row.reached is not None:
            verdict = f"**{row.verdict}**" if row.reached is False else row.verdict
            lines.append(f"| {_cells(row)} | {verdict} |")
    return "\n".join(lines)


def _missed() -> str:
    """One table of all results, each row with its section before it."""
    lines = ["| result | where | what | asked | measured |", "|---|---|---|---|--:|"]
    for name in names():
        result = _read(name)
        title = f"[{name}](results/{name}.md)"
        for row in result.missed:
            lines.append(f"| {title} | {_cells(row)} |")
    return "\n".join(lines)


def _every() -> str:
    """One line for each result: where it is, what wrote it, and of which code."""
    lines = ["| result | written by | commit | reached |", "|---|---|---|--:|"]
    for name in names():
        result = _read(name)
        bounds = sum(row.reached is not None for row in result.rows)
        reached = f"{bounds - len(result.missed)} of {bounds}"
        code = f"`{result.command}` | {result.commit[:12]}, {result.date[:10]}"
        lines.append(f"| [{result.title}](results/{name}.md) | {code} | {reached} |")
    return "\n".join(lines)


def _cells(row: Row) -> str:
    cells = (row.section, row.what, row.asked, row.shown)
    return " | ".join(map(_cell, cells))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for page in (REPOSITORY / "docs").glob("*.md"):
        if page.name != "performance.md":  # whose tables are the longer part of it
            page.write_text(written(page.read_text("utf-8")), "utf-8")
