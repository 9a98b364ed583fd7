"""Every way to hold an embedding table, and what its rows are then."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from octavo.core.qparams import QType
from octavo.recipe import PRESETS, Granularity, Scheme, WeightScheme
from octavo.torch.qconfig import (
    QConfig,
    default_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
)
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.qconfig.observers import PlaceholderObserver
from octavo.torch.weight_choice import SchemeChoice, WeightChoice


def _scheme(qtype: QType, *, symmetric: bool, **kwargs: Any) -> WeightChoice:
    return SchemeChoice(Scheme(WeightScheme(qtype, symmetric=symmetric, **kwargs), None))


_BFLOAT16 = QConfig(activation=None, weight=PlaceholderObserver.with_args(dtype="bfloat16"))
CHOICES: dict[str, WeightChoice] = {
    "int8": _scheme(QType.INT8, symmetric=True),
    "int8 affine": _scheme(QType.INT8, symmetric=False),
    "uint8": _scheme(QType.UINT8, symmetric=True),
    "uint8 affine": _scheme(QType.UINT8, symmetric=False),
    "uint8 per tensor": _scheme(QType.UINT8, symmetric=False, granularity=Granularity.TENSOR),
    "float qparams": QConfigChoice(float_qparams_weight_only_qconfig),
    "qconfig per tensor": QConfigChoice(default_dynamic_qconfig),
    "float16": SchemeChoice(PRESETS["float16"].default),
    "bfloat16": QConfigChoice(_BFLOAT16),
}


def stated(layer: Any) -> Tensor:
    """The rows float32 that the buffers say, all of them: `(table - zero_point) * scale`."""
    table = layer.integers().float()
    if layer.storage in ("float16", "bfloat16"):
        return table
    zero = 0 if layer.zero_point is None else layer.zero_point.float()[:, None]
    return (table - zero) * layer.scale[:, None]
