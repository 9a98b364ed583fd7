"""Pages in a browser: no errors, nothing asked of the network, tables that sort and search.

Needs Debian's chromium (or the one that OCTAVO_CHROMIUM names) and Playwright's Python package.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from octavo.recipe.evidence import Evidence
from octavo.report.html import report_html, tuning_html
from octavo.report.text import decibels, number, size
from octavo.report.tuning_words import accuracy
from tests.report.evidence_samples import comparison, evidence
from tests.report.test_html_pages import HOSTILE, SHOWN, large
from tests.report.tuning_samples import layer_report

LAYERS = 60
PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: report_html(layer_report(LAYERS), wide_evidence()),
    "no report": lambda: report_html(None, evidence()),
    "no evidence": lambda: report_html(layer_report()),
    "nothing measured": lambda: report_html(layer_report(), Evidence(notes=("no time",))),
    "tuning": lambda: tuning_html(large(40, 60), wide_evidence()),
    "hostile": lambda: report_html(None, hostile()),
}
SCREENS = {"wide": (1280, 900), "tablet": (820, 1100), "phone": (360, 740)}


def wide_evidence() -> Evidence:
    return evidence(comparison=comparison(LAYERS - 1), ort=comparison(LAYERS - 1, 0.053, None))


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

    def heads(self, section: str) -> list[str]:
        found: list[str] = self.page.locator(f"#{section} th").all_inner_texts()
        return [text.strip() for text in found]

    def cells(self, section: str) -> list[list[dict[str, Any]]]:
        """Rows as they stand: each cell's own words, its number and whether its row is shown."""
        script = """rows => rows.map(row => [...row.cells].map(cell => ({
            text: [...cell.childNodes].filter(n => !['SMALL', 'svg'].includes(n.nodeName))
                .map(n => n.textContent).join('').trim(),
            value: cell.dataset.v === undefined ? null : cell.dataset.v,
            shown: row.getClientRects().length > 0,
        })))"""
        found: list[list[dict[str, Any]]] = self.page.locator(f"#{section} tbody tr").evaluate_all(
            script
        )
        return found

    def column(self, section: str, name: str, key: str = "text") -> list[Any]:
        at = self.heads(section).index(name)
        return [row[at][key] for row in self.cells(section)]

    def by_name(self, section: str, name: str) -> dict[str, str]:
        """A column's words by the layer of their row."""
        layers = [text.removesuffix(" look here first") for text in self.column(section, "layer")]
        return dict(zip(layers, self.column(section, name), strict=True))

    def sort(self, section: str, name: str) -> str | None:
        """Presses a heading; how the column is sorted then."""
        head = self.page.locator(f"#{section} th").nth(self.heads(section).index(name))
        head.locator("button").click()
        found: str | None = head.get_attribute("aria-sort")
        return found


