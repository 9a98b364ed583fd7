"""Octavo: dynamic int8 quantization for CPU inference.

Importing this package loads neither torch nor onnx nor onnxruntime; the front ends are
`octavo.onnx` and, later, others of the same shape.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from octavo.errors import OctavoError as OctavoError
    from octavo.recipe import Decision as Decision
    from octavo.recipe import Layer as Layer
    from octavo.recipe import Recipe as Recipe
    from octavo.recipe import Scheme as Scheme
    from octavo.results.report import Report as Report

_HOME = {
    "Decision": "octavo.recipe",
    "Layer": "octavo.recipe",
    "OctavoError": "octavo.errors",
    "Recipe": "octavo.recipe",
    "Report": "octavo.results.report",
    "Scheme": "octavo.recipe",
}

__all__ = ["Decision", "Layer", "OctavoError", "Recipe", "Report", "Scheme", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}; it has {__all__}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
