"""Registers Octavo with `transformers` as soon as that is loaded, without loading it."""

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

_REGISTRY = "transformers.quantizers.auto"
_QUANTIZER = "octavo.torch.hub.quantizer"

_logger = logging.getLogger("octavo.torch.hub")


def register() -> None:
    """Has the method `octavo` known to `transformers`, now or when its registry is imported."""
    if _REGISTRY in sys.modules:
        _import_quantizer()
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


class _Watcher(MetaPathFinder):
    """Finds the registry as others would, and has the quantizer imported right after it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for every other module."""
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _import_quantizer()

            loader.exec_module = exec_module  # of this one module's own loader
        return spec


def _import_quantizer() -> None:
    """A `transformers` that Octavo does not know must stay importable."""
    try:
        importlib.import_module(_QUANTIZER)
    except ImportError as error:
        _logger.info("Octavo is not registered with transformers: %s", error)
