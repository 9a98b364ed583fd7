"""Hooks of a float layer on its way to the quantized one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


def carry_hooks(old: nn.Module, new: nn.Module) -> None:
    """Gives `new` the forward hooks of `old`, in their order.

    They are the same dicts, so that a handle which removes a hook of `old` removes it here too.
    """
    for name in _HOOKS:
        if getattr(new, name):
            getattr(new, name).update(getattr(old, name))
        else:
            new.__dict__[name] = getattr(old, name)


def made_by_hooks(module: nn.Module) -> dict[str, Tensor]:
    """Tensors of `module` that a hook makes from others before each call, as in eval mode.

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
    """Computes for good what hooks make before each call, and takes these off.

    The quantized weight does not follow its parts any more. Returns what was done, in words.
    """
    gone = []
    for key, name, value in _made(module):
        gone.append(type(module._forward_pre_hooks.pop(key)).__name__)
        setattr(module, name, value)
    return f"{' and '.join(gone)} was applied once; its hook is gone" if gone else ""
