"""Whether one layer can become what it is told to, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from octavo.recipe import Layer
from octavo.torch.choice import Choice
from octavo.torch.inventory import ROOT, Part
from octavo.torch.mapping import default_mapping, inherited, mapped_type, not_alike
from octavo.torch.modules.base import QuantizedModule
from octavo.torch.subclasses import refusal
from octavo.torch.users_own import check_target

READ_BY_FLOAT = "its MultiheadAttention stays float, and reads this weight itself"

_DTYPES = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True)
class Fit:
    """`target` takes the layer's place and holds it as `choice` says; `note` is what differs from
    what was asked. Or the `reason` why the layer stays float."""

    target: type | None = None
    choice: Choice | None = None
    note: str = ""
    reason: str = ""


def fitted(
    module: nn.Module,
    layer: Layer,
    choice: Choice,
    mapping: Mapping[type, type],
    *,
    named: bool = False,
) -> Fit:
    """What `layer`, which `module` holds, becomes where it is to be held as `choice` says.

    `named`: its own name or type was asked for, not that of others with it. Raises OptionError for
    a type in a user's `mapping` that makes nothing.
    """
    key = mapped_type(module, mapping)
    if key is None:
        base = inherited(module, mapping)
        return Fit(reason=not_alike(module, base) if base else _unmapped(module, layer))
    if layer.dtype not in _DTYPES:
        return Fit(reason=f"its weights are {layer.dtype}; needs one of {', '.join(_DTYPES)}")
    target = mapping[key]
    if issubclass(target, QuantizedModule):
        choice, note = target.adapt(choice)
        reason = target.refuses(module, choice) or refusal(module, key, target, named=named)
        return Fit(reason=reason) if reason else Fit(target, choice, note)
    check_target(target, layer.name)
    return Fit(target, choice)


def _unmapped(module: nn.Module, layer: Layer) -> str:
    ours = mapped_type(module, default_mapping())
    if ours is None:
        return f"Octavo has no quantized form of {layer.op}"
    return f"mapping has no {ours.__name__}; extend octavo.torch.default_mapping(), which has it"


def read_by(modules: Mapping[str, nn.Module], part: Part) -> str | None:
    """The name of the MultiheadAttention whose `out_proj` the layer is, None for all others.

    While that is float it reads this weight itself, so that one stays float with the other.
    `modules` are the model's, by name.
    """
    owner = part.module.rpartition(".")[0]
    if part.module and isinstance(modules[owner], nn.MultiheadAttention):
        return owner or ROOT
    return None
