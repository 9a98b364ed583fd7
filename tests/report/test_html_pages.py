"""Pages for a browser: well-formed, self-contained, safe, small, with the numbers of the result."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import sys
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import OptionError, OutputError
from octavo.recipe import Recipe, Rule, Scheme
from octavo.report.html import report_html, tuning_html, write_html
from octavo.results.report import Verification
from octavo.results.tuning import Status, TuneResult
from tests.report.evidence_samples import evidence
from tests.report.tuning_samples import (
    BASELINE,
    BEST,
    FAILED,
    MISSED,
    layer_report,
    result,
    trial,
)

VOID = {"meta", "link", "input", "br", "wbr"}
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u2028 '\"&amp;{{ 7*7 }}\n"
SHOWN = r"""</script><img src=x onerror=alert(1)>\x1b[31m\u2028 '"&amp;{{ 7*7 }}\n"""


@dataclass
class Element:
    tag: str
    attrs: dict[str, str | None]
    parent: Element | None
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str, **attrs: str) -> list[Element]:
        return [
            e
            for c in self.children
            for e in ([c] if c.tag == tag and attrs.items() <= c.attrs.items() else [])
            + c.all(tag, **attrs)
        ]

    def words(self) -> str:
        return self.text + "".join(c.words() for c in self.children)


