"""A weight that is written: its layer holds the new one from there on, or says that it cannot.

layer.weight.data += delta      ->  packed and scale of layer.weight + delta
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.kernels import WeightFormat
from octavo.core.qparams import QType
from octavo.errors import NotTrainableError
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.torch import ops
from octavo.torch.dynamic_type import type_behind
from octavo.torch.layers.dequantized import Dequantized
from octavo.torch.weight_choice import HALVES, SchemeChoice

_LOST = (
    0.5  # of a channel's change, in norm, that may be lost to rounding: the rest is worth having
)
_NOISE = 1e-6  # of a channel's norm: what arithmetic in float32 changes by itself


def prepare(layer: Any, name: str, values: Tensor) -> Callable[[], None]:
    """Return a function that has `layer` hold float `values` as its weight `name`.

    The layer's buffers are written in place when the function is called, not before, so that layers
    which share them follow. Raises NotTrainableError where too much of the change would be lost to
    rounding, ValueError for NaN, infinity and what the layer's dtype cannot hold.
    """
    before = getattr(layer, name)()
    if values.shape != before.shape:
        raise ValueError(
            f"{type(layer).__name__}.{name}: needs shape {list(before.shape)}, not "
            f"{list(values.shape)}"
        )
    if not values.isfinite().all():
        raise ValueError(f"{type(layer).__name__}.{name}: what was written holds NaN or infinity")
    if bool((values == before).all()):
        return lambda: None
    made: Any = type_behind(type(layer))
    made = made.from_float(_Edited(layer, name, values), _choices(layer), None, name)
    _check_kept(layer, name, before, values, getattr(made, name)())
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
        # Where this runs below autograd, as in a write to `layer.weight`, no version counts it.
        ops.count_load()

    return write


class _Edited:
    """The float layer of which `layer` would be, were its weight `name` what is given."""

    def __init__(self, layer: nn.Module, name: str, values: Tensor) -> None:
        self._layer = layer
        self.__dict__[name] = values.detach()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._layer, name)
        return found() if isinstance(found, Dequantized) else found


def _check_kept(layer: Any, name: str, before: Tensor, wanted: Tensor, held: Tensor) -> None:
    """Raise NotTrainableError where too much of what a channel changes by would be lost."""
    before, wanted, held = (
        t.detach().double().movedim(layer._CHANNELS, 0).flatten(1) for t in (before, wanted, held)
    )
    change, lost = _norms(wanted - before), _norms(held - wanted)
    counts = change > _NOISE * _norms(wanted)
    if not counts.any():  # all that was written is as little as noise
        counts = change > 0
    part = torch.where(counts, lost / change, 0.0)
    worst = int(part.argmax())
    if part[worst] <= _LOST:
        return
    raise NotTrainableError(
        f"{type(layer).__name__}.{name}: {min(float(part[worst]), 1.0):.0%} of what was written "
        f"into channel {worst} would be lost, as it is less than the steps of the layer's "
        "integers. An adapter of PEFT works unmerged: leave merge_and_unload out. Or change the "
        "float model (load it without quantization, merge_and_unload, save_pretrained) and "
        "quantize that"
    )


def _norms(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1)


def _choices(layer: Any) -> Any:
    """Return how the layer is held, as `from_float` takes it."""
    storage: Any = getattr(layer, "storage", None) or getattr(layer, "dtype", "int8")
    if isinstance(storage, list):  # of each layer of an RNN stack
        return [_choice(one) for one in storage]
    affine = getattr(layer, "affine", False) or bool(getattr(layer, "zero_points", ""))
    held = WeightFormat.parse(getattr(layer, "format", WeightFormat.INT8.value))
    return _choice(storage, affine=affine, group=getattr(layer, "group", 0), held=held)


def _choice(
    storage: str, *, affine: bool = False, group: int = 0, held: WeightFormat = WeightFormat.INT8
) -> Any:
    if storage == "float32":  # a recurrent layer that stayed float
        return None
    if storage in HALVES:
        return _Half(storage)
    weight = WeightScheme(QType.parse(storage), symmetric=not affine)
    if held.minimum:
        raise NotTrainableError(
            f"weights in the format {held.value} are as their file has them, and nothing is "
            "rounded to it; change the float model and quantize that"
        )
    if held.group:
        weight = WeightScheme(
            QType.INT4 if held.bits == 4 else QType.INT8,
            Granularity.BLOCK,
            symmetric=not held.affine,
            observer="search",
            block=held.group,
        )
    activation = ActivationScheme(granularity=Granularity.GROUP, group=group) if group else None
    return SchemeChoice(Scheme(weight, activation))


@dataclass(frozen=True)
class _Half:
    """All that layers with weights of 16 bits ask of a choice."""

    storage: str

    @property
    def held(self) -> str:
        return self.storage
