"""Choices of weights by name, float layers quantized by them, and inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.core.kernels import WeightFormat
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch.hub.group_layers import scheme_of as held_as
from octavo.torch.layers.registry import covering
from octavo.torch.qconfig import (
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    per_channel_dynamic_qconfig,
)
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.weight_choice import SchemeChoice, WeightChoice
from tests.torch import tables

_TENSOR = WeightScheme(granularity=Granularity.TENSOR)
_GROUPS = ActivationScheme(granularity=Granularity.GROUP, group=128)
_SEARCHED = WeightScheme(granularity=Granularity.TENSOR, observer="histogram")
CHOICES: dict[str, WeightChoice] = {
    "default": SchemeChoice(Scheme()),
    "per tensor": SchemeChoice(Scheme(_TENSOR)),
    "affine": SchemeChoice(Scheme(WeightScheme(symmetric=False))),
    "groups": SchemeChoice(Scheme(WeightScheme(), _GROUPS)),
    "accurate": SchemeChoice(Scheme(WeightScheme(symmetric=False), _GROUPS)),
    "7 bits": SchemeChoice(Scheme(WeightScheme(reduce_range=True))),
    "histogram": SchemeChoice(Scheme(_SEARCHED)),
    "qconfig per tensor": QConfigChoice(default_dynamic_qconfig),
    "qconfig per channel": QConfigChoice(per_channel_dynamic_qconfig),
}
"""For weights that are multiplied in 8 bits."""
HALVES: dict[str, WeightChoice] = {
    "float16": tables.CHOICES["float16"],
    "qconfig float16": QConfigChoice(float16_dynamic_qconfig),
    "bfloat16": tables.CHOICES["bfloat16"],
}
FORMATS = ("int4-32", "int4-64-affine", "int4-128", "int8-32", "int8-128-affine")


def every(choices: Any) -> Any:
    """Parametrizes a test over choices by name."""
    return pytest.mark.parametrize("choice", list(choices))


def scheme_of(name: str, group: int | None = None) -> Scheme:
    """The scheme of a format; rows have one scale each (None), or one for each group."""
    return held_as(WeightFormat.parse(name), group=group or 0)


def choice_of(name: str) -> WeightChoice:
    if name in FORMATS:
        return SchemeChoice(scheme_of(name))
    return (tables.CHOICES | HALVES | CHOICES)[name]


def quantized(layer: nn.Module, choice: str = "default", **more: Any) -> Any:
    """The layer of Octavo's that stands for the float `layer`."""
    declared: Any = covering(layer)
    return declared.layer.from_float(layer, choice_of(choice), **more)


def rows(*shape: int, seed: int = 1) -> Tensor:
    """Normal numbers, in each row of another size: from 0.01 to 100."""
    torch.manual_seed(seed)
    return torch.randn(shape) * 10 ** torch.empty(*shape[:-1], 1).uniform_(-2, 2)


def near(found: Tensor, wanted: Tensor, share: float) -> None:
    """Each row differs by at most this share of its norm."""
    assert found.shape == wanted.shape
    error = (found - wanted).flatten(1).norm(dim=1)
    assert (error <= share * wanted.flatten(1).norm(dim=1)).all()
