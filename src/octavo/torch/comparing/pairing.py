"""Which layers of a float model are quantized in another, and how each pair is watched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from octavo.errors import AlreadyQuantizedError, ModelError, OptionError
from octavo.recipe import Layer
from octavo.torch.dynamic_type import own_type
from octavo.torch.layers.attention import QuantizedMultiheadAttention
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.recurrent import QuantizedRecurrent
from octavo.torch.quantize import check_float
from octavo.torch.replace.inventory import ModuleLayer, inventory, weights_of
from octavo.torch.run.watched import (
    Array,
    Watched,
    WatchedAttention,
    WatchedLayer,
    WatchedStack,
    float_arrays,
)


@dataclass(frozen=True)
class ModulePair:
    """Two modules of one name; `layers` are in the order of `watched`, None for float ones."""

    name: str
    layers: tuple[Layer | None, ...]
    watched: Watched


@dataclass(frozen=True)
class ModulePairing:
    """All pairs with a quantized layer, and how many layers are float in both models."""

    pairs: tuple[ModulePair, ...]
    left_float: int


def check_models(floating: object, quantized: object) -> None:
    """Raise OptionError for what is no module, AlreadyQuantizedError for a quantized `floating`."""
    if not isinstance(quantized, nn.Module):
        raise OptionError(f"quantized_module is a {type(quantized).__name__}, no torch.nn.Module")
    try:
        check_float(floating)
    except AlreadyQuantizedError as error:
        raise AlreadyQuantizedError(
            f"float_module holds quantized layers ({error}); the float model comes first, then the "
            "quantized one"
        ) from error


def pair_up(floating: nn.Module, quantized: nn.Module) -> ModulePairing:
    """Pair the layers of the float model with the quantized ones of the same names.

    Raises ModelError where the two do not belong together or nothing is quantized.
    """
    parts = inventory(floating)
    theirs, ours = dict(floating.named_modules()), dict(quantized.named_modules())
    _refuse_others(parts, ours, quantized)
    by_module: dict[str, list[ModuleLayer]] = {}
    for part in parts:
        by_module.setdefault(part.module, []).append(part)
    pairs = []
    for name, some in by_module.items():
        outer = ours.get(name.rpartition(".")[0])
        if name.endswith("out_proj") and isinstance(outer, QuantizedMultiheadAttention):
            continue  # a part of the attention around it
        pair = _pair(name, some, by_module, theirs[name], ours[name])
        if pair is not None:
            pairs.append(pair)
    found = sum(layer is not None for pair in pairs for layer in pair.layers)
    if not found:
        raise ModelError(
            f"quantized_module ({type(quantized).__name__}) holds no quantized layers: quantize it "
            "first with octavo.torch.quantize_dynamic"
        )
    return ModulePairing(tuple(pairs), len(parts) - found)


def _pair(
    name: str,
    parts: list[ModuleLayer],
    by_module: dict[str, list[ModuleLayer]],
    theirs: Any,
    ours: Any,
) -> ModulePair | None:
    if not is_quantized(theirs, ours):
        return None
    own = [part.layer for part in parts]
    if isinstance(ours, QuantizedMultiheadAttention) and isinstance(theirs, nn.MultiheadAttention):
        last = by_module.get(f"{name}.out_proj".removeprefix("."))
        is_held = last and is_quantized(theirs.out_proj, ours.out_proj)
        output = last[0].layer if last and is_held else None
        return ModulePair(name, (own[0], output), WatchedAttention(theirs, ours))
    if isinstance(ours, QuantizedRecurrent) and len(parts) > 1:
        layers = tuple(
            None if storage == "float32" else layer
            for layer, storage in zip(own, ours.storage, strict=True)
        )
        return ModulePair(name, layers, WatchedStack(theirs, ours))
    return ModulePair(name, (own[0],), WatchedLayer(ours))


def float_weights(floating: nn.Module, layer: Layer) -> Iterator[Array]:
    """Yield the layer's weights in the float model, one by one."""
    for name, _ in layer.weights:
        module, _, own = name.rpartition(".")
        yield from float_arrays(weights_of(floating.get_submodule(module))[own]).values()


def is_quantized(theirs: nn.Module, ours: nn.Module) -> bool:
    """Tell whether `ours` is another module than the float one of its name: ours, or anybody's."""
    return isinstance(ours, QuantizedModule) or own_type(ours) is not own_type(theirs)


def _refuse_others(
    parts: list[ModuleLayer], ours: dict[str, nn.Module], quantized: nn.Module
) -> None:
    lacking = [part.layer.name for part in parts if part.module not in ours]
    if lacking:
        raise ModelError(
            f"quantized_module ({type(quantized).__name__}) has no layer {lacking[0]!r} "
            f"({len(lacking)} of {len(parts)} of the float model's are missing): they do not "
            "belong together. Give the float model that the quantized one was made from"
        )
