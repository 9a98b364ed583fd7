"""QConfigs: which observers a layer's activations and weights get. As in torch.ao, and named so.

A qconfig of `torch.ao.quantization` is accepted wherever one of these is, while there are any.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from octavo.errors import OptionError
from octavo.torch.qconfig.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

__all__ = [
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "QConfigDynamic",
    "default_dynamic_qconfig",
    "float16_dynamic_qconfig",
    "float_qparams_weight_only_qconfig",
    "per_channel_dynamic_qconfig",
]


class _Sides(NamedTuple):
    activation: Any
    weight: Any


class QConfig(_Sides):
    """(activation, weight): callables that make an observer, or None for the default.

        QConfig(
            activation=PlaceholderObserver.with_args(dtype="uint8", is_dynamic=True),
            weight=PerChannelMinMaxObserver.with_args(
                dtype="int8", qscheme="per_channel_symmetric"
            ),
        )

    Raises OptionError for an observer instance: every layer has to get its own.
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        """Check both sides, `activation` and `weight`, and make the qconfig."""
        for side, value in (("activation", activation), ("weight", weight)):
            _check(cls.__name__, side, value)
        return super().__new__(cls, activation, weight)


class QConfigDynamic(QConfig):
    """A QConfig of which one says the weight only; activations are quantized at run time."""

    __slots__ = ()

    def __new__(
        cls, activation: Any = torch.nn.Identity, weight: Any = torch.nn.Identity
    ) -> QConfigDynamic:
        """Check both sides, `activation` and `weight`, and make the qconfig."""
        made = super().__new__(cls, activation, weight)
        assert isinstance(made, cls)
        return made


def _check(kind: str, side: str, value: Any) -> None:
    if isinstance(value, torch.nn.Module):
        name = type(value).__name__
        raise OptionError(
            f"{kind}: {side} is an instance of {name}; pass the class, {name}, or "
            f"{name}.with_args(...), so that every layer gets its own"
        )
    if value is not None and not callable(value):
        raise OptionError(
            f"{kind}: {side} {value!r} makes no observer; pass an observer class such as "
            "MinMaxObserver, MinMaxObserver.with_args(...), or None for the default"
        )


_dynamic = PlaceholderObserver.with_args(dtype="uint8", quant_min=0, quant_max=255, is_dynamic=True)

default_dynamic_qconfig = QConfig(
    activation=_dynamic,
    weight=MinMaxObserver.with_args(dtype="int8", qscheme="per_tensor_symmetric"),
)
"""int8 weights with one scale."""

per_channel_dynamic_qconfig = QConfig(
    activation=_dynamic,
    weight=PerChannelMinMaxObserver.with_args(dtype="int8", qscheme="per_channel_symmetric"),
)
"""int8 weights with a scale for each output channel."""

float16_dynamic_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype="float16", is_dynamic=True),
    weight=PlaceholderObserver.with_args(dtype="float16"),
)
"""float16 weights, float activations."""

float_qparams_weight_only_qconfig = QConfig(
    activation=PlaceholderObserver,
    weight=PerChannelMinMaxObserver.with_args(
        dtype="uint8", qscheme="per_channel_affine_float_qparams", ch_axis=0
    ),
)
"""uint8 weights with a scale and a float zero point for each row: for embeddings."""