@pytest.fixture
def opened(browser: Any, files: dict[str, Path]) -> Iterator[Callable[..., Opened]]:
    """Opens pages; at the end none of them may have complained."""
    contexts, made = [], []

    def open_page(name: str, screen: str = "wide", scheme: str = "light") -> Opened:
        width, height = SCREENS[screen]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        contexts.append(context)
        made.append(Opened(context.new_page(), files[name]).load())
        return made[-1]

    yield open_page
    for context in contexts:
        context.close()
    for one in made:
        assert one.errors == []
        assert one.requests == [one.path.as_uri()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_screen_without_errors(
    opened: Callable[..., Opened], name: str, screen: str, scheme: str
) -> None:
    page = opened(name, screen, scheme).page
    wide, inner = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= inner
    # Nothing sticks out of its card either, and no text of a tile is cut off.
    out = page.evaluate(
        """() => [...document.querySelectorAll('section, .tile')].filter(box => {
            const edge = box.getBoundingClientRect().right + 1;
            return [...box.querySelectorAll('*')].some(
                e => e.getBoundingClientRect().right > edge && !e.closest('svg, pre'));
        }).map(box => box.id || box.textContent)"""
    )
    assert out == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(opened: Callable[..., Opened], scheme: str) -> None:
    """Contrast of 4.5 at least, as the Web Content Accessibility Guidelines ask (1.4.3)."""
    page = opened("tuning", "wide", scheme).page
    pairs = page.evaluate(
        """() => {
            const background = e => {
                for (; e; e = e.parentElement) {
                    const colour = getComputedStyle(e).backgroundColor;
                    if (!colour.startsWith('rgba(0, 0, 0, 0')) return colour;
                }
            };
            const found = new Set();
            for (const e of document.querySelectorAll('body *')) {
                if (e.closest('svg, script') || !e.getClientRects().length) continue;
                if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
                    found.add(getComputedStyle(e).color + '|' + background(e));
            }
            return [...found];
        }"""
    )
    assert len(pairs) > 5
    for colours in pairs:
        text, behind = (luminance(colour) for colour in colours.split("|"))
        contrast = (max(text, behind) + 0.05) / (min(text, behind) + 0.05)
        assert contrast >= 4.5, colours


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, WCAG 2."""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("section", ["trials", "beside", "layers", "ranges"])
def test_every_column_sorts_both_ways(opened: Callable[..., Opened], section: str) -> None:
    one = opened("tuning")
    for name in one.heads(section):
        for wanted in ("ascending", "descending"):
            while one.sort(section, name) != wanted:
                pass
            cells = one.column(section, name, "value")
            texts = one.column(section, name)
            numbers = [float(value) for value in cells if value is not None]
            assert numbers == sorted(numbers, reverse=wanted == "descending"), name
            # Numbers first, then texts, and blanks last, whichever way.
            kinds = [
                0 if value is not None else 1 if text else 2
                for value, text in zip(cells, texts, strict=True)
            ]
            assert kinds == sorted(kinds), name
        assert one.page.locator(f"#{section} th[aria-sort]").count() == 1


def test_names_sort_as_people_count(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    one.sort("layers", "layer")
    names = one.column("layers", "layer")
    assert [name.split()[0] for name in names] == [f"fc{i}" for i in range(1, LAYERS + 1)]


def test_sorting_and_searching_work_from_the_keyboard(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    button = one.page.locator("#layers th button").nth(one.heads("layers").index("alone"))
    assert button.evaluate("b => b.closest('th').getAttribute('aria-sort')") == "ascending"
    button.focus()
    one.page.keyboard.press("Enter")
    assert button.evaluate("b => b.closest('th').getAttribute('aria-sort')") == "descending"
    assert one.column("layers", "layer")[0] == "fc1"
    assert button.evaluate("b => getComputedStyle(b).outlineStyle") == "solid"
    one.page.keyboard.press("Tab")
    assert one.page.evaluate("document.activeElement.textContent") == "accumulated"


def test_searching_shows_the_rows_with_all_words(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    search = one.page.locator("#layers").get_by_label("Search")
    search.fill("FC1 matmul")
    shown = [
        r[one.heads("layers").index("layer")]["text"] for r in one.cells("layers") if r[0]["shown"]
    ]
    assert sorted(shown, key=lambda name: int(name[2:])) == ["fc1", *(f"fc1{i}" for i in range(10))]
    assert one.page.locator("#layers output").inner_text() == f"11 of {LAYERS} layers"
    search.fill("no such layer")
    assert not any(row[0]["shown"] for row in one.cells("layers"))
    search.fill("")
    assert one.page.locator("#layers output").inner_text() == f"{LAYERS} layers"
    assert not one.page.locator("#beside").get_by_label("Search").is_visible()


def test_long_tables_show_their_first_rows_until_asked(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    assert sum(row[0]["shown"] for row in one.cells("layers")) == 25
    one.page.locator("#layers .all").click()
    assert sum(row[0]["shown"] for row in one.cells("layers")) == LAYERS
    assert not one.page.locator("#layers .all").is_visible()


def test_printing_shows_every_row(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    one.page.emulate_media(media="print")
    assert all(row[0]["shown"] for row in one.cells("layers"))
    assert not one.page.locator("nav").is_visible()


def test_figures_of_layers_are_those_of_the_data(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    data = one.data()
    layers = {o["layer"]["name"]: o for o in data["report"]["layers"]}
    assert one.by_name("layers", "before") == {
        n: size(o["bytes_before"]) for n, o in layers.items()
    }
    assert one.by_name("layers", "after") == {n: size(o["bytes_after"]) for n, o in layers.items()}
    weight = {n: decibels(o["sqnr_db"]) for n, o in layers.items()}
    assert one.by_name("layers", "weight SQNR") == weight
    found = {v["name"]: v for v in data["evidence"]["comparison"]["layers"]}
    for what in ("alone", "accumulated"):
        said = {
            name: decibels(found[name][what]["sqnr_db"]) if name in found else "" for name in layers
        }
        assert one.by_name("layers", what) == said
        exact = [
            found[name][what]["sqnr_db"] for name in one.by_name("layers", what) if name in found
        ]
        shown = [float(v) for v in one.column("layers", what, "value") if v is not None]
        assert shown == exact


def test_figures_of_ranges_are_those_of_the_data(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    found = {v["name"]: v for v in one.data()["evidence"]["comparison"]["layers"]}
    for what, key in (("activation", "inputs"), ("weight", "weights")):
        for name, said in one.by_name("ranges", f"{what} peak").items():
            r = found[name][key]
            peak = max(abs(r["low"]), abs(r["high"])) / r["rms"]
            assert said == f"{peak:.1f}" + (" outliers" if peak >= 30 else "")
        for name, said in one.by_name("ranges", "activations" if key == "inputs" else key).items():
            r = found[name][key]
            assert said == f"{r['low']:.3g} to {r['high']:.3g}"


def test_strips_are_drawn_to_scale(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    found = {v["name"]: v for v in one.data()["evidence"]["comparison"]["layers"]}
    names = one.column("ranges", "layer")
    script = """svgs => svgs.map(svg => {
        const whole = svg.getBoundingClientRect();
        const box = svg.querySelector('rect').getBoundingClientRect();
        return [box.left - whole.left, box.width, whole.width];
    })"""
    drawn = one.page.locator("#ranges tbody tr td:nth-child(2) svg").evaluate_all(script)
    for name, (left, width, whole) in list(zip(names, drawn, strict=True))[:25]:
        r = found[name]["inputs"]
        unit = whole / 202 * 100 / max(abs(r["low"]), abs(r["high"]))
        low, high = max(-3 * r["rms"], r["low"]), min(3 * r["rms"], r["high"])
        assert left - whole / 2 == pytest.approx(low * unit, abs=0.5)
        assert width == pytest.approx((high - low) * unit, abs=0.5)


def test_figures_beside_are_those_of_the_data(opened: Callable[..., Opened]) -> None:
    one = opened("report")
    data = one.data()["evidence"]
    models = data["benchmark"]["models"]
    assert one.column("beside", "size") == [size(m["bytes"]) for m in models]
    assert one.column("beside", "memory") == [size(m["peak_memory"]) for m in models]
    assert one.column("beside", "latency") == [f"{m['seconds'] * 1e3:.2f} ms" for m in models]
    ratios = {p["b"]: p for p in data["benchmark"]["rows"] if p["a"] == "float"}
    said = [
        f"{ratios[m]['ratio']:.3f} {ratios[m]['verdict']}"
        for m in ("quantized", "quantize_dynamic")
    ]
    assert one.column("beside", "time / float") == ["", *said]
    worst = [
        max(data[part]["outputs"], key=lambda o: o["difference"]["error"])["difference"]
        for part in ("comparison", "ort")
    ]
    assert one.column("beside", "error") == ["", *(number(d["error"]) for d in worst)]
    assert one.column("beside", "SQNR") == ["", *(decibels(d["sqnr_db"]) for d in worst)]
    sentence = one.page.locator(".verdict").inner_text()
    factor = worst[1]["error"] / worst[0]["error"]
    assert f"{1 / ratios['quantized']['ratio']:.2f}x as fast as float" in sentence
    assert f"{factor:.1f} times less error than ONNX Runtime's own int8" in sentence


def test_figures_of_trials_are_those_of_the_data(opened: Callable[..., Opened]) -> None:
    one = opened("tuning")
    data = one.data()["result"]
    trials = {str(t["index"] or "float"): t for t in (data["baseline"], *data["trials"])}
    names = one.column("trials", "trial")
    assert len(names) == 61
    for name, said, ratio in zip(
        names, one.column("trials", "accuracy"), one.column("trials", "ratio"), strict=True
    ):
        assert said == accuracy(trials[name]["accuracy"])
        expected = trials[name]["time_ratio"]
        assert ratio == ("" if expected is None else f"{expected:.2f}x")
    ranked = one.page.locator("#ranking li .figure").all_text_contents()
    assert ranked == [number(error) for _, error in data["ranking"]]
    assert one.page.locator("#picture svg.wide").is_visible()
    assert not one.page.locator("#picture svg.narrow").is_visible()


def test_a_phone_gets_the_narrow_picture_and_labelled_figures(
    opened: Callable[..., Opened],
) -> None:
    one = opened("tuning", "phone")
    assert one.page.locator("#picture svg.narrow").is_visible()
    label = one.page.locator("#layers td.n:visible").first.evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    )
    assert label == '"before" " "'


def test_hostile_names_stay_text(opened: Callable[..., Opened]) -> None:
    one = opened("hostile")
    assert one.page.locator("img").count() == 0
    names = one.column("layers", "layer")
    # White space collapses in neither: the name's control characters are written as escapes.
    assert f"{SHOWN * 5} look here first" in names
    assert one.data()["evidence"]["comparison"]["layers"][0]["name"] == HOSTILE * 5


def test_infinite_errors_sort_as_numbers(browser: Any, tmp_path: Path) -> None:
    found = comparison(30, broken=None)
    layers = tuple(
        replace(v, alone=replace(v.alone, error=0.0, sqnr_db=math.inf))
        if i % 3 == 0 and v.alone
        else v
        for i, v in enumerate(found.layers)
    )
    path = tmp_path / "page.html"
    path.write_text(report_html(None, evidence(comparison=replace(found, layers=layers))), "utf-8")
    page = browser.new_page()
    one = Opened(page, path).load()
    while one.sort("layers", "alone") != "descending":
        pass
    assert one.column("layers", "alone")[:10] == ["exact"] * 10
    page.close()
    assert one.errors == []
