"""The PyTorch front end: `octavo.torch.quantize_dynamic` and what goes with it.

Importing it registers the operators (`torch.ops.octavo`) that compiled and exported programs call.
Serving takes no more than `load` and the layers: all else is imported where it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import torch as _torch
except ImportError as error:
    from octavo.core.packages import pip_install

    raise ImportError(f"octavo.torch needs PyTorch: {pip_install('torch')}") from error

from octavo.core.lazy import lazy as _lazy
from octavo.torch import hub as hub
from octavo.torch.layers.registry import declarations as _declarations

if TYPE_CHECKING:
    from octavo.torch import qconfig as qconfig
    from octavo.torch.comparing.compare import compare as compare
    from octavo.torch.export import export_onnx as export_onnx
    from octavo.torch.files.load import load as load
    from octavo.torch.files.save import save as save
    from octavo.torch.quantize import inspect as inspect
    from octavo.torch.quantize import quantize_dynamic as quantize_dynamic
    from octavo.torch.quantize import report as report
    from octavo.torch.replace.mapping import default_mapping as default_mapping
    from octavo.torch.torchao.configs import (
        Int8DynamicActivationInt4WeightConfig as Int8DynamicActivationInt4WeightConfig,
    )
    from octavo.torch.torchao.configs import (
        Int8DynamicActivationInt8WeightConfig as Int8DynamicActivationInt8WeightConfig,
    )
    from octavo.torch.torchao.configs import (
        Int8DynamicActivationIntxWeightConfig as Int8DynamicActivationIntxWeightConfig,
    )
    from octavo.torch.torchao.configs import IntxWeightOnlyConfig as IntxWeightOnlyConfig
    from octavo.torch.torchao.configs import MappingType as MappingType
    from octavo.torch.torchao.configs import PerAxis as PerAxis
    from octavo.torch.torchao.configs import PerGroup as PerGroup
    from octavo.torch.torchao.configs import PerRow as PerRow
    from octavo.torch.torchao.configs import PerTensor as PerTensor
    from octavo.torch.torchao.quantize import quantize_ as quantize_
    from octavo.torch.tuning.target import TorchTarget as TorchTarget

_declarations()
del _torch, _declarations

__all__, __getattr__ = _lazy(
    __name__,
    {
        "octavo.torch.comparing.compare": "compare",
        "octavo.torch.export": "export_onnx",
        "octavo.torch.files.load": "load",
        "octavo.torch.files.save": "save",
        "octavo.torch.replace.mapping": "default_mapping",
        "octavo.torch.qconfig": "qconfig",
        "octavo.torch.quantize": "inspect quantize_dynamic report",
        "octavo.torch.torchao.configs": (
            "Int8DynamicActivationInt4WeightConfig Int8DynamicActivationInt8WeightConfig "
            "Int8DynamicActivationIntxWeightConfig IntxWeightOnlyConfig "
            "MappingType PerAxis PerGroup PerRow PerTensor"
        ),
        "octavo.torch.torchao.quantize": "quantize_",
        "octavo.torch.tuning.target": "TorchTarget",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
