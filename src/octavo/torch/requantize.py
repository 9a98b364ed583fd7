"""A weight that is written: its layer holds the new one from there on, or says that it cannot.

layer.weight.data += delta      ->  packed and scale of layer.weight + delta
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.kernels.packing import GROUP
from octavo.core.qtype import QType
from octavo.errors import NotTrainableError
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch.choice import HALVES, SchemeChoice
from octavo.torch.modules.dequantized import Dequantized
from octavo.torch.stand_ins import type_behind

_LOST = 0.5  # of a change's norm that may be lost to rounding: what is left of it is worth having


def prepare(layer: Any, name: str, values: Tensor) -> Callable[[], None]:
    """What has `layer` hold float `values` as its weight `name`; nothing is written before.

    Its buffers are then written in place, so that layers which share them follow. Raises
    NotTrainableError where too much of the change would be lost to rounding, ValueError for NaN,
    infinity and what the layer's dtype cannot hold.
    """
    before = getattr(layer, name)()
    if values.shape != before.shape:
        raise ValueError(
            f"{type(layer).__name__}.{name}: needs shape {list(before.shape)}, not "
            f"{list(values.shape)}"
        )
    if not values.isfinite().all():
        raise ValueError(f"{type(layer).__name__}.{name}: what was written holds NaN or infinity")
    change = _norm(values, before)
    if change == 0:
        return lambda: None
    made: Any = type_behind(type(layer))
    made = made.from_float(_Edited(layer, name, values), _choices(layer), None, name)
    if _norm(getattr(made, name)(), values) > _LOST * change:
        raise NotTrainableError(
            f"{type(layer).__name__}.{name}: most of what was written would be lost, as it is less "
            "than the steps of the layer's integers; change the float model (merge adapters into "
            "that one) and quantize it again"
        )
    pairs = [(layer._buffers[key], made._buffers[key]) for key in layer._parts(name)]
    if any(held is None and new is not None for held, new in pairs):
        raise NotTrainableError(
            f"{type(layer).__name__}.{name}: what was written needs zero points, which the layer "
            "does not have; change the float model and quantize it again"
        )

    def write() -> None:
        with torch.no_grad():
            for held, new in pairs:
                if held is not None:
                    held.zero_() if new is None else held.copy_(new)

    return write


class _Edited:
    """The float layer of which `layer` would be, were its weight `name` what is given."""

    def __init__(self, layer: nn.Module, name: str, values: Tensor) -> None:
        self._layer = layer
        self.__dict__[name] = values.detach()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._layer, name)
        return found() if isinstance(found, Dequantized) else found


def _norm(a: Tensor, b: Tensor) -> float:
    return float(torch.linalg.vector_norm(a.detach().double() - b.detach().double()))


def _choices(layer: Any) -> Any:
    """How the layer is held, as `from_float` takes it."""
    storage: Any = getattr(layer, "storage", None) or getattr(layer, "dtype", "int8")
    if isinstance(storage, list):  # of each layer of an RNN stack
        return [_choice(one) for one in storage]
    affine = getattr(layer, "affine", False) or bool(getattr(layer, "zero_points", ""))
    return _choice(storage, affine=affine, group=getattr(layer, "group", 0))


def _choice(storage: str, *, affine: bool = False, group: int = 0) -> Any:
    if storage == "float32":  # a recurrent layer that stayed float
        return None
    if storage in HALVES:
        return _Half(storage)
    weight, activation = WeightScheme(QType.parse(storage), symmetric=not affine), None
    if group:
        activation = ActivationScheme(granularity=Granularity.GROUP, group=GROUP)
    return SchemeChoice(Scheme(weight, activation))


@dataclass(frozen=True)
class _Half:
    """All that layers with weights of 16 bits ask of a choice."""

    storage: str
