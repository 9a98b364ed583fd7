"""The ONNX front end: `octavo.onnx.quantize_dynamic` and what goes with it, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Not late: a submodule's name is bound in the package on its first import, and this function has
# the name of its module. It needs nothing heavy.
from octavo.core.ort_library import custom_ops_library
from octavo.onnx.session import session, session_options

if TYPE_CHECKING:
    from octavo.onnx.comparing.compare import compare as compare
    from octavo.onnx.operators import supported_ops as supported_ops
    from octavo.onnx.plan.options import QuantType as QuantType
    from octavo.onnx.quantize import inspect as inspect
    from octavo.onnx.quantize import quantize_dynamic as quantize_dynamic
    from octavo.onnx.read.tensorflow import from_tensorflow as from_tensorflow
    from octavo.onnx.target_conversion import convert_target as convert_target
    from octavo.onnx.tuning.target import OnnxTarget as OnnxTarget
    from octavo.results.inspection import Inspection as Inspection

_HOME = {
    "Inspection": "octavo.results.inspection",
    "OnnxTarget": "octavo.onnx.tuning.target",
    "QuantType": "octavo.onnx.plan.options",
    "compare": "octavo.onnx.comparing.compare",
    "convert_target": "octavo.onnx.target_conversion",
    "from_tensorflow": "octavo.onnx.read.tensorflow",
    "inspect": "octavo.onnx.quantize",
    "quantize_dynamic": "octavo.onnx.quantize",
    "supported_ops": "octavo.onnx.operators",
}

__all__ = [
    "Inspection",
    "OnnxTarget",
    "QuantType",
    "compare",
    "convert_target",
    "custom_ops_library",
    "from_tensorflow",
    "inspect",
    "quantize_dynamic",
    "session",
    "session_options",
    "supported_ops",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'octavo.onnx' has no attribute {name!r}; it has {__all__}")
    return getattr(importlib.import_module(_HOME[name]), name)
