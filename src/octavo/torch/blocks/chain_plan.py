"""A layer's steps and parts, and whether these still are what they were."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

from octavo.torch import ops
from octavo.torch.blocks.activations import activation_name
from octavo.torch.blocks.dynamic_type import type_behind
from octavo.torch.blocks.encoder_families import LayerParts, parts_of
from octavo.torch.blocks.encoder_steps import Frame
from octavo.torch.layers.linear import QuantizedLinear

_SERVED = "sdpa"
_ATTENTION = functional.scaled_dot_product_attention
_COLLECTING = "transformers.utils.output_capturing"
# As they were when this was imported: who patches a class means it.
_FORWARDS: dict[Any, Any] = {
    kind: kind.forward for kind in (nn.LayerNorm, nn.Dropout, nn.Identity, QuantizedLinear)
}
_LONGEST = 1024  # tokens; beyond, torch's attention in blocks is the faster one


class ChainState(Enum):
    """What became of the parts of a plan."""

    AS_PLANNED = 0
    DISTURBED = 1  # somebody watches, or training: it may be over in the next call
    CHANGED = 2  # other parts, or other code in them


# An edge of the module tree: the parent's children, the child's name and the child, its __dict__
# and the children in there, its class and that one's forward, and the same two of the class that
# its class stands for.
Edge = tuple[dict[str, Any], str, nn.Module, dict[str, Any], dict[str, Any], Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """The parts of one layer, and how to see whether they still are what they were."""

    parts: LayerParts
    activation: str
    """The kernels' name of `parts.activation`."""
    parameters: tuple[tuple[dict[str, Any], str, Tensor, int], ...]
    """Weight and bias of the first norm, then of the second: where each is, and its address."""
    heads: int
    kind: Any
    """The layer's type; of a made one, the one behind it."""
    forward: Any
    children: dict[str, Any]
    edges: tuple[Edge, ...]
    silent: dict[int, Any] = field(default_factory=dict)
    """Hooks that are known to do nothing, by identity."""
    verdict: list[bool] = field(default_factory=list)
    """Whether the chain was found to compute what the layer's own forward does; one, once tried."""

    def state(self, layer: nn.Module) -> ChainState:
        """Whether a call of `layer` still is a call of these parts, and of nothing else."""
        if self._reads_otherwise(layer):
            return ChainState.CHANGED
        for children, name, child, own, inner, kind, forward, behind, fused in self.edges:
            if (
                children.get(name) is not child
                or kind.forward is not forward
                or child.__class__ is not kind
                or (behind is not kind and behind.forward is not fused)
                or "forward" in own
                or own["_modules"] is not inner
            ):
                return ChainState.CHANGED
            if own["training"] or own["_forward_pre_hooks"]:
                return ChainState.DISTURBED
            if own["_forward_hooks"] and not self._silent(child, own["_forward_hooks"].values()):
                return ChainState.DISTURBED
        if _implementation(self.parts.config) != _SERVED or not _serves(self.kind):
            return ChainState.DISTURBED
        return (
            ChainState.DISTURBED if torch_module._has_any_global_hook() else ChainState.AS_PLANNED
        )

    def _reads_otherwise(self, layer: nn.Module) -> bool:
        """Whether the forwards are others, or find something else where they look."""
        kind: Any = type_behind(type(layer))
        if kind is not self.kind or kind.forward is not self.forward:
            return True
        if layer._modules is not self.children:
            return True
        for held, key, value in self.parts.facts:
            if held.get(key) is not value:
                return True
        owner, key, method = self.parts.method
        if getattr(owner, key, None) is not method:
            return True
        for held, key, parameter, address in self.parameters:
            if (
                parameter.data_ptr() != address
                or parameter.dtype is not torch.float32
                or held.get(key) is not parameter
            ):
                return True
        return activation_name(self.parts.activation) != self.activation

    def _silent(self, child: nn.Module, hooks: Iterable[Any]) -> bool:
        """Whether all are transformers' own that collect weights of attention: sdpa has none."""
        for hook in hooks:
            if id(hook) not in self.silent:
                if child is not self.parts.attention or not _collects_attentions(hook):
                    return False
                self.silent[id(hook)] = hook
        return True

    def takes(self, x: Tensor, mask: Tensor | None) -> bool:
        """Whether the kernels compute all that there is to compute for these tensors."""
        batch, length, width = x.shape
        if width != self.parts.out.out_features or not batch or not 0 < length <= _LONGEST:
            return False
        if torch.is_grad_enabled() and any(p.requires_grad for _, _, p, _ in self.parameters):
            return False
        if mask is None:
            return True
        if mask.dtype is not torch.bool or mask.dim() != 4 or not ops.direct(mask):
            return False
        sizes = zip(mask.shape, (batch, self.heads, length, length), strict=True)
        return all(size in (1, wanted) for size, wanted in sizes)

    def run(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The layer's output for float32 `x` [batch, length, width] on the CPU."""
        frame = Frame(self, x, mask)
        for step in self.parts.steps:
            step(self, frame)
        return frame.y


def plan_of(layer: nn.Module) -> ChainPlan | None:
    """The plan for a layer of a known family; None where it is none, or not int8 throughout."""
    parts = parts_of(layer)
    if parts is None or not _fit(parts):
        return None
    edges = tuple(_edges(layer))
    if any(forward is not _FORWARDS.get(kind, forward) for *_, kind, forward, _, _ in edges):
        return None
    if any("forward" in own for _, _, _, own, *_ in edges):  # somebody's patch
        return None
    kind: Any = type_behind(type(layer))
    norms = [norm._parameters for norm in parts.norms]
    return ChainPlan(
        parts,
        activation_name(parts.activation),
        tuple((p, key, p[key], p[key].data_ptr()) for p in norms for key in ("weight", "bias")),
        parts.out.in_features // parts.head_size,
        kind,
        kind.forward,
        layer._modules,
        edges,
    )


def _fit(parts: LayerParts) -> bool:
    """Whether the parts are those that there are kernels for, and of sizes that fit."""
    linears = (*parts.qkv, parts.out, parts.up, parts.down)
    if any(type(layer) is not QuantizedLinear for layer in linears):
        return False
    if not activation_name(parts.activation) or parts.attention.is_causal:
        return False
    inner, width = parts.out.in_features, parts.out.out_features
    wide = parts.up.out_features
    sizes = (*[(width, inner)] * 3, (inner, width), (width, wide), (wide, width))
    return (
        all(
            (layer.in_features, layer.out_features) == size
            for layer, size in zip(linears, sizes, strict=True)
        )
        and len({layer.group for layer in parts.qkv}) == 1
        and type(parts.scale) is float
        and type(parts.head_size) is int
        and parts.head_size > 0
        and inner % parts.head_size == 0
        and all(type(dropout) in (nn.Dropout, nn.Identity) for dropout in parts.dropouts)
        and all(_plain_norm(norm, width) for norm in parts.norms)
    )


def _plain_norm(norm: Any, width: int) -> bool:
    if type(norm) is not nn.LayerNorm or norm.normalized_shape != (width,):
        return False
    return all(
        type(p) is nn.Parameter
        and p.dtype is torch.float32
        and p.is_cpu
        and p.shape == (width,)
        and p.is_contiguous()
        for p in (norm._parameters.get("weight"), norm._parameters.get("bias"))
    )


def _edges(module: nn.Module) -> list[Edge]:
    found: list[Edge] = []
    for name, child in module._modules.items():
        if child is not None:
            kind: Any = type(child)
            behind: Any = type_behind(kind)
            place = (module._modules, name, child, child.__dict__, child._modules)
            edge = (*place, kind, kind.forward, behind, behind.forward)
            found += [edge, *_edges(child)]
    return found


def _implementation(config: Any) -> Any:
    """`config._attn_implementation`: the property takes as long as a small layer's kernel."""
    found = vars(config).get("_attn_implementation_internal")
    return config._attn_implementation if found is None else found


def _serves(kind: type) -> bool:
    """Whether transformers' own function is served as sdpa, and torch's own behind it."""
    functions = getattr(sys.modules.get(kind.__module__), "ALL_ATTENTION_FUNCTIONS", {})
    home = sys.modules.get("transformers.integrations.sdpa_attention")
    own = getattr(home, "sdpa_attention_forward", None)
    if own is None or functions.get(_SERVED) is not own:
        return False
    return functional.scaled_dot_product_attention is _ATTENTION


def _collects_attentions(hook: Any) -> bool:
    """Whether it is transformers' own and collects an output that sdpa has None for."""
    if type(hook) is not FunctionType or hook.__module__ != _COLLECTING:
        return False
    try:
        cells = [cell.cell_contents for cell in hook.__closure__ or ()]
    except ValueError:  # an empty one
        return False
    held = dict(zip(hook.__code__.co_freevars, cells, strict=True))
    return held.get("key") == "attentions" and held.get("index") == 1
