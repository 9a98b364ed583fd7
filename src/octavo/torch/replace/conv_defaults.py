"""Which convolutions a preset quantizes in PyTorch: the rule of ONNX files, in modules' order.

    conv1, layer1.0.conv1, ..., fc        the first, and the last that would be int8, stay float
    depthwise, squeeze.fc1, project       behind a depthwise one: project; of a mean: squeeze.fc1

A module tells nothing of who calls whom, and a plan has no inputs to trace it with. Modules are
registered in the order of their calls in nearly every model; where one is not, a place is missed
or found too often, and a rule of the recipe says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from torch import nn

from octavo.recipe import Kind
from octavo.recipe.convolutions import Filters, Place, are_stem, gains_nothing
from octavo.torch.replace.inventory import ModuleLayer

_ASK = "a rule of the recipe that names it quantizes it"
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_POOLS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)
_ONE = (1, (1,), (1, 1))


def conv_reasons(
    parts: Sequence[ModuleLayer], modules: Mapping[str, nn.Module]
) -> dict[str, str | None]:
    """Say why each convolution should stay float, by its layer's name; None if it should not.

    `parts` are the layers of the model, in its order, `modules` its modules by name.
    """
    kinds = [part.layer.kind for part in parts]
    convs = [part for part, kind in zip(parts, kinds, strict=True) if kind is Kind.CONV]
    reasons = {part.layer.name: _unfit(part, modules[part.module]) for part in convs}
    wanted = [part for part in convs if reasons[part.layer.name] is None]
    transposed = sum(isinstance(module, _TRANSPOSED) for module in modules.values())
    linear = kinds.count(Kind.LINEAR) + kinds.count(Kind.ATTENTION)
    stem = are_stem(len(convs) + transposed, linear)
    signal = any(isinstance(module, nn.ConvTranspose1d) for module in modules.values())
    for part in wanted:
        if part is parts[0]:
            place: Place | None = Place.FIRST
        elif signal:
            place = Place.SIGNAL
        elif _is_gate(part, modules):
            place = Place.GATE
        elif _is_pointwise(part) and _is_depthwise(_before(part, parts, modules)):
            place = Place.SEPARABLE
        elif part is wanted[-1] and part is not wanted[0] and not stem:
            place = Place.LAST
        else:
            place = None
        reasons[part.layer.name] = None if place is None else place.reason(_ASK)
    return reasons


def _unfit(part: ModuleLayer, module: nn.Module) -> str | None:
    strides = getattr(module, "stride", ())
    groups = getattr(module, "groups", 1)
    return gains_nothing(Filters(_shape(part), groups, tuple(strides)), _ASK)


def _shape(part: ModuleLayer) -> tuple[int, ...]:
    (_, shape), *_ = part.layer.weights
    return shape


def _is_pointwise(part: ModuleLayer) -> bool:
    return all(size == 1 for size in _shape(part)[2:])


def _is_depthwise(part: ModuleLayer | None) -> bool:
    return part is not None and part.layer.kind is Kind.CONV and _shape(part)[1] == 1


def _before(
    part: ModuleLayer, parts: Sequence[ModuleLayer], modules: Mapping[str, nn.Module]
) -> ModuleLayer | None:
    """Return the layer before `part`, skipping gates; None where there is none."""
    before = parts[: next(i for i, other in enumerate(parts) if other is part)]
    return next((other for other in reversed(before) if not _is_gate(other, modules)), None)


def _is_gate(part: ModuleLayer, modules: Mapping[str, nn.Module]) -> bool:
    """Tell whether the parent of `part` takes the image's mean, as in squeeze-and-excitation."""
    if part.layer.kind is not Kind.CONV or not part.module or not _is_pointwise(part):
        return False
    parent = modules[part.module.rpartition(".")[0]]
    own = modules[part.module]
    before = takewhile(lambda child: child is not own, parent.children())
    return any(isinstance(child, _POOLS) and child.output_size in _ONE for child in before)
