"""Pages in a browser: no errors, nothing asked of the network, tables that sort and search.

Needs Debian's chromium (or the one that OCTAVO_CHROMIUM names) and Playwright's Python package.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from octavo.report.html import report_html, tuning_html
from octavo.results.evidence import Evidence
from tests.report.evidence_samples import comparison, difference, evidence
from tests.report.test_contrast import contrast
from tests.report.test_html_pages import HOSTILE, SHOWN, large
from tests.report.tuning_samples import layer_report

LAYERS = 60
pytestmark = pytest.mark.slow

PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: report_html(layer_report(LAYERS), wide_evidence()),
    "no report": lambda: report_html(None, evidence()),
    "no evidence": lambda: report_html(layer_report()),
    "nothing measured": lambda: report_html(layer_report(), Evidence(notes=("no time",))),
    "tuning": lambda: tuning_html(large(40, 60), wide_evidence()),
    "exact layers": lambda: report_html(None, exact()),
    "hostile": lambda: report_html(None, hostile()),
}
SCREENS = {"wide": (1280, 900), "desk": (1190, 900), "tablet": (820, 1100), "phone": (360, 740)}


def wide_evidence() -> Evidence:
    return evidence(comparison=comparison(LAYERS - 1))


def exact() -> Evidence:
    """Every third layer without any error."""
    found = comparison(30, broken=None)
    layers = tuple(
        replace(layer, alone=difference(0.0)) if i % 3 == 0 else layer
        for i, layer in enumerate(found.layers)
    )
    return evidence(comparison=replace(found, layers=layers), ort=None)


def hostile() -> Evidence:
    found = comparison()
    layers = (replace(found.layers[0], name=HOSTILE * 5, op=HOSTILE), *found.layers[1:])
    bad = replace(found, layers=layers, quantized_model=HOSTILE)
    return evidence(comparison=bad, notes=(HOSTILE,))


def chromium() -> str:
    """The browser; where there is none, the tests are skipped and say what to do."""
    found = os.environ.get("OCTAVO_CHROMIUM") or shutil.which("chromium")
    if not found:
        pytest.skip(
            "NOT TESTED in a browser: no chromium; apt-get install chromium, or name one in "
            "OCTAVO_CHROMIUM"
        )
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Stays open for all tests of this file."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="NOT TESTED in a browser: pip install playwright"
    )
    path = chromium()
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every page, written once."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, make in PAGES.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(make(), "utf-8")
    return found


READ = """section => {
    const words = cell => [...cell.childNodes].filter(n => !['SMALL', 'svg'].includes(n.nodeName))
        .map(n => n.textContent).join('').trim();
    const heads = [...section.querySelectorAll('th')];
    return {
        heads: heads.map(head => head.textContent.trim()),
        sorted: heads.map(head => head.getAttribute('aria-sort')),
        rows: [...section.querySelectorAll('tbody tr')].map(row => ({
            texts: [...row.cells].map(words),
            values: [...row.cells].map(cell => cell.dataset.v ?? null),
            shown: row.getClientRects().length > 0,
        })),
    };
}"""
"""A section's table as it stands: cells' own words, what they are sorted by, which rows show."""


@dataclass(frozen=True)
class Shown:
    """A table as it stood."""

    heads: list[str]
    sorted: list[str | None]
    rows: list[dict[str, Any]]

    def texts(self, name: str) -> list[str]:
        """A column's words, from top to bottom."""
        return [row["texts"][self.heads.index(name)] for row in self.rows]

    def values(self, name: str) -> list[float | None]:
        """What a column is sorted by."""
        found = [row["values"][self.heads.index(name)] for row in self.rows]
        return [None if value is None else float(value) for value in found]

    @property
    def seen(self) -> int:
        return sum(row["shown"] for row in self.rows)


@dataclass
class Opened:
    """A page, and what it complained of."""

    page: Any
    path: Path
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def load(self) -> Opened:
        self.page.on("console", lambda m: self.errors.append(m.text))
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(self.path.as_uri())
        return self

    def data(self) -> Any:
        return json.loads(self.page.locator("#data").text_content())

    def table(self, section: str) -> Shown:
        return Shown(**self.page.locator(f"#{section}").evaluate(READ))

    def heading(self, section: str, name: str) -> Any:
        return self.page.locator(f"#{section} th button", has_text=re.compile(f"^{name}$"))


