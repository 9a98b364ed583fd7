"""The ONNX front end: `octavo.onnx.quantize_dynamic` and what goes with it, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

# Not late: a submodule's name is bound in the package on its first import, and this function has
# the name of its module. It needs nothing heavy.
from octavo.core.lazy import lazy as _lazy
from octavo.core.ort_library import custom_ops_library as custom_ops_library
from octavo.onnx.session import session as session
from octavo.onnx.session import session_options as session_options

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

__all__, __getattr__ = _lazy(
    __name__,
    {
        "octavo.onnx.comparing.compare": "compare",
        "octavo.onnx.operators": "supported_ops",
        "octavo.onnx.plan.options": "QuantType",
        "octavo.onnx.quantize": "inspect quantize_dynamic",
        "octavo.onnx.read.tensorflow": "from_tensorflow",
        "octavo.onnx.target_conversion": "convert_target",
        "octavo.onnx.tuning.target": "OnnxTarget",
        "octavo.results": "Inspection",
    },
    "custom_ops_library session session_options",
)
