"""The site's menu, links and figures; what `make docs` would refuse, found without building it."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from ruamel.yaml import YAML

from benchmarks import readme
from benchmarks.results import FOLDER, read, table, write
from octavo.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md"))
GENERATED = {"changelog.md", *(f"results/{path.stem}.md" for path in FOLDER.glob("*.json"))}


def named(menu: Any) -> list[str]:
    """The pages of a menu."""
    if isinstance(menu, str):
        return [menu]
    parts = menu.values() if isinstance(menu, dict) else menu
    return [page for part in parts for page in named(part)]


def script(path: str) -> Any:
    """A file of docs/ as a module. MkDocs is imported only where it calls one."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_menu_names_every_page_once() -> None:
    menu = script("hooks/results.py").menu(CONFIG["nav"])
    assert sorted(named(menu)) == sorted({*PAGES, *GENERATED})


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_links_lead_somewhere(page: str) -> None:
    path = DOCS / page
    for target in links(path.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path.resolve()
        generated = str(there.relative_to(ROOT)).removeprefix("docs/") in GENERATED
        assert there.exists() or generated, f"{page}: {target}"
        if anchor and there.suffix == ".md" and not generated:
            assert anchor in anchors(there.read_text()), f"{page}: {target}"


def links(text: str) -> list[str]:
    """The targets of all links and images of a page."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        for child in token.children or []:
            found += [str(v) for k in ("href", "src") if (v := child.attrGet(k)) is not None]
    return found


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w]+", "-", h.lower()).strip("-") for h in headings}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_result_reads_back_as_it_is_written(path: Path, tmp_path: Path) -> None:
    assert write(read(path), tmp_path).read_text() == path.read_text()


def test_pictures_are_as_they_are_drawn() -> None:
    draw = script("pictures/draw.py")
    for name, picture in draw.PICTURES.items():
        assert (DOCS / "pictures" / f"{name}.svg").read_text() == picture()
    plots = {f"speed-{theme}" for theme in readme.THEMES}  # of test_readme.py
    assert {path.stem for path in DOCS.glob("pictures/*.svg")} == {*draw.PICTURES, *plots}


def test_figures_are_those_of_the_results() -> None:
    hook = script("hooks/results.py")
    section = "Conversion time, all-MiniLM-L6"
    rows = [row for row in read(FOLDER / "convert.json").rows if row.section == section]
    page = hook.filled(f"before\n\n<!-- results: convert: {section} -->\n\nafter\n")
    assert page == "before\n\n" + "\n".join(table(rows)) + "\n\nafter\n"
    assert "python -m benchmarks.convert" in hook.filled("<!-- measured: convert -->")
    assert "(results/convert.md) | `python -m benchmarks.convert" in hook.filled("<!-- every -->")
    for wrong in ("<!-- measured: gone -->", "<!-- results: convert: gone -->"):
        with pytest.raises(LookupError, match="gone"):
            hook.filled(wrong)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != "performance.md"], ids=lambda page: Path(page).stem
)
def test_pages_ask_for_figures_that_there_are(page: str) -> None:
    hook, text = script("hooks/results.py"), (DOCS / page).read_text()
    assert "<!--" not in hook.filled(text).replace(script("hooks/command_line.py").MARK, "")
    if "/" not in page:
        assert hook.written(text) == text, "run `python docs/hooks/results.py`"


def test_the_performance_page_asks_for_what_there_is_and_shows_every_miss() -> None:
    page = script("hooks/results.py").filled((DOCS / "performance.md").read_text())
    assert "<!--" not in page
    for path in FOLDER.glob("*.json"):
        for row in read(path).missed:
            assert f"| {row.section} | {row.what} | {row.asked} | {row.shown} |" in page
    typed = re.sub(r"^(\||- |`python).*$", "", page, flags=re.MULTILINE)
    assert not re.search(r"\d(\.\d+)? ?(x|ms|%|dB|MB)\b", typed)  # no figure is typed in


def test_the_command_line_page_has_every_command_and_option() -> None:
    text = "\n".join(script("hooks/command_line.py").reference())
    for command in app.registered_commands:
        assert f"## octavo {command.name or command.callback.__name__}\n" in text
    for option in ("--max-trials", "--against", "--recipe-out", "--no-verify", "--to"):
        assert (option in text) is (option != "--max-trials")
    assert "| 8 | tune: no recipe that meets the criterion was found |" in text


@pytest.mark.parametrize("page", sorted(DOCS.glob("api/*.md")), ids=lambda path: path.stem)
def test_reference_pages_show_names_that_modules_of_the_same_name_hide(page: Path) -> None:
    text = page.read_text()
    (module, *others) = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert text.startswith(f"# {module}\n")
    for name in getattr(importlib.import_module(module), "__all__", ()):
        if name in submodules(module) and not (DOCS / "api" / f"{name}.md").exists():
            assert f"{module}.{name}.{name}" in others


def submodules(module: str) -> set[str]:
    """Names of the modules in a package."""
    path = getattr(importlib.import_module(module), "__path__", [])
    return {info.name for info in pkgutil.iter_modules(path)}
