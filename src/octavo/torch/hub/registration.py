"""Registers Octavo with `transformers` and PEFT when they are loaded, without loading them."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_REGISTERING = {
    "transformers.quantizers.auto": "octavo.torch.hub.quantizer",
    "peft.tuners.lora.model": "octavo.torch.hub.adapters",
}
"""Modules of other libraries, and what registers Octavo with each when it is imported."""

_logger = logging.getLogger("octavo.torch.hub")


def register() -> None:
    """Has Octavo known to those libraries, now or when they are imported."""
    for theirs in _REGISTERING:
        if theirs in sys.modules:
            _import_ours(theirs)
    waiting = {theirs for theirs in _REGISTERING if theirs not in sys.modules}
    if waiting and not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher(waiting))


class _Watcher(MetaPathFinder):
    """Finds those modules as others would, and has ours imported right after each."""

    def __init__(self, waiting: set[str]) -> None:
        self._waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for every other module."""
        if fullname not in self._waiting:
            return None
        self._waiting.discard(fullname)  # what is asked next is the other finders
        spec = importlib.util.find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _import_ours(fullname)

            loader.exec_module = exec_module  # of this one module's own loader
        return spec


def _import_ours(theirs: str) -> None:
    """A library that Octavo does not know must stay importable."""
    try:
        importlib.import_module(_REGISTERING[theirs])
    except (ImportError, AttributeError) as error:
        _logger.info("Octavo is not registered with %s: %s", theirs, error)
