"""The parts of an encoder layer of transformers' BERT family, and the kernels over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from octavo.core.attention import run_attention
from octavo.core.layer_norm import run_layer_norm
from octavo.core.linear import run_together
from octavo.torch import ops
from octavo.torch.fusion import activation_word, run_chain
from octavo.torch.memory import LARGE, in_large_pages
from octavo.torch.modules.linear import QuantizedLinear

TYPES = frozenset(
    f"{name}Layer"
    for name in "Bert BertGeneration Camembert Electra Ernie RoCBert Roberta XLMRoberta".split()
)
"""Classes of `transformers.models` whose forward is that of BertLayer."""

_SERVED = "sdpa"

# An edge of the module tree as it was: the parent's children, the child's name and the child, its
# __dict__ and the forward in there.
Edge = tuple[dict[str, Any], str, nn.Module, dict[str, Any], Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of one layer, and the places where they were found."""

    qkv: tuple[QuantizedLinear, QuantizedLinear, QuantizedLinear]
    out: QuantizedLinear
    up: QuantizedLinear
    down: QuantizedLinear
    activation: str
    norms: tuple[nn.LayerNorm, nn.LayerNorm]
    heads: int
    scale: float
    config: Any
    edges: tuple[Edge, ...]

    def holds(self) -> bool:
        """Whether every part is where it was, and a call of it does what its type does, no more."""
        for children, name, child, own, forward in self.edges:
            if (
                children.get(name) is not child
                or own["training"]
                or own["_forward_pre_hooks"]
                or own.get("forward") is not forward
                or (own["_forward_hooks"] and not _silent(own["_forward_hooks"].values()))
            ):
                return False
        return _implementation(self.config) == _SERVED and not torch_module._has_any_global_hook()

    def takes(self, x: Tensor, mask: Tensor | None) -> bool:
        """Whether the kernels compute all there is to compute for inputs of these shapes."""
        batch, length, width = x.shape
        if width != self.out.out_features or not batch or not length:
            return False
        if torch.is_grad_enabled() and any(
            p.requires_grad for norm in self.norms for p in (norm.weight, norm.bias)
        ):
            return False
        if mask is None:
            return True
        if mask.dtype is not torch.bool or mask.dim() != 4 or not ops.direct(mask):
            return False
        sizes = zip(mask.shape, (batch, self.heads, length, length), strict=True)
        return all(size in (1, wanted) for size, wanted in sizes)

    def run(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The layer's output for float32 `x` [batch, length, width]."""
        x = x.contiguous()
        batch, length, width = x.shape
        rows, threads = batch * length, torch.get_num_threads()
        inner, wide = self.out.in_features, self.up.out_features
        # Queries, keys, values and their attention; later h, and behind it the wide rows.
        work = x.new_empty(rows * max(4 * inner, width + wide))
        y = x.new_empty(x.shape)
        if rows * wide >= LARGE // 4:
            in_large_pages(work.data_ptr(), work.nbytes)
            in_large_pages(y.data_ptr(), y.nbytes)
        source, q, result = x.data_ptr(), work.data_ptr(), y.data_ptr()
        part = rows * inner * x.element_size()
        k, v, attended = q + part, q + 2 * part, q + 3 * part
        cores = [layer._ready("none").core for layer in self.qkv]
        run_together(cores, source, rows, width, (q, k, v), (inner,) * 3, 0, threads)
        sizes = batch, self.heads, length, length, inner // self.heads, inner // self.heads
        between = length * inner
        strides = (0, 0, 0, 0) if mask is None else _repeated(mask)
        allowed = 0 if mask is None else mask.data_ptr()
        run_attention(
            *(q, k, v, attended),
            sizes,
            (between, between, between, *strides),
            self.scale,
            0,
            allowed,
            threads,
        )
        h = q if width == inner else result
        run = self.out._ready("none").core.run
        run(attended, rows, inner, h, width, 0, source, width, threads)
        self._normalize(0, h, rows, width, threads)
        wider = h + rows * width * x.element_size() if h == q else q
        run = self.up._ready(self.activation).core.run
        run(h, rows, width, wider, wide, 0, 0, 0, threads)
        run = self.down._ready("none").core.run
        run(wider, rows, wide, result, width, 0, h, width, threads)
        self._normalize(1, result, rows, width, threads)
        return y

    def _normalize(self, which: int, x: int, rows: int, width: int, threads: int) -> None:
        norm = self.norms[which]
        weight, bias = norm.weight.data_ptr(), norm.bias.data_ptr()
        run_layer_norm(x, rows, width, width, weight, bias, norm.eps, x, width, threads)


def _repeated(mask: Tensor) -> tuple[int, ...]:
    """Strides of a mask, 0 along axes of one element."""
    return tuple(0 if n == 1 else s for n, s in zip(mask.shape, mask.stride(), strict=True))


def _implementation(config: Any) -> Any:
    """`config._attn_implementation`: the property takes as long as a small layer's kernel."""
    found = vars(config).get("_attn_implementation_internal")
    return config._attn_implementation if found is None else found


def _silent(hooks: Any) -> bool:
    """Whether all are transformers' own, which collect weights of attention: sdpa has none."""
    return all(h.__module__ == "transformers.utils.output_capturing" for h in hooks)


def plan_of(layer: nn.Module) -> Plan | None:
    """The parts of a layer of the family; None where it is none, or not quantized throughout."""
    kind = type(layer)
    if kind.__name__ not in TYPES or not kind.__module__.startswith("transformers.models."):
        return None
    parts: Any = layer
    try:
        attention, middle, last = parts.attention, parts.intermediate, parts.output
        inner, after = attention.self, attention.output
        if any(
            type(m).__module__ != kind.__module__ for m in (attention, inner, after, middle, last)
        ):
            return None
        plan = Plan(
            (inner.query, inner.key, inner.value),
            after.dense,
            middle.dense,
            last.dense,
            activation_word(middle.intermediate_act_fn),
            (after.LayerNorm, last.LayerNorm),
            inner.num_attention_heads,
            float(inner.scaling),
            inner.config,
            tuple(_edges(layer)),
        )
        encodes = not (parts.is_decoder or parts.add_cross_attention or inner.is_causal)
        return plan if encodes and _fit(plan) and not _patched(plan) else None
    except AttributeError:  # another release's
        return None


def _patched(plan: Plan) -> bool:
    """Whether a part has another forward than its type's, or `octavo.torch.fusion`'s."""
    own = (forward for *_, forward in plan.edges if forward is not None)
    return any(getattr(forward, "func", None) is not run_chain for forward in own)


def _fit(plan: Plan) -> bool:
    """Whether the parts are those that the chain has kernels for, and of sizes that fit."""
    linears = (*plan.qkv, plan.out, plan.up, plan.down)
    if not plan.activation or any(type(layer) is not QuantizedLinear for layer in linears):
        return False
    inner, width, wide = plan.out.in_features, plan.out.out_features, plan.up.out_features
    sizes = (*[(width, inner)] * 3, (inner, width), (width, wide), (wide, width))
    return (
        all(
            (layer.in_features, layer.out_features) == size
            for layer, size in zip(linears, sizes, strict=True)
        )
        and len({layer.group for layer in plan.qkv}) == 1
        and inner % plan.heads == 0
        and all(_plain_norm(norm, width) for norm in plan.norms)
    )


def _plain_norm(norm: Any, width: int) -> bool:
    if type(norm) is not nn.LayerNorm or norm.normalized_shape != (width,):
        return False
    return all(
        type(p) is nn.Parameter and p.dtype is torch.float32 and p.is_cpu and p.is_contiguous()
        for p in (norm.weight, norm.bias)
    )


def _edges(module: nn.Module) -> list[Edge]:
    found: list[Edge] = []
    for name, child in module.named_children():
        own = child.__dict__
        found += [(module._modules, name, child, own, own.get("forward")), *_edges(child)]
    return found
