"""Types of a user's own in `mapping`: made as torch.ao makes them, with a qconfig to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from octavo.errors import OptionError
from octavo.recipe import Granularity
from octavo.torch.dynamic_type import own_type
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.qconfig import (
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    QConfig,
    default_dynamic_qconfig,
)
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.replace.mapping import mapped_type
from octavo.torch.weight_choice import HALVES, SchemeChoice, WeightChoice

QUANTIZED = {name: getattr(torch, f"q{name}", name) for name in ("int8", "uint8")}
"""The dtypes that torch.ao's observers have, while torch has them."""


def is_custom(target: type) -> bool:
    """Tell whether `target` is none of Octavo's layers."""
    return not issubclass(target, QuantizedModule)


def check_target(target: Any, where: str) -> None:
    """Raise OptionError where `target` has no from_float; `where` names what it is for."""
    if not hasattr(target, "from_float"):
        raise OptionError(
            f"mapping: {target.__name__} (for {where}) has no classmethod from_float(module)"
        )


def make_custom(target: Any, old: nn.Module, choice: WeightChoice) -> nn.Module:
    """Return what `target.from_float` makes of `old`, whose `qconfig` is set to `choice`."""
    old.qconfig = qconfig_of(choice)
    if target.__module__.startswith("torch.ao."):
        old.qconfig = _with_quantized_dtype(old.qconfig)
    made: nn.Module = target.from_float(old)
    return made


def custom_targets(
    model: nn.Module, chosen: Mapping[str, WeightChoice], mapping: Mapping[type, type]
) -> dict[str, type]:
    """Return, by name, the types that replace modules in `chosen`, which hold no layers' weights.

    Those are containers, norms, activations: only a user's own type can stand for them.
    """
    found = {}
    modules = dict(model.named_modules())
    for name in chosen:
        key = mapped_type(modules[name], mapping)
        if key is not None and is_custom(mapping[key]):
            check_target(mapping[key], name)
            found[name] = mapping[key]
    return found


def unused_types(
    model: nn.Module, mapping: Mapping[type, type], made: Mapping[str, nn.Module]
) -> list[str]:
    """Return the names of keys in `mapping` that the model has, but whose own type none became."""
    present = {own_type(module) for module in model.modules()}
    became = {type(module) for module in made.values()}
    return [
        key.__name__
        for key, target in mapping.items()
        if is_custom(target) and key in present and target not in became
    ]


def qconfig_of(choice: WeightChoice) -> QConfig:
    """Return the qconfig that says what `choice` does, as far as qconfigs can."""
    if isinstance(choice, QConfigChoice):
        return choice.qconfig
    assert isinstance(choice, SchemeChoice)
    assert choice.scheme.weight is not None
    weight = choice.scheme.weight
    if choice.storage in HALVES:
        half = PlaceholderObserver.with_args(dtype=choice.storage)
        return QConfig(PlaceholderObserver.with_args(dtype=choice.storage, is_dynamic=True), half)
    per_channel = weight.granularity is not Granularity.TENSOR
    kind: Any = PerChannelMinMaxObserver if per_channel else MinMaxObserver
    if weight.observer == "histogram" and not per_channel:
        kind = HistogramObserver
    scheme = "symmetric" if weight.symmetric else "affine"
    return default_dynamic_qconfig._replace(
        weight=kind.with_args(
            dtype=QUANTIZED[choice.storage],
            qscheme=getattr(torch, f"per_{'channel' if per_channel else 'tensor'}_{scheme}"),
            reduce_range=weight.reduce_range,
        ),
    )


def _with_quantized_dtype(qconfig: Any) -> Any:
    """Return a qconfig for torch.ao's layers, which take torch.qint8 alone and not torch.int8."""
    made = qconfig.weight() if isinstance(qconfig, QConfig) and qconfig.weight else None
    name = str(getattr(made, "dtype", "")).removeprefix("torch.")
    if name not in QUANTIZED:
        return qconfig
    return qconfig._replace(weight=qconfig.weight.with_args(dtype=QUANTIZED[name]))
