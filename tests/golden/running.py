"""Runs cases in processes of their own, and says what they gave."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.golden import corpus
from tests.golden.facts import Facts

AT_ONCE = 6  # cases that one process runs before it asks for more
# One thread: PyTorch's own float layers sum in another order with two (Octavo's do not).
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "120",
    "NO_COLOR": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def run_all(
    pattern: str,
    jobs: int,
    say: Callable[[str], None],
    done_with: Callable[[str, dict[str, Facts], dict[str, str]], None] = lambda *_: None,
) -> tuple[dict[str, dict[str, Facts]], dict[str, str]]:
    """The facts by group and case, and why cases were skipped; `done_with` gets each group that
    is complete."""
    os.environ.update(SETTINGS)
    names = list(corpus.chosen(pattern))
    found: dict[str, dict[str, Facts]] = {}
    skipped: dict[str, str] = {}
    chunks = [names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)]

    open_cases = Counter(group for group, _ in names)

    def take(done: list[tuple[str, str, Facts | str]]) -> None:
        for group, case, facts in done:
            open_cases[group] -= 1
            if isinstance(facts, str):
                skipped[f"{group}/{case}"] = facts
            else:
                found.setdefault(group, {})[case] = facts
            if not open_cases[group]:
                done_with(group, found.get(group, {}), skipped)

    if jobs == 1:
        for i, chunk in enumerate(chunks):
            take(_run(chunk))
            say(f"{i + 1} of {len(chunks)}")
        return found, skipped
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_quiet) as pool:
        futures = [pool.submit(_run, chunk) for chunk in chunks]
        for i, future in enumerate(as_completed(futures)):
            take(future.result())
            say(f"{i + 1} of {len(chunks)}")
    return found, skipped


def _quiet() -> None:
    """Exporters and ONNX Runtime's quantizer warn on the root logger."""
    logging.disable(logging.WARNING)


def _run(names: list[tuple[str, str]]) -> list[tuple[str, str, Facts | str]]:
    return [(group, case, corpus.run(group, case)) for group, case in names]


def progress(text: str) -> None:
    """On a terminal only."""
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr, flush=True)
