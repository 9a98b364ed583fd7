"""Encoder layers of `transformers` as one chain of kernels, where that computes the same.

What is left out are the modules, views and small operators between the kernels, which on short
inputs take several times as long as those. A chain takes the place of a layer's own forward in
calls that it knows throughout. Hooks, other code or other parts in the layer, training mode,
gradients, autocast, tracing, another implementation of attention than sdpa, an argument that is not
known here: each leaves the call to the layer's own forward. Before a chain runs for the first time,
both compute random inputs, as another release of transformers may compute something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from octavo.torch import ops
from octavo.torch.blocks.chain_plan import ChainPlan, ChainState, plan_of
from octavo.torch.blocks.dynamic_type import has_dynamic_type, make_dynamic_type, set_type

# What layers of an encoder are given and pass on unread.
_NEUTRAL = frozenset({"position_ids", "use_cache", "output_hidden_states", "return_dict"})
# Of the norm: a wrong formula is off by a tenth and more; an integer that is rounded the other way,
# because sums of floats were added in another order, by some thousandths.
_CLOSE = 0.02
_CHAIN = "_octavo_chain"


def fuse_encoder_layers(model: nn.Module) -> list[str]:
    """Lets layers run as one chain, in place; returns their names.

    What changes is the layer's type (`dynamic_type`).
    """
    found = []
    for name, module in list(model.named_modules()):
        plan = None if has_dynamic_type(module) or "forward" in module.__dict__ else plan_of(module)
        if plan is not None and set_type(module, layer_type(type(module))):
            found.append(name)
    return found


def layer_type(kind: Any) -> type:
    """What stands for `kind`, a type of encoder layers."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run_layer(self, kind, *args, **kwargs)

    return make_dynamic_type(kind, {"forward": forward}, layer_type, (kind,))


def run_layer(layer: nn.Module, kind: Any, *args: Any, **kwargs: Any) -> Any:
    """The forward of a layer: its chain where that computes the same, else its type's own."""
    x = args[0] if args else None
    if (
        isinstance(x, Tensor)
        and ops.direct(x)
        and x.dtype is torch.float32
        and x.dim() == 3
        and not torch.is_autocast_enabled("cpu")
    ):
        mask, known = _mask(args, kwargs)
        plan = _chain_of(layer).ready() if known else None
        if plan is not None and plan.takes(x, mask):
            return plan.run(x, mask)
    return kind.forward(layer, *args, **kwargs)


def _chain_of(layer: nn.Module) -> Chain:
    chain = layer.__dict__.get(_CHAIN)
    if chain is None or chain.layer is not layer:  # a shallow copy has what it was made from
        chain = layer.__dict__[_CHAIN] = Chain(layer)
    return chain  # type: ignore[no-any-return]


class Chain:
    """A layer and the plan for it; copies and files of it hold the layer alone."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self._plan: ChainPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"layer": self.layer, "_plan": None}

    def ready(self) -> ChainPlan | None:
        """The plan for the layer as it is now; None where its own forward has to run."""
        layer, plan = self.layer, self._plan
        state = ChainState.CHANGED if plan is None else plan.state(layer)
        if state is ChainState.CHANGED:
            plan = self._plan = plan_of(layer)
            state = ChainState.DISTURBED if plan is None else plan.state(layer)
        if plan is None or state is not ChainState.AS_PLANNED:
            return None
        if not plan.verdict:
            plan.verdict.append(_computes_the_same(layer, plan))
        return plan if plan.verdict[0] else None


def _mask(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor | None, bool]:
    """The attention mask, and whether that and the input is all that the call says."""
    if len(args) > 1 and "attention_mask" in kwargs:
        return None, False
    mask = args[1] if len(args) > 1 else kwargs.get("attention_mask")
    known = (mask is None or isinstance(mask, Tensor)) and all(v is None for v in args[2:])
    for name, value in kwargs.items():
        if name != "attention_mask" and not (value is None or value is False or name in _NEUTRAL):
            return mask, False
    return mask, known


# docs/notes/torch.md: "An encoder layer runs as one chain of kernels"
@torch.no_grad()  # type: ignore[untyped-decorator]
def _computes_the_same(layer: nn.Module, plan: ChainPlan) -> bool:
    """Whether the chain computes what the layer's own forward does, with and without a mask."""
    plainly: Any = {"dtype": torch.float32, "device": "cpu"}
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, plan.parts.out.out_features, generator=draw, **plainly)
    padded = torch.ones(2, 1, 5, 5, dtype=torch.bool, device="cpu")
    padded[1, :, :, 3:] = False
    for mask in (None, padded):
        try:
            own = plan.kind.forward(layer, x, mask)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False
        if not isinstance(own, Tensor) or own.shape != x.shape:
            return False
        if not (own - plan.run(x, mask)).norm() <= _CLOSE * own.norm():
            return False
    return True
