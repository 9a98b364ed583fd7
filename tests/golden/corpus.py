"""All cases by name, `GROUP/CASE`, and how they are run. A group is a module beside this one, with
a dict `CASES`."""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import traceback
import unittest.mock
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from octavo.measure import waiting
from octavo.onnx.plan import selection
from tests.golden.facts import Facts

Case = Callable[[Path], Facts]
ONNX = ("attention", "conv", "fusions", "linear", "options", "recurrent", "structure", "tables")
GROUPS = ("cli", *(f"onnx_{n}" for n in ONNX), "torch_layers", "torch_models", "zoo")
AT_ONCE = 6  # cases that one process runs before it asks for more
# One thread: PyTorch's own float layers sum in another order with two (Octavo's do not).
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "120",
    "NO_COLOR": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Missing(Exception):
    """Raised by a case whose model or package is not there: it is skipped, and that is said."""


def group(name: str) -> Mapping[str, Case]:
    """The cases of one group."""
    cases: Mapping[str, Case] = importlib.import_module(f"tests.golden.{name}").CASES
    return cases


def fits(pattern: str, group: str, case: str) -> bool:
    """Whether a pattern means this group or case."""
    return fnmatchcase(group, pattern) or fnmatchcase(f"{group}/{case}", pattern)


def run_all(pattern: str, jobs: int) -> tuple[dict[str, dict[str, Facts]], dict[str, str]]:
    """The facts by group and case, and why cases were skipped. With one job, in this process."""
    os.environ.update(SETTINGS)
    groups = [g for g in GROUPS if fnmatchcase(g, pattern.partition("/")[0])]
    names = [(g, case) for g in groups for case in group(g) if fits(pattern, g, case)]
    found: dict[str, dict[str, Facts]] = {}
    skipped: dict[str, str] = {}
    for name, case, facts in _every(names, jobs):
        if isinstance(facts, str):
            skipped[f"{name}/{case}"] = facts
        else:
            found.setdefault(name, {})[case] = facts
    return found, skipped


def _every(names: list[tuple[str, str]], jobs: int) -> Iterator[tuple[str, str, Facts | str]]:
    chunks = [names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)]
    if jobs == 1:
        for chunk in chunks:
            yield from _run(chunk)
        return
    spawn = multiprocessing.get_context("spawn")
    # Exporters and ONNX Runtime's quantizer warn on the root logger.
    with ProcessPoolExecutor(jobs, spawn, logging.disable, (logging.WARNING,)) as pool:
        for done in as_completed([pool.submit(_run, chunk) for chunk in chunks]):
            yield from done.result()


def _run(names: list[tuple[str, str]]) -> list[tuple[str, str, Facts | str]]:
    return [(name, case, run(name, case)) for name, case in names]


def run(name: str, case: str) -> Facts | str:
    """The facts of one case; a text where it is skipped.

    It runs in a folder of its own, with seeds that are the same each time.
    """
    call = group(name)[case]
    before = Path.cwd()
    # The corpus is of small layers, which portable files leave float by default.
    small = unittest.mock.patch.object(selection, "SMALL", 0)
    idle = unittest.mock.patch.object(waiting, "waited", float)
    with tempfile.TemporaryDirectory(prefix="octavo-golden-") as folder, _seeded(), small, idle:
        os.chdir(folder)
        try:
            return call(Path(folder))
        except Missing as missing:
            return str(missing)
        except Exception as error:  # noqa: BLE001  # a case that breaks is a difference like others
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            where = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]
            return {"broken": f"{type(error).__name__}: {error}", "where": where}
        finally:
            os.chdir(before)


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    import numpy as np

    random.seed(0)
    np.random.seed(0)  # for libraries that draw from the global one
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