@pytest.fixture
def opened(browser: Any, files: dict[str, Path]) -> Iterator[Callable[..., Opened]]:
    """Opens pages; at the end none of them may have complained."""
    made: list[Opened] = []

    def open_page(name: str, screen: str = "wide") -> Opened:
        width, height = SCREENS[screen]
        page = browser.new_page(viewport={"width": width, "height": height})
        made.append(Opened(page, files[name]).load())
        return made[-1]

    yield open_page
    for one in made:
        one.page.close()
        assert one.errors == []
        assert one.requests == [one.path.as_uri()]


STICKS_OUT = """() => [...document.querySelectorAll('section, .tile')].filter(box => {
    const edge = box.getBoundingClientRect().right + 1;
    return [...box.querySelectorAll('*')].some(
        e => e.getBoundingClientRect().right > edge && !e.closest('svg, pre'));
}).map(box => box.id || box.textContent)"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_screen_without_errors(opened: Callable[..., Opened], name: str) -> None:
    page = opened(name).page
    for screen, (width, height) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, screen
        assert page.evaluate(STICKS_OUT) == [], screen


@pytest.mark.parametrize("name", ["tuning", "report"])
def test_texts_can_be_read_in_light_and_dark(opened: Callable[..., Opened], name: str) -> None:
    """Contrast of 4.5 at least, as the Web Content Accessibility Guidelines ask (1.4.3)."""
    page = opened(name).page
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (contrast(hexadecimal(behind), "#000") < 2) == (scheme == "dark")
        pairs = page.evaluate(COLOURS)
        assert len(pairs) > 5
        for text, behind in pairs:
            found = contrast(hexadecimal(text), hexadecimal(behind))
            assert found >= 4.5, (scheme, text, behind)


def hexadecimal(colour: str) -> str:
    """`rgb(r, g, b)` as `#rrggbb`."""
    return "#" + "".join(f"{int(part):02x}" for part in colour[4:-1].split(","))


COLOURS = """() => {
    const background = e => {
        for (; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (!colour.startsWith('rgba(0, 0, 0, 0')) return colour;
        }
    };
    const found = new Map();
    for (const e of document.querySelectorAll('body *')) {
        if (e.closest('svg, script') || !e.getClientRects().length) continue;
        if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) {
            const pair = [getComputedStyle(e).color, background(e)];
            found.set(pair.join(), pair);
        }
    }
    return [...found.values()];
}"""
"""Each colour of texts with the colour that it stands on."""


SORTED_ALL = f"""section => [...section.querySelectorAll('th')].flatMap(head => [1, 2].map(() => {{
    head.querySelector('button').click();
    return ({READ})(section);
}}))"""
"""The table after each of two presses on each heading."""


def test_every_column_of_every_table_sorts_both_ways(opened: Callable[..., Opened]) -> None:
    page = opened("tuning").page
    for section in ("trials", "beside", "layers", "ranges"):
        found = [Shown(**one) for one in page.locator(f"#{section}").evaluate(SORTED_ALL)]
        heads = found[0].heads
        assert len(found) == 2 * len(heads) >= 10
        for i, table in enumerate(found):
            name = heads[i // 2]
            (way,) = filter(None, table.sorted)
            assert table.sorted[i // 2] == way
            assert way != found[i ^ 1].sorted[i // 2]  # both ways in two presses
            numbers = [value for value in table.values(name) if value is not None]
            assert numbers == sorted(numbers, reverse=way == "descending"), (section, name)
            # Numbers first, then texts, and blanks last, whichever way.
            kinds = [
                0 if value is not None else 1 if text else 2
                for value, text in zip(table.values(name), table.texts(name), strict=True)
            ]
            assert kinds == sorted(kinds), (section, name)
            assert sorted(row["texts"] for row in table.rows) == sorted(
                row["texts"] for row in found[0].rows
            )


def test_names_sort_as_people_count(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    one.heading("layers", "layer").click()
    names = [name.split()[0] for name in one.table("layers").texts("layer")]
    assert names == [f"fc{i}" for i in range(1, LAYERS + 1)]


def test_sorting_works_from_the_keyboard(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    at = one.table("layers").heads.index("alone")
    assert one.table("layers").sorted[at] == "ascending"
    button = one.heading("layers", "alone")
    button.focus()
    one.page.keyboard.press("Enter")
    assert one.table("layers").sorted[at] == "descending"
    assert one.table("layers").texts("layer")[0] == "fc1"
    assert button.evaluate("b => getComputedStyle(b).outlineStyle") == "solid"
    one.page.keyboard.press("Tab")
    assert one.page.evaluate("document.activeElement.textContent") == "accumulated"


def test_searching_shows_the_rows_with_all_words(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    search = one.page.locator("#layers").get_by_label("Search")
    said = one.page.locator("#layers output")
    search.fill("FC1 matmul")
    table = one.table("layers")
    names = [
        name for name, row in zip(table.texts("layer"), table.rows, strict=True) if row["shown"]
    ]
    assert sorted(names) == sorted(["fc1", *(f"fc1{i}" for i in range(10))])
    assert said.inner_text() == f"11 of {LAYERS} layers"
    search.fill("no such layer")
    assert one.table("layers").seen == 0
    search.fill("")
    assert said.inner_text() == f"{LAYERS} layers"
    assert not one.page.locator("#beside").get_by_label("Search").is_visible()


def test_long_tables_show_their_first_rows_until_asked_or_printed(
    opened: Callable[..., Opened],
) -> None:
    one = opened("report")
    assert one.table("layers").seen == 25
    one.page.emulate_media(media="print")
    assert one.table("layers").seen == LAYERS
    assert not one.page.locator("nav").is_visible()
    one.page.emulate_media(media="screen")
    one.page.locator("#layers .all").click()
    assert one.table("layers").seen == LAYERS
    assert not one.page.locator("#layers .all").is_visible()


def test_strips_are_drawn_to_scale(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    found = {v["name"]: v for v in one.data()["evidence"]["comparison"]["layers"]}
    names = one.table("ranges").texts("layer")
    script = """svgs => svgs.map(svg => {
        const whole = svg.getBoundingClientRect();
        const box = svg.lastElementChild.getBoundingClientRect();
        return [box.left - whole.left, box.width, whole.width];
    })"""
    drawn = one.page.locator("#ranges tbody tr td:nth-child(2) svg").evaluate_all(script)
    for name, (left, width, whole) in list(zip(names, drawn, strict=True))[:25]:
        r = found[name]["inputs"]
        unit = whole / 2 / max(abs(r["low"]), abs(r["high"]))
        low, high = max(-3 * r["rms"], r["low"]), min(3 * r["rms"], r["high"])
        assert left - whole / 2 == pytest.approx(low * unit, abs=0.5)
        assert width == pytest.approx((high - low) * unit, abs=0.5)


def test_a_phone_gets_the_narrow_picture_and_labelled_figures(
    opened: Callable[..., Opened],
) -> None:
    page = opened("tuning", "phone").page
    assert page.locator("#picture svg.narrow").is_visible()
    assert not page.locator("#picture svg.wide").is_visible()
    labels = page.locator("#layers tbody tr").first.evaluate(
        "row => [...row.cells].map(cell => getComputedStyle(cell, '::before').content)"
    )
    assert labels == [f'"{name} "' for name in Opened(page, Path()).table("layers").heads]
    # As cards they are no table to the browser: only their roles say so.
    assert page.locator("td:not([role=cell]), tr:not([role=row]), table:not([role])").count() == 0
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator("#picture svg.wide").is_visible()
    assert not page.locator("#picture svg.narrow").is_visible()


def test_hostile_names_stay_text(opened: Callable[..., Opened]) -> None:
    one = opened("hostile")
    assert one.page.locator("img").count() == 0
    assert f"{SHOWN * 5} look here first" in one.table("layers").texts("layer")
    assert one.data()["evidence"]["comparison"]["layers"][0]["name"] == HOSTILE * 5


def test_infinite_errors_sort_as_numbers(opened: Callable[..., Opened]) -> None:
    one = opened("exact layers")
    one.heading("layers", "alone").click()
    table = one.table("layers")
    assert "descending" in table.sorted
    assert table.texts("alone")[:10] == ["exact"] * 10
    assert table.texts("alone")[10] != "exact"
