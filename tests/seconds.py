"""A plugin of pytest for the suite's own time: where it went, and what fits into `make quick`.

Each run keeps the seconds of its cases in build/seconds.json. `--quick` takes the first case of
each test and, of those, the cheapest that fit into QUICK_SECONDS.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

KEPT = Path(__file__).parents[1] / "build" / "seconds.json"
QUICK_SECONDS = 12.0
UNKNOWN = 0.05
"""Taken for the seconds of a test that never ran here."""
NOT_QUICK = ("slow", "models", "real_time")

STARTED = pytest.StashKey[float]()
COLLECTING = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    quick = "the first case of each test that is cheap; none that is slow or needs models"
    parser.getgroup("octavo").addoption("--quick", action="store_true", help=quick)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STARTED] = time.perf_counter()
    config.stash[COLLECTING] = 0.0


@pytest.hookimpl(tryfirst=True)  # before the other hooks of this name give their values
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With `--quick`, give each parameter its first value only."""
    if not metafunc.config.option.quick:
        return
    every = metafunc.parametrize

    def first(names: Any, values: Any, *more: Any, **options: Any) -> None:
        one = list(values)[:1]
        ids = options.get("ids")
        if ids is not None and not callable(ids):
            options["ids"] = list(ids)[:1]
        every(names, one, *more, **options)

    metafunc.parametrize = first  # type: ignore[method-assign]


@pytest.hookimpl(trylast=True)  # behind the hook that marks cases of a sweep as slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.quick:
        return
    known = seconds()
    cheap = [item for item in items if not any(item.get_closest_marker(mark) for mark in NOT_QUICK)]
    files: Counter[str] = Counter()
    order = []
    for item in cheap:  # of those alike, the first of each file before the second of any
        name = item.nodeid.partition("::")[0]
        order.append((known.get(item.nodeid, UNKNOWN), files[name], item))
        files[name] += 1
    took, chosen = 0.0, set()
    for seconds_of, _, item in sorted(order, key=lambda each: each[:2]):
        took += seconds_of
        if took > QUICK_SECONDS:
            break
        chosen.add(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def seconds() -> dict[str, float]:
    """Return the seconds of each case that has run here, by its node id."""
    try:
        return dict(json.loads(KEPT.read_text()))
    except (OSError, ValueError):
        return {}


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    config.stash[COLLECTING] = time.perf_counter() - config.stash[STARTED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over how long a worker of pytest-xdist collected."""
    took = getattr(node, "workeroutput", {}).get("collecting", 0.0)
    node.config.stash[COLLECTING] = max(node.config.stash[COLLECTING], took)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["collecting"] = session.config.stash[COLLECTING]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    TIMED[report.nodeid][report.when or ""] += report.duration  # type: ignore[assignment]


TIMED: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""Seconds by node id and phase: the hook above gets no configuration."""


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the time went, and keep it."""
    if hasattr(config, "workerinput") or not TIMED:
        return
    files: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    for nodeid, phase in TIMED.items():
        files[nodeid.partition("::")[0]] += sum(phase.values())  # type: ignore[assignment]
        phases.update(phase)
    terminalreporter.write_line(
        f"seconds: {config.stash[COLLECTING]:.0f} of collection, {phases['setup']:.0f} of set-up, "
        f"{phases['call']:.0f} of tests, {phases['teardown']:.0f} of tear-down; slowest files:"
    )
    for name, took in files.most_common(10):
        terminalreporter.write_line(f"{took:7.1f} s  {name}")
    root = KEPT.parents[1]
    before = {n: t for n, t in seconds().items() if (root / n.partition("::")[0]).exists()}
    kept = before | {nodeid: round(sum(phase.values()), 3) for nodeid, phase in TIMED.items()}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(kept, indent=0))
