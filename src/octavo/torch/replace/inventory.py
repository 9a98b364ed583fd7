"""The layers of a PyTorch model: every module that holds weights, in the model's order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from octavo.recipe import Kind, Layer
from octavo.torch.dynamic_type import own_type
from octavo.torch.layers.fused_experts import is_fused_experts
from octavo.torch.layers.registry import covering

ROOT = "(model)"
"""What the model itself is called where it is a layer."""


@dataclass(frozen=True)
class ModuleLayer:
    """One layer and where it is: the dotted `module` that holds it, and its place in a stack.

    `held` has for each of its weights what tells it from others, and its bytes.
    """

    layer: Layer
    module: str
    index: int | None = None
    held: tuple[tuple[int, int], ...] = ()


def inventory(model: nn.Module) -> list[ModuleLayer]:
    """List every module with weights of two axes or more, and each layer of an RNN stack.

    A module that stands in several places is listed once, under its first name.
    """
    parts: list[ModuleLayer] = []
    users: dict[int, list[str]] = defaultdict(list)
    held: list[list[int]] = []
    for name, module in model.named_modules():
        if isinstance(module, ParametrizationList):
            continue  # counted where it is used
        for part, weights in _parts(name, module):
            parts.append(part)
            held.append([id(w) for w in weights])
            for weight in weights:
                users[id(weight)].append(part.layer.name)
    return [
        replace(part, layer=replace(part.layer, shares_with=_others(part.layer.name, ids, users)))
        for part, ids in zip(parts, held, strict=True)
    ]


def own_bytes(part: ModuleLayer, counted: set[Hashable], kind: object = None) -> int:
    """Count the bytes of the layer's weights not `counted` yet for `kind`, and mark them so."""
    new = {key: size for key, size in part.held if (key, kind) not in counted}
    counted.update((key, kind) for key in new)
    return sum(new.values())


def vectors(model: nn.Module) -> dict[str, list[str]]:
    """Return modules with weights of one axis alone (norms and the like), by types' names."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        own = [p for p in module._parameters.values() if p is not None]
        if own and all(p.dim() <= 1 for p in own):
            found[own_type(module).__name__].append(name or ROOT)
    return dict(found)


def _others(name: str, ids: list[int], users: dict[int, list[str]]) -> tuple[str, ...]:
    return tuple(sorted({user for i in ids for user in users[i]} - {name}))


def _parts(name: str, module: nn.Module) -> Iterator[tuple[ModuleLayer, list[Tensor]]]:
    weights = weights_of(module)
    if not weights:
        return
    kind = kind_of(module)
    if isinstance(module, nn.RNNBase) and module.num_layers > 1:
        for index in range(module.num_layers):
            suffixes = (f"_l{index}", f"_l{index}_reverse")
            some = {k: w for k, w in weights.items() if k.endswith(suffixes)}
            yield _part(f"{name}.l{index}".removeprefix("."), name, module, kind, some, index)
        return
    yield _part(name or ROOT, name, module, kind, weights, None)


def _part(
    name: str,
    module_name: str,
    module: nn.Module,
    kind: Kind,
    weights: dict[str, Tensor],
    index: int | None,
) -> tuple[ModuleLayer, list[Tensor]]:
    shapes = tuple(
        (f"{module_name}.{k}".removeprefix("."), tuple(w.shape)) for k, w in weights.items()
    )
    declared = covering(module)
    multiplied = declared is not None and kind not in (Kind.EMBEDDING, Kind.CONV)
    axes = 0 if declared is None else declared.macs_axes
    layer = Layer(
        name,
        kind,
        own_type(module).__name__,
        shapes,
        sum(w.numel() * w.element_size() for w in weights.values()),
        sum(prod(shape[-axes:]) for _, shape in shapes) if multiplied else None,
        str(next(iter(weights.values())).dtype).removeprefix("torch."),
    )
    held = tuple((id(w), w.nbytes) for w in weights.values())
    computed = parametrized(module)  # and gone when this returns: nobody else has them
    shared = [w for k, w in weights.items() if k not in computed]
    return ModuleLayer(layer, module_name, index, held), shared


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the weights, of two axes or more, of `module` without its children, by name.

    A parametrized or normalized weight counts as what it computes.
    """
    found: dict[str, Tensor] = {
        name: p for name, p in module._parameters.items() if p is not None and p.dim() > 1
    }
    if is_fused_experts(module):
        return {name: p for name, p in found.items() if not name.endswith("_bias")}
    for name in parametrized(module):
        value = _computed(module, name)
        if value.dim() > 1:
            found[name] = value
    plain = {k: v for k, v in module.__dict__.items() if isinstance(v, Tensor) and v.dim() > 1}
    for name, value in plain.items():
        # torch.nn.utils.weight_norm and its like: the weight is made from these parameters.
        made_of = [
            f"{name}{suffix}" for suffix in ("_g", "_v", "_orig") if f"{name}{suffix}" in found
        ]
        recurrent = isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and name.startswith("weight_")
        if made_of or name == "weight" or recurrent:
            found = {k: p for k, p in found.items() if k not in made_of}
            found[name] = value
    return found


def parametrized(module: nn.Module) -> tuple[str, ...]:
    """Return the names of what torch.nn.utils.parametrize computes in `module`."""
    return tuple(getattr(module, "parametrizations", ()))


def _computed(module: nn.Module, name: str) -> Tensor:
    """Compute a parametrized weight in eval mode: in training, spectral_norm changes its state."""
    parts = list(module.parametrizations[name].modules())
    modes = [part.training for part in parts]
    try:
        for part in parts:
            part.training = False
        with torch.no_grad():
            return getattr(module, name)
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


def kind_of(module: nn.Module) -> Kind:
    """Return the Kind of a module; OTHER where Octavo knows only that it holds weights."""
    declared = covering(module)
    return Kind.OTHER if declared is None else declared.kind


def is_transposed(module: nn.Module) -> bool:
    """Tell whether a module is Hugging Face's Conv1D: a linear layer whose weight is [in, out]."""
    kind = own_type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"
