"""Registers Octavo with `transformers` and PEFT when they are loaded, without loading them."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_logger = logging.getLogger("octavo.torch.hub")


def register(table: Mapping[str, str]) -> None:
    """Has our modules imported after theirs, now or when those are imported.

    `table` has modules of other libraries, and what registers Octavo with each.
    """
    waiting = dict(table)
    for theirs in table:
        if theirs in sys.modules:
            _import_ours(theirs, waiting.pop(theirs))
    if waiting and not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher(waiting))


class _Watcher(MetaPathFinder):
    """Finds those modules as others would, and has ours imported right after each."""

    def __init__(self, waiting: dict[str, str]) -> None:
        self._waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that is waited for, and import ours after it; None for every other."""
        if fullname not in self._waiting:
            return None
        ours = self._waiting.pop(fullname)  # what is asked next is the other finders
        spec = importlib.util.find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _import_ours(fullname, ours)

            loader.exec_module = exec_module  # of this one module's own loader
        return spec


def _import_ours(theirs: str, ours: str) -> None:
    """Import `ours`, but only log a failure: the library `theirs` must stay importable."""
    try:
        importlib.import_module(ours)
    except (ImportError, AttributeError) as error:
        _logger.info("Octavo is not registered with %s: %s", theirs, error)
