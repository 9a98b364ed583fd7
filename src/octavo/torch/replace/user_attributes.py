"""What a quantized layer takes over from the float one: hooks, attributes, a subclass's methods.

class Scaled(nn.Linear):          named or mapped: a QuantizedLinear that is a Scaled too
    gain = property(...)          else it stays float: what only prints otherwise is quantized
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from octavo.errors import listed
from octavo.torch.dynamic_type import make_dynamic_type, own_type, set_type
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.replace.mapping import default_mapping, inherited, is_recognized

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)

# Of a class, what it has for itself or what only prints, makes or fills it.
_PLAIN = frozenset(
    "__module__ __doc__ __qualname__ __init__ __repr__ __annotations__ __dict__ __weakref__ "
    "__parameters__ __orig_bases__ __firstlineno__ __static_attributes__ __annotate__ "
    "__annotate_func__ __annotations_cache__ __abstractmethods__ _abc_impl __constants__ __slots__ "
    "__init_subclass__ extra_repr _get_name reset_parameters".split()
)
_WEIGHTS = (
    "weight",
    "bias",
    "in_proj",
    "q_proj",
    "k_proj",
    "v_proj",
    "_flat_weight",
    "_all_weight",
)
_BUFFERS = ("packed", "scale", "zero_point", "blocks_", "table")  # of quantized layers
_OURS = ("qconfig", "out_proj", "parametrizations")  # gone afterwards, or a layer of its own


def carry_hooks(old: nn.Module, new: nn.Module) -> None:
    """Give `new` the forward hooks of `old`, in their order.

    They are the same dicts, so that a handle which removes a hook of `old` removes it here too.
    """
    for name in _HOOKS:
        if getattr(new, name):
            getattr(new, name).update(getattr(old, name))
        else:
            new.__dict__[name] = getattr(old, name)


def made_by_hooks(module: nn.Module) -> dict[str, Tensor]:
    """Return, by name, tensors that hooks make from others before each call, as in eval mode.

    Those are weights under the older torch.nn.utils.weight_norm and spectral_norm, and whatever
    torch.nn.utils.prune masks.
    """
    return {name: value for _, name, value in _made(module)}


def _made(module: nn.Module) -> list[tuple[int, str, Tensor]]:
    found = []
    with torch.no_grad():
        for key, hook in module._forward_pre_hooks.items():
            if isinstance(hook, WeightNorm):
                found.append((key, hook.name, hook.compute_weight(module)))
            elif isinstance(hook, SpectralNorm):
                found.append((key, hook.name, hook.compute_weight(module, False)))
            elif isinstance(hook, BasePruningMethod):
                found.append((key, hook._tensor_name, hook.apply_mask(module)))
    return found


def settle_weight(module: nn.Module) -> str:
    """Compute for good what hooks make before each call, and remove these hooks.

    The quantized weight does not follow its parts any more. Returns what was done, in words.
    """
    gone = []
    for key, name, value in _made(module):
        gone.append(type(module._forward_pre_hooks.pop(key)).__name__)
        setattr(module, name, value)
    return f"{' and '.join(gone)} was applied once; its hook is gone" if gone else ""


def additions(module: nn.Module, base: type) -> list[str]:
    """Name methods, class attributes, parameters, buffers and children beyond those of `base`.

    Plain attributes of the module itself are left out: a quantized layer has them in any case.
    """
    kind = own_type(module)
    classes = [c for c in kind.__mro__ if c not in base.__mro__]
    found = [name for c in reversed(classes) for name in vars(c) if name not in _PLAIN]
    return list(dict.fromkeys([*found, *_held(module)]))


def refuse_subclass(module: nn.Module, key: type, target: Any, *, named: bool) -> str:
    """Say why `module`, under `key` of a mapping, cannot become a `target`; "" if it can.

    `named`: the module was asked for by its own name or type.
    """
    if is_recognized(key):  # such a module has nothing to keep
        return ""
    kind, base = own_type(module), _base(module)
    own = [] if named or kind is key else additions(module, key)
    if own:
        return (
            f"{kind.__name__} has {_some(own)} beyond what {key.__name__} has, which would be lost "
            "by default; name the layer or its type in qconfig_spec, or in a rule of a recipe, and "
            "it is quantized and keeps it"
        )
    kept = additions(module, base)
    ours = [c for c in target.__mro__ if c not in nn.Module.__mro__]
    taken = {*target.CONFIG}.union(*map(vars, ours))
    clash = [n for n in (*kept, *_attributes(module, base)) if n in taken or n.startswith(_BUFFERS)]
    if clash:
        return (
            f"{kind.__name__} has {_some(clash)}, and {target.__name__} needs that name for "
            "itself; rename it"
        )
    if kept and kind is not base and kept_type(target, kind) is target:
        return (
            f"{kind.__name__} has {_some(kept)}, and no quantized layer can be of that type, which "
            "has a metaclass or ways to be copied of its own"
        )
    return ""


def keep_own(old: nn.Module, new: nn.Module) -> None:
    """Give `new`, the replacement of `old`, what `old` has beyond its base type.

    That is attributes, further tensors and children, and where there is more the methods and the
    type.
    """
    if isinstance(old, QuantizedModule):  # empty, of a parent that was made before
        return
    base = _base(old)
    if is_recognized(base):
        return
    for name in _attributes(old, base):
        new.__dict__[name] = old.__dict__[name]
    for name in _held(old):
        for held in ("_parameters", "_buffers", "_modules"):
            if name in old.__dict__[held]:
                new.__dict__[held][name] = old.__dict__[held][name]
    new._non_persistent_buffers_set.update(old._non_persistent_buffers_set)
    kind = own_type(old)
    if kind is not base and additions(old, base):
        set_type(new, kept_type(type(new), kind))


def kept_type(target: Any, kind: Any) -> type:
    """Return a subclass of `target` that is a `kind` too, and has what only `kind` has."""
    return make_dynamic_type(target, {}, kept_type, (target, kind), also=kind)


def _base(module: nn.Module) -> type:
    return inherited(module, default_mapping()) or own_type(module)


def _held(module: nn.Module) -> list[str]:
    """Name the parameters, buffers and children that are no weights of torch's layers."""
    own = module.__dict__
    names = [*own["_parameters"], *own["_buffers"], *own["_modules"]]
    return [name for name in names if not name.startswith(_WEIGHTS) and name not in _OURS]


def _attributes(module: nn.Module, base: type) -> list[str]:
    """Return the names of attributes of `module` that `base`, torch's layer, does not have."""
    usual = _usual(base)
    return [
        name
        for name in module.__dict__
        if name not in usual and not name.startswith(_WEIGHTS) and name not in _OURS
    ]


@cache
def _usual(base: Any) -> frozenset[str]:
    """Return the names of the attributes of `base`, one of torch's layers."""
    with torch.device("meta"):
        for sizes in ((1, 1), (1, 1, 1)):
            try:
                return frozenset(vars(base(*sizes)))
            except TypeError:
                continue
    return frozenset(vars(nn.Module()))


def _some(names: list[str]) -> str:
    return listed([f"`{name}`" for name in names], 3)
