"""Encoder layers of transformers' BERT family as one chain of kernels.

    h = norm(x + out(attention(q(x), k(x), v(x))))
    y = norm(h + down(activation(up(h))))

The layers are those of the model, and compute what they compute elsewhere; what is saved are the
modules, views and small operators between them, which on short inputs take several times as long as
the kernels. A layer is run so only where that means the same as its own forward, and where the two
agree on random inputs when its type is first seen: another release of transformers may compute
something else. A hook, a patched forward, training mode, gradients, autocast, tracing, another
implementation of attention than sdpa, or an argument that is not known here: each leaves the call
to the layer's own forward.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from octavo.torch import ops
from octavo.torch.encoder_plan import Plan, plan_of
from octavo.torch.fusion import FUSED

# What layers of an encoder are given and pass on unread.
_NEUTRAL = frozenset({"position_ids", "use_cache", "output_hidden_states", "return_dict"})
_CLOSE = 0.02  # of the norm; a rounding that falls the other way makes some thousandths


def fuse_encoder_layers(model: nn.Module) -> list[str]:
    """Lets layers run as one chain, in place; returns their names."""
    found = []
    for name, module in list(model.named_modules()):
        plan = None if FUSED in module.__dict__ else plan_of(module)
        if plan is not None:
            kind = type(module)
            if kind not in _signatures:
                _signatures[kind] = inspect.signature(module.forward)
            chain = partial(run_layer, Held(module, plan))  # torch.export knows only partials
            chain.__dict__["__signature__"] = _signatures[kind]
            module.__dict__[FUSED] = chain
            found.append(name)
    return found


_signatures: WeakKeyDictionary[type, inspect.Signature] = WeakKeyDictionary()


def run_layer(held: Held, *args: Any, **kwargs: Any) -> Any:
    """The forward of a layer: the chain where it may be, else its type's own."""
    x = args[0] if args else None
    if isinstance(x, Tensor) and ops.direct(x) and x.dtype is torch.float32 and x.dim() == 3:
        mask, plain = _mask(args, kwargs)
        plain = plain and not torch.is_autocast_enabled("cpu")
        plan = held.ready() if plain else None
        if plan is not None and plan.takes(x, mask):
            return plan.run(x, mask)
    return type(held.layer).forward(held.layer, *args, **kwargs)


class Held:
    """A layer with what is known of its parts; copies and files hold the layer alone."""

    def __init__(self, layer: nn.Module, plan: Plan | None = None) -> None:
        self.layer = layer
        self._plan = plan

    def __getstate__(self) -> dict[str, Any]:
        return {"layer": self.layer, "_plan": None}  # a plan holds the parts' own dicts

    def ready(self) -> Plan | None:
        """The plan for the layer as it is now; None where its own forward has to run."""
        plan = self._plan
        if plan is None or not plan.holds():
            plan = self._plan = plan_of(self.layer)
            if plan is None or not plan.holds():
                return None
        kind = type(self.layer)
        if kind not in _agreeing:
            _agreeing[kind] = _agrees(self.layer, plan)
        return plan if _agreeing[kind] else None


_agreeing: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def _mask(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor | None, bool]:
    """The attention mask, and whether the call says nothing else that matters."""
    plain = all(value is None for value in args[2:]) and all(
        value is None or value is False or name in _NEUTRAL
        for name, value in kwargs.items()
        if name != "attention_mask"
    )
    return (args[1] if len(args) > 1 else kwargs.get("attention_mask")), plain


def _agrees(layer: nn.Module, plan: Plan) -> bool:
    """Whether the chain computes what the layer's own forward does, with and without a mask."""
    x = torch.randn(2, 5, plan.out.out_features, generator=torch.Generator().manual_seed(0))
    padded = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    padded[1, :, :, 3:] = False
    for mask in (None, padded):
        try:
            own = type(layer).forward(layer, x, mask)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False
        if not isinstance(own, Tensor) or own.shape != x.shape:
            return False
        if not (own - plan.run(x, mask)).norm() < _CLOSE * own.norm():
            return False
    return True
