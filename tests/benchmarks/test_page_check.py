"""The check of the HTML page: what it waits for, how long, and what it returns."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import page_check, results
from benchmarks.results import Row
from octavo.recipe import Report
from octavo.results.evidence import Evidence
from tests.report.evidence_samples import comparison, evidence
from tests.report.tuning_samples import layer_report

SLOW = """<!doctype html><section id="layers"><div class="sortable"><table>
<thead><tr><th><button>#</button></th><th><button>layer</button></th></tr></thead>
<tbody id="rows"><tr><td>1</td><td>b</td></tr><tr><td>2</td><td>a</td></tr></tbody></table></div>
</section><script>
const [head, rows] = [document.querySelectorAll("th")[1], document.querySelector("#rows")];
head.addEventListener("click", () => setTimeout(() => {
    head.setAttribute("aria-sort", head.ariaSort === "ascending" ? "descending" : "ascending");
    if (SORTS) rows.append(rows.rows[0]);
}, 400));
</script>"""
"""Takes 0.4 s after each click, of which every second one turns the order around."""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """Where to write a page; where there is no browser, the test is skipped."""
    pytest.importorskip("playwright.sync_api", reason="NOT TESTED in a browser: no playwright")
    if not (os.environ.get("OCTAVO_CHROMIUM") or shutil.which("chromium")):
        pytest.skip("NOT TESTED in a browser: no chromium")
    return tmp_path / "slow.html"


@pytest.mark.real_time
def test_a_heading_is_pressed_once(slow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow.write_text(SLOW.replace("SORTS", "true"))
    monkeypatch.setattr(page_check, "DEADLINE", 10.0)
    (load,) = page_check.opened(slow, (400, 400), 1)
    assert 0.4 < load.seconds < 10
    assert load.errors == 0


def test_a_page_that_never_sorts_is_given_up(slow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow.write_text(SLOW.replace("SORTS", "false"))
    monkeypatch.setattr(page_check, "DEADLINE", 1.0)
    (load,) = page_check.opened(slow, (400, 400), 1)
    assert load.seconds == math.inf


def test_infinity_is_missed_and_can_be_kept(tmp_path: Path) -> None:
    row = Row("until a table is sorted", math.inf, "s", at_most=2.0)
    data, page = results.write(results.result("page", "Page", [row]), tmp_path)
    assert json.loads(data.read_text())["rows"][0]["reached"] is False
    assert "**missed**" in page.read_text()
    assert results.read(data).missed


def test_what_is_missing_from_the_page_is_a_missed_figure() -> None:
    assert page_check.shown(evidence(), 11).reached
    assert not page_check.shown(evidence(), 12).reached
    assert not page_check.shown(evidence(ort=None, notes=("no luck",)), 11).reached
    assert "no luck" in page_check.shown(evidence(ort=None, notes=("no luck",)), 11).note


@pytest.mark.parametrize(("seconds", "code"), [(0.5, 0), (math.inf, 1)])
def test_a_missed_figure_is_the_exit_code(
    seconds: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = page_check.QUICK[0]

    def measured(folder: Path, asked: int) -> tuple[Report, Evidence]:
        return layer_report(asked), evidence(comparison=comparison(layers))

    def rows(folder: Path, title: str, text: str, loads: int) -> Iterator[Row]:
        yield Row("until a table is sorted", seconds, "s", at_most=page_check.USABLE_S)

    monkeypatch.setattr(page_check, "measured", measured)
    monkeypatch.setattr(page_check, "rows", rows)
    assert page_check.main(["--quick"]) == code