class Document(HTMLParser):
    """A tree; an element that is closed by another's end tag, or never, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = self.at = Element("", {}, None)
        self.feed(text)
        self.close()
        assert self.at is self.root, f"<{self.at.tag}> is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        made = Element(tag, dict(attrs), self.at)
        self.at.children.append(made)
        if tag not in VOID:
            self.at = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Element(tag, dict(attrs), self.at))

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.text += data


def parsed(text: str) -> Element:
    return Document(text).root


def data_of(page: Element) -> Any:
    (script,) = page.all("script", type="application/json", id="data")
    return json.loads(script.text)


def heading(page: Element) -> str:
    (h1,) = page.all("h1")
    return h1.all("span")[0].text + h1.text.strip()


def section(page: Element, name: str) -> Element:
    (found,) = page.all("section", id=name)
    return found


def rows(table: Element) -> list[list[Element]]:
    (body,) = table.all("tbody")
    return [row.all("td") for row in body.all("tr")]


RESULTS = {
    "met": result(),
    "best effort": result(status=Status.BEST_EFFORT, best=MISSED, output="", report=None),
    "nothing done": result(
        status=Status.INTERRUPTED, best=BASELINE, trials=(), ranking=(), report=None, notes=()
    ),
    "not timed": result(
        trials=(replace(BEST, latency=None, time_ratio=None),),
        best=replace(BEST, latency=None, time_ratio=None),
        baseline=replace(BASELINE, latency=None, time_ratio=None),
    ),
    "no numbers": result(
        baseline=replace(BASELINE, accuracy=0.0),
        best=replace(BEST, loss=math.inf, accuracy=math.nan),
        trials=(replace(BEST, loss=math.inf, accuracy=math.nan),),
        ranking=(("a", math.inf), ("b", 0.0)),
    ),
    "bound unknown": result(bound=None),
}


@pytest.mark.parametrize("shown", RESULTS.values(), ids=RESULTS)
def test_a_page_is_well_formed_and_alone_and_embeds_the_result(shown: TuneResult) -> None:
    """It asks the network for nothing, and runs its own script only."""
    text = tuning_html(shown)
    page = well_formed(text)
    assert not re.search(r"https?://|url\(|@import", text)
    assert len(page.all("h1")) == 1
    expected = json.loads(shown.to_json())
    last = re.compile(r"(\S.*)\s*\Z")
    for made in (expected["baseline"], expected["best"], *expected["trials"]):
        made["error"] = found[1] if (found := last.search(made["error"])) else ""
    for made in expected["trials"]:
        made["recipe"] = None
    assert data_of(page) == {"report": None, "result": expected, "evidence": None}
    (script,) = (s for s in page.all("script") if "type" not in s.attrs)
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert f"script-src 'sha256-{digest}'" in (policy.attrs["content"] or "")
    assert "default-src 'none'" in (policy.attrs["content"] or "")


def well_formed(text: str) -> Element:
    """The page, whose links lead to its own ids, each there once."""
    assert text.startswith("<!doctype html>")
    page = parsed(text)
    ids = [e.attrs["id"] for e in descendants(page) if "id" in e.attrs]
    assert len(ids) == len(set(ids))
    for element in descendants(page):
        assert "src" not in element.attrs
        href = element.attrs.get("href")
        assert href is None or href == "data:," or href[1:] in ids
    return page


def descendants(element: Element) -> list[Element]:
    return [e for c in element.children for e in (c, *descendants(c))]


def test_the_table_of_trials_has_the_numbers_of_the_data() -> None:
    page = parsed(tuning_html(result()))
    data = data_of(page)["result"]
    heads = [th.words().strip() for th in section(page, "trials").all("th")]
    assert heads == "trial recipe accuracy loss latency time size result".split()
    keys = "index - accuracy loss latency time_ratio bytes -".split()
    for row, made in zip(
        rows(section(page, "trials")), [data["baseline"], *data["trials"]], strict=True
    ):
        for key, cell in zip(keys, row, strict=True):
            shown = cell.attrs.get("data-v")
            assert (None if shown is None else float(shown)) == (None if key == "-" else made[key])
    marks = [row[-1].words() for row in rows(section(page, "trials"))]
    assert marks == ["", "missed", "best", "met", "failed"]


def test_the_table_of_layers_has_the_numbers_of_the_data() -> None:
    exact = layer_report()
    layers = (replace(exact.layers[0], sqnr_db=math.inf), *exact.layers[1:])
    page = parsed(tuning_html(result(report=replace(exact, layers=layers))))
    table = rows(section(page, "layers"))
    for row, outcome in zip(table, layers, strict=True):
        assert row[0].words() == outcome.layer.name
        assert int(row[3].attrs["data-v"] or "") == outcome.bytes_before
        assert int(row[4].attrs["data-v"] or "") == outcome.bytes_after
        assert row[6].words() == (outcome.reason or "recipe int8")
    assert (table[0][5].attrs["data-v"], table[0][5].words()) == ("Infinity", "exact")
    assert float(table[1][5].attrs["data-v"] or "") == layers[1].sqnr_db
    assert "data-v" not in table[-1][5].attrs
    assert table[-1][2].words() == "float"


def test_verdict_and_tiles() -> None:
    page = parsed(tuning_html(result()))
    assert heading(page) == "✓Met"
    assert "Trial 2 (int8, 1 of 12 layers float: fc3) keeps the criterion" in page.words()
    tiles = {
        tile.all("dt")[0].words(): [dd.words() for dd in tile.all("dd") if dd.words()]
        for tile in page.all("div", **{"class": "tile"})
    }
    assert tiles == {
        "Accuracy": ["0.912", "float 0.915, loss 0.328% of at most 1%"],
        "Latency": ["4.21 ms", "1.92x as fast, float 8.10 ms"],
        "Size": ["23.1 MB", "3.9x smaller, float 90.4 MB"],
        "Quantized": ["11 of 12", "layers"],
        "Search": ["4 trials", "13 model runs, 1 min 2 s"],
    }


def test_headings_of_tables_are_buttons_and_every_cell_says_its_column() -> None:
    page = parsed(tuning_html(result()))
    _, labels = page.all("style")
    for table in page.all("table"):
        heads = table.all("th")
        names = [th.words().strip() for th in heads]
        assert all(len(th.all("button")) == 1 for th in heads)
        assert all(len(row) == len(names) for row in rows(table))
        for i, name in enumerate(names, 1):
            assert f'td:nth-child({i})::before {{ content: "{name} "; }}' in labels.text


@pytest.mark.usefixtures("pictures_drawn")
def test_hostile_names_are_text_and_nothing_else() -> None:
    bad = replace(BEST, words=HOSTILE)
    failed = replace(FAILED, words=HOSTILE, error=f"ValueError: {HOSTILE}")
    held = layer_report(2)
    outcome = held.layers[-1]
    spiked = replace(
        outcome,
        layer=replace(outcome.layer, name=HOSTILE, op=HOSTILE),
        reason=HOSTILE,
        notes=(HOSTILE,),
    )
    shown = result(
        model=HOSTILE,
        best=bad,
        trials=(bad, failed),
        ranking=((HOSTILE, 0.5),),
        notes=(HOSTILE,),
        output=HOSTILE,
        criterion=HOSTILE,
        objective=HOSTILE,
        strategy=HOSTILE,
        report=replace(held, layers=(held.layers[0], spiked)),
    )
    text = tuning_html(shown)
    page = parsed(text)
    assert page.all("img") == []
    assert "\x1b" not in text and "\u2028" not in text
    assert len(page.all("script")) == 2
    assert data_of(page)["result"]["model"] == HOSTILE
    assert rows(section(page, "layers"))[1][0].words() == SHOWN
    assert rows(section(page, "trials"))[1][1].words() == SHOWN
    assert any(SHOWN in tip.words() for tip in section(page, "picture").all("title"))
    (again,) = [report_html(replace(held, source=HOSTILE, layers=(spiked,), notes=(HOSTILE,)))]
    assert parsed(again).all("img") == []
    assert data_of(parsed(again))["report"]["source"] == HOSTILE


def test_a_name_that_is_no_unicode_can_still_be_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"model-\xff.onnx")
    write_html(tuning_html(result(model=name)), tmp_path / "r.html")
    assert data_of(parsed((tmp_path / "r.html").read_text("utf-8")))["result"]["model"] == name


def large(layers: int = 400, trials: int = 200) -> TuneResult:
    rules = tuple(Rule(Scheme(), name=f"/encoder/layer.{i}/MatMul") for i in range(layers))
    recipe = Recipe("made", Scheme(), rules)
    words = "int8, 40 of 400 layers float: " + ", ".join(f"/encoder/layer.{i}/M" for i in range(3))
    made = [
        replace(trial(i, words, 0.9 + i / 1e4, 0.5 + i / 1e3, 22_500_000), recipe=recipe)
        for i in range(1, trials + 1)
    ]
    errors = [replace(FAILED, index=t.index, error=f"E: {t.index}\n" * 2000) for t in made[:50]]
    ranking = tuple((f"/encoder/layer.{i}/attention/MatMul", 0.5 / (i + 1)) for i in range(layers))
    return result(
        best=made[-1],
        trials=(*errors, *made[50:]),
        ranking=ranking,
        report=layer_report(layers),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("pictures_drawn")
def test_four_hundred_layers_and_two_hundred_trials_stay_below_two_megabytes() -> None:
    text = tuning_html(large())
    assert len(text.encode()) < 2_000_000
    page = parsed(text)
    assert len(rows(section(page, "layers"))) == 400
    assert len(rows(section(page, "trials"))) == 201
    assert len(section(page, "ranking").all("li")) == 400
    assert "30 further tracebacks not shown" in section(page, "failed").words()


def test_bars_of_the_ranking() -> None:
    shown = result(ranking=(("x", math.inf), ("a", 1.0), ("b", 0.1), ("c", 0.01), ("d", 0.0)))
    items = section(parsed(tuning_html(shown)), "ranking").all("li")
    widths = [li.all("i")[0].attrs["style"] for li in items]
    assert widths == [f"width:{w}%" for w in ("100.0", "100.0", "52.0", "4.0", "0.0")]
    left = result(ranking=(("fc12", 0.2), ("fc1", 0.1)))
    first, second = section(parsed(tuning_html(left)), "ranking").all("li")
    assert "float in the best model" in first.words()
    assert "float in the best model" not in second.words()


@pytest.mark.usefixtures("pictures_drawn")
def test_the_picture_is_drawn_for_both_widths_and_tells_each_trial() -> None:
    text = tuning_html(result())
    assert text == tuning_html(result())
    picture = section(well_formed(text), "picture")
    for kind in ("wide", "narrow"):
        (svg,) = picture.all("svg", **{"class": f"plot {kind}"})
        tips = [title.words() for title in svg.all("title")]
        assert (
            "trial 2: int8, 1 of 12 layers float: fc3\n"
            "accuracy 0.912, loss 0.328%, latency 4.21 ms, time 0.52, size 23.1 MB"
        ) in tips
        assert sum(tip.startswith("trial") for tip in tips) == 3


@pytest.mark.usefixtures("pictures_drawn")
@pytest.mark.parametrize("what", ["picture", "errors"])
def test_without_matplotlib_the_page_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = parsed(tuning_html(result(), evidence()))
    assert "pip install 'matplotlib>=3.8'" in section(page, what).words()
    assert not section(page, what).all("svg")


def test_a_report_that_was_not_compared_or_quantized_nothing() -> None:
    skipped = replace(layer_report(), verification=Verification("skipped", detail="no inputs"))
    page = parsed(report_html(skipped))
    assert heading(page) == "!Check before you ship"
    assert "was not made (skipped)" in page.words()
    nothing = replace(layer_report(), layers=layer_report().layers[-1:])
    assert heading(parsed(report_html(nothing))) == "✗Not ready to ship"
    assert parsed(report_html(replace(layer_report(), layers=()))).all("h1")


def test_without_jinja2_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(OptionError, match=r"needs jinja2.*pip install 'jinja2>=3.1'"):
        tuning_html(result())


def test_a_page_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "r.html"
    write_html("old µ", out)
    assert out.read_bytes() == "old µ".encode()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match=r"r\.html cannot be written: No space left"):
            write_html("new", out)
    assert out.read_bytes() == "old µ".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    write_html("new", out)
    assert out.read_text() == "new"


def test_a_link_to_a_page_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "r.html")
    write_html("text", tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "r.html").read_text() == "text"


def test_templates_are_beside_the_code_that_reads_them() -> None:
    from octavo.report.html import parts, render

    kinds = parts.Section.__subclasses__()
    assert len(kinds) == 7
    for kind in kinds:
        assert (render._TEMPLATES / kind.template).is_file()
