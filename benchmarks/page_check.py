"""How large the HTML page of a 400-layer model is, and how soon a browser can use it.

A real model of 400 layers is quantized, and measured as `octavo report` does; the page that this
command writes, and that of a search of 300 trials over as many layers, are opened in headless
Chromium again and again. Usable is a page once a click on a heading has sorted a table: from
navigation to the order of its rows; a page that is not after 30 s counts as infinity.

    python -m benchmarks.page_check           writes benchmarks/results/page.json and .md
    python -m benchmarks.page_check --quick   40 layers, few loads; writes nothing

Needs chromium (Debian's, or the one that OCTAVO_CHROMIUM names) and Playwright's Python package.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

import octavo.onnx
from benchmarks import bench_check, results
from benchmarks.results import Row, say
from octavo.cli.evidence import How, evidence
from octavo.cli.report import stored_report
from octavo.recipe import Recipe, Report, Rule, Scheme
from octavo.recipe.scheme import FLOAT as LEFT_FLOAT
from octavo.report.html import report_html, tuning_html
from octavo.results.evidence import ORT, Evidence
from octavo.results.tuning import Status, Trial, TuneResult

LAYERS, TRIALS, LOADS = 400, 300, 12
QUICK = (40, 30, 3)
SECONDS = 10.0
SIZE_MB, USABLE_S = 2.0, 2.0
SCREENS = {"1280 px": (1280, 900), "360 px": (360, 740)}
DEADLINE = 30.0
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


@dataclass(frozen=True)
class Load:
    """One navigation: seconds until the page was usable (infinite where it was not by the
    deadline), and how many complaints it had."""

    seconds: float
    errors: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows; 0 if every figure is reached."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_check", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of all; writes no result")
    options = parser.parse_args(arguments)
    layers, trials, loads = QUICK if options.quick else (LAYERS, TRIALS, LOADS)
    with tempfile.TemporaryDirectory(prefix="octavo-page-") as name:
        folder = Path(name)
        report, found = measured(folder, layers)
        pages = {
            f"report of {layers} layers": report_html(report, found),
            f"search of {trials} trials over {layers} layers": tuning_html(
                searched(report, trials), found
            ),
        }
        figures = [shown(found, layers)]
        figures += [
            row for title, text in pages.items() for row in rows(folder, title, text, loads)
        ]
    title = "The HTML page of a large model"
    outcome = results.result("page", title, figures, arguments, script="page_check")
    results.publish(outcome, options.quick)
    return 1 if outcome.missed else 0


def measured(folder: Path, layers: int) -> tuple[Report, Evidence]:
    """A chain of layers, quantized; what `octavo report` finds in both files and shows."""
    say(f"quantizing {layers} layers")
    model = named(bench_check.write_model(folder / "model.onnx", layers))
    made, inputs = folder / "model.int8.onnx", folder / "inputs.npz"
    octavo.onnx.quantize_dynamic(model, made)
    x = np.random.default_rng(0).standard_normal((bench_check.ROWS, bench_check.WIDTH), np.float32)
    np.savez(inputs, x=x)
    say(f"comparing, and timing for {SECONDS:g} s")
    found = evidence(str(model), made, How(inputs, bench_check.SHAPE, 1, SECONDS), strict=True)
    told = stored_report(str(model), made)
    assert told is not None  # Octavo made the file
    return told, found


def shown(found: Evidence, layers: int) -> Row:
    """Whether the page is as large as it gets: both ranges, and ONNX Runtime's model beside it."""
    parts = () if found.comparison is None else found.comparison.layers
    whole = sum(layer.inputs is not None and layer.weights is not None for layer in parts)
    beside = found.ort is not None and found.timed(ORT) is not None
    note = "" if beside else f"without ONNX Runtime's model: {'; '.join(found.notes)}"
    return Row("layers with ranges", whole if beside else 0, at_least=layers, note=note)


def named(model: Path) -> Path:
    """Gives the layers names as long as exported models have."""
    found = onnx.load(model)
    for i, node in enumerate(found.graph.node):
        node.name = f"/encoder/layer.{i // 2}/attention/self/query/{node.op_type}"
    onnx.save(found, model)
    return model


