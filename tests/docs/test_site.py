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

from benchmarks.docs import marks, plots
from benchmarks.results import FOLDER, read, table, write
from octavo.cli import app

WRITE = "run `python -m benchmarks.docs`"
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


@pytest.mark.slow
def test_pictures_are_as_they_are_drawn() -> None:
    draw = script("pictures/draw.py")
    for name, picture in draw.PICTURES.items():
        assert (DOCS / "pictures" / f"{name}.svg").read_text() == picture()
    drawn = {path.stem for path in DOCS.glob("pictures/*.svg")} - {*draw.PICTURES}
    assert drawn == {path.stem for path in plots.pictures()}


@pytest.mark.slow
@pytest.mark.parametrize("name", plots.drawn())
def test_plots_are_of_the_committed_results(name: str) -> None:
    """Byte for byte where Matplotlib is of the release that drew them, else by their words."""
    for path, svg in plots.pictures([name]).items():
        there = path.read_text(encoding="utf-8")
        if _matplotlib(there) == _matplotlib(svg):
            assert there == svg, WRITE
        else:
            assert _texts(there) == _texts(svg), WRITE


def _matplotlib(svg: str) -> str:
    return re.findall(r"Matplotlib v([\d.]+)", svg)[0]


def _texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)<", svg)


def test_what_stands_between_marks() -> None:
    section = "Conversion time, all-MiniLM-L6"
    rows = [row for row in read(FOLDER / "convert.json").rows if row.section == section]
    mark = f"<!-- results: convert: {section} -->"
    page = marks.written(f"before\n\n{mark}\n\nafter\n")
    assert page == "\n".join(["before", "", mark, *table(rows), marks.END, "", "after", ""])
    assert marks.written(page) == page
    assert marks.written(page.replace("| reached |", "| typed |")) == page
    two = f"{mark}\n\n<!-- measured: convert -->\nold\n{marks.END}\n"
    assert marks.written(two).count(marks.END) == 2
    assert "old" not in marks.written(two)
    every = marks.written("<!-- every -->")
    assert "(../benchmarks/results/convert.json) | `python -m benchmarks.convert" in every
    in_notes = marks.written("<!-- every -->", DOCS / "notes" / "page.md")
    assert "(../../benchmarks/results/convert.json)" in in_notes
    for wrong in (
        "measured: gone",
        "results: convert: gone",
        "plot: gone",
        "families: tune: gone",
        "example: gone",
    ):
        with pytest.raises(LookupError, match="gone"):
            marks.written(f"<!-- {wrong} -->")


def test_the_site_links_to_pages_of_results_and_shows_one_of_two_pictures() -> None:
    link = "see [all](../benchmarks/results/convert.json) and [x](../../benchmarks/results/a.json)"
    hook = script("hooks/results.py").on_page_markdown
    assert hook(link, None, None, None) == "see [all](results/convert.md) and [x](../results/a.md)"
    shown = script("hooks/pictures.py").themed(marks.written("<!-- plot: lengths -->"))
    assert "pictures/lengths-light.svg#only-light)" in shown
    assert "pictures/lengths-dark.svg#only-dark)" in shown
    assert "<picture" not in shown


@pytest.mark.parametrize("page", marks.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_as_they_are_written(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert marks.written(text, page) == text, WRITE
    known = (line for line in text.splitlines() if line.startswith("<!-- "))
    assert all(marks.is_mark(line) for line in known)


def test_every_plot_is_on_a_page_with_its_machine_and_its_kernel_table() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in marks.PAGES)
    for name, found in plots.drawn().items():
        _, mark, rest = text.partition(f"<!-- plot: {name} -->")
        assert mark, name
        said = rest.partition(marks.END)[0]
        for result in found.results:
            machine = read(FOLDER / f"{result}.json").machine
            assert machine.cpu.split("(R)")[0] in said, name
            assert found.compares_tables or re.search(r"instruction set \w", said), name


def test_the_performance_pages_show_every_miss() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in DOCS.glob("performance*.md")}
    for path in FOLDER.glob("*.json"):
        for row in read(path).missed:
            line = f"| {row.section} | {row.what} | {row.asked} | {row.shown} |"
            assert line in pages["performance_results"]
    shown = r"^(\||- |`python|`OCTAVO|<!-- |  <img).*$"
    typed = re.sub(shown, "", "\n".join(pages.values()), flags=re.MULTILINE)
    assert not re.search(r"\d(\.\d+)? ?(x|ms|%|dB|MB)\b", typed)  # no figure is typed in


def test_the_command_line_page_has_every_command_and_option() -> None:
    text = (DOCS / "command_line.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"## octavo {command.name or command.callback.__name__}\n" in text
    for option in ("--max-trials", "--against", "--recipe-out", "--no-verify", "--to", "--plot"):
        assert (option in text) is (option != "--max-trials")
    assert "| 8 | tune: no recipe that meets the criterion was found |" in text


@pytest.mark.parametrize("page", sorted(DOCS.glob("api/*.md")), ids=lambda path: path.stem)
def test_reference_pages_show_names_that_modules_of_the_same_name_hide(page: Path) -> None:
    text = page.read_text()
    (module, *others) = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert text.startswith(f"# {module}\n")
    assert f"<!-- names: {module} -->\n" in text  # in a clone there is no more to see
    for name in getattr(importlib.import_module(module), "__all__", ()):
        if name in submodules(module) and not (DOCS / "api" / f"{name}.md").exists():
            assert f"{module}.{name}.{name}" in others


def submodules(module: str) -> set[str]:
    """Names of the modules in a package."""
    path = getattr(importlib.import_module(module), "__path__", [])
    return {info.name for info in pkgutil.iter_modules(path)}
