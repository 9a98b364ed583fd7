"""The page of a model with 400 layers is soon of use."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.report.html import report_html, tuning_html
from tests.report.evidence_samples import comparison, evidence
from tests.report.test_html_pages import large
from tests.report.tuning_samples import layer_report

LAYERS, TRIALS = 400, 300
MOST_SECONDS, DEADLINE = 2.0, 30.0
SORTED = """() => {
    const box = document.querySelector('#layers .sortable');
    if (!box) return false;
    const button = box.querySelectorAll('th button')[1];
    if (button.disabled) return false;
    if (!box.dataset.pressed) {  // a second time would turn the order around
        box.dataset.pressed = 'once';
        button.click();
    }
    if (button.closest('th').getAttribute('aria-sort') !== 'ascending') return false;
    const names = [...box.querySelectorAll('tbody tr')].map(row => row.cells[1].textContent);
    const order = new Intl.Collator('en', {numeric: true});
    void box.offsetHeight;  // laid out
    return names.every((name, i) => !i || order.compare(names[i - 1], name) <= 0);
}"""
"""Presses the heading of the names, once; whether the rows are in that order, laid out."""


def measured() -> object:
    return evidence(comparison=comparison(LAYERS - 1))


PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: report_html(layer_report(LAYERS), measured()),  # type: ignore[arg-type]
    "search": lambda: tuning_html(large(LAYERS, TRIALS), measured()),  # type: ignore[arg-type]
}


@pytest.mark.slow
@pytest.mark.real_time
@pytest.mark.parametrize("screen", [(1280, 900), (360, 740)], ids=["desk", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_a_table_of_a_large_page_is_sorted_in_two_seconds(
    name: str, screen: tuple[int, int], tmp_path: Path
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="NOT TESTED in a browser")
    path = os.environ.get("OCTAVO_CHROMIUM") or shutil.which("chromium")
    if not path:
        pytest.skip("NOT TESTED in a browser: no chromium")
    page = tmp_path / "page.html"
    page.write_text(PAGES[name](), "utf-8")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": screen[0], "height": screen[1]})
        errors: list[str] = []
        window.on("console", lambda message: errors.append(message.text))
        window.on("pageerror", lambda error: errors.append(str(error)))
        window.goto(page.as_uri(), wait_until="commit")
        deadline = time.monotonic() + DEADLINE
        # What waits by itself is refused by the page's policy.
        while not window.evaluate(SORTED) and time.monotonic() < deadline:
            window.wait_for_timeout(10)
        # The page's own clock starts with the navigation.
        assert window.evaluate("performance.now() / 1000") < MOST_SECONDS
        assert not errors
        browser.close()
