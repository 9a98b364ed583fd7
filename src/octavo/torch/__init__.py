"""The PyTorch front end: `octavo.torch.quantize_dynamic` and what goes with it.

Importing it registers the operators (`torch.ops.octavo`) that compiled and exported programs call.
"""

from __future__ import annotations

try:
    import torch as _torch
except ImportError as error:
    from octavo.errors import pip_install

    raise ImportError(
        f"octavo.torch needs PyTorch: {pip_install('torch', 'safetensors')}"
    ) from error

from octavo.torch import qconfig
from octavo.torch.comparing.compare import compare
from octavo.torch.export import export_onnx
from octavo.torch.load import load
from octavo.torch.mapping import default_mapping
from octavo.torch.quantize import inspect, quantize_dynamic, report
from octavo.torch.save import save
from octavo.torch.tuning.target import TorchTarget

del _torch

__all__ = [
    "TorchTarget",
    "compare",
    "default_mapping",
    "export_onnx",
    "inspect",
    "load",
    "qconfig",
    "quantize_dynamic",
    "report",
    "save",
]
