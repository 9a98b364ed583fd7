"""All cases by name: `GROUP/CASE`. A group is a module beside this one, with a dict `CASES`."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.golden.facts import Facts

Case = Callable[[Path], Facts]
GROUPS = (
    "cli",
    "errors",
    "onnx_attention",
    "onnx_conv",
    "onnx_fusions",
    "onnx_linear",
    "onnx_options",
    "onnx_recurrent",
    "onnx_structure",
    "onnx_tables",
    "torch_layers",
    "torch_models",
    "tuning",
    "zoo",
)


class Missing(Exception):
    """Raised by a case whose model or package is not there: it is skipped, and that is said."""


def group(name: str) -> Mapping[str, Case]:
    """The cases of one group."""
    cases: Mapping[str, Case] = importlib.import_module(f"tests.golden.{name}").CASES
    return cases


def chosen(pattern: str) -> Iterator[tuple[str, str]]:
    """(group, case) of those whose group or `group/case` fits `pattern`."""
    for name in GROUPS:
        for case in group(name):
            if fnmatchcase(name, pattern) or fnmatchcase(f"{name}/{case}", pattern):
                yield name, case


def run(name: str, case: str) -> Facts | str:
    """The facts of one case; a text where it is skipped.

    It runs in a folder of its own, with one thread and seeds that are the same each time.
    """
    call = group(name)[case]
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="octavo-golden-") as folder, _seeded():
        os.chdir(folder)
        try:
            return call(Path(folder))
        except Missing as missing:
            return str(missing)
        except Exception as error:  # noqa: BLE001  # a case that breaks is a difference like others
            return {"broken": f"{type(error).__name__}: {error}", "where": _where(error)}
        finally:
            os.chdir(before)


def _where(error: Exception) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    import numpy as np

    random.seed(0)
    np.random.seed(0)  # for libraries that draw from the global one
    _seed_torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _seed_torch() -> None:
    import sys

    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