def searched(report: Report, trials: int) -> TuneResult:
    """A search as it could have been: each trial leaves other layers float."""
    names = [outcome.layer.name for outcome in report.layers]
    random = np.random.default_rng(1)
    tried = []
    for i in range(1, trials + 1):
        left = sorted(random.choice(names, len(names) // 10, replace=False))
        rules = tuple(Rule(LEFT_FLOAT, name=str(name)) for name in left)
        loss = float(abs(random.normal(0.008, 0.004)))
        tried.append(
            Trial(
                i,
                Recipe("int8", Scheme(), rules),
                f"int8, {len(left)} of {len(names)} layers float: {', '.join(left[:4])}, ...",
                str(i),
                layers=len(names),
                quantized=len(names) - len(left),
                accuracy=0.9 * (1 - loss),
                loss=loss,
                meets=loss <= 0.01,
                latency=0.01 * float(random.uniform(0.4, 0.9)),
                time_ratio=float(random.uniform(0.4, 0.9)),
                bytes=int(report.model_bytes_after * random.uniform(1, 2)),
                seconds=1.0,
                elapsed=float(i),
            )
        )
    met = [trial for trial in tried if trial.meets]
    return TuneResult(
        status=Status.MET,
        best=min(met, key=lambda trial: trial.time_ratio or 1.0),
        trials=tuple(tried),
        baseline=Trial(
            *(0, None, "float", "float"),
            accuracy=0.9,
            latency=0.01,
            time_ratio=1.0,
            bytes=report.model_bytes_before,
        ),
        model=report.source,
        criterion="at most 1% of the float model's accuracy lost",
        objective="performance",
        strategy="random",
        seconds=float(trials),
        ranking=tuple((name, float(0.5 / (i + 1))) for i, name in enumerate(names)),
        model_runs=len(names) + 1,
        report=report,
        bound=0.01,
        relative=True,
    )


def rows(folder: Path, title: str, text: str, loads: int) -> Iterator[Row]:
    """Size, time and complaints of one page."""
    page = folder / "page.html"
    page.write_text(text, "utf-8")
    megabytes = page.stat().st_size / 1e6
    yield Row("size of the file", megabytes, "MB", at_most=SIZE_MB, section=title)
    for name, screen in SCREENS.items():
        say(f"{title}: opening it {loads} times at {name}")
        found = opened(page, screen, loads)
        seconds = [load.seconds for load in found]
        note = f"most of {loads} loads, median {median(seconds):.2f} s"
        what = f"until a table is sorted, {name}"
        yield Row(what, max(seconds), "s", at_most=USABLE_S, section=title, note=note)
        errors = sum(load.errors for load in found)
        yield Row(f"errors in the console, {name}", errors, at_most=0, section=title)


def opened(page: Path, screen: tuple[int, int], loads: int) -> list[Load]:
    """Each load in a window of its own, whose cache is empty."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("OCTAVO_CHROMIUM") or shutil.which("chromium")
    if not path:
        raise SystemExit("no chromium: apt-get install chromium, or name one in OCTAVO_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        found = [_load(browser, page, screen) for _ in range(loads)]
        browser.close()
    return found


def _load(browser: Any, page: Path, screen: tuple[int, int]) -> Load:
    errors: list[str] = []
    context = browser.new_context(viewport={"width": screen[0], "height": screen[1]})
    window = context.new_page()
    window.on("console", lambda message: errors.append(message.text))
    window.on("pageerror", lambda error: errors.append(str(error)))
    window.goto(page.as_uri(), wait_until="commit")
    deadline, seconds = time.monotonic() + DEADLINE, math.inf
    while time.monotonic() < deadline:  # what waits by itself is refused by the page's policy
        if window.evaluate(SORTED):
            # The page's own clock starts with the navigation.
            seconds = window.evaluate("performance.now() / 1000")
            break
        window.wait_for_timeout(10)
    context.close()
    return Load(seconds, len(errors))


if __name__ == "__main__":
    raise SystemExit(main())
