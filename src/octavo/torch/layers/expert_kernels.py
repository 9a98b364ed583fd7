"""How fused experts are computed: rows sorted by expert, each one's as two products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from octavo.core.kernels import PackedWeight, WeightFormat
from octavo.core.linear import Linear as Kernel
from octavo.torch import ops
from octavo.torch.layers.fused_experts import Gate
from octavo.torch.memory import array, optional

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`call(x, index, weights)`: rows [S, inputs], and for each row its k experts and their weights."""

ExpertLayers = tuple[Sequence[Kernel], int]
"""A linear layer for each expert, and how many outputs it has."""

_FLOAT32 = 0  # of `ops.CODES`


def kernel(gate: Gate, first: ExpertLayers, second: ExpertLayers) -> Call:
    """Experts of two linear layers each, with a gate between them."""

    def call(x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        _check(x, index, weights, first[0][0].k)
        tokens, choices = index.shape
        chosen = index.reshape(-1)
        order = torch.argsort(chosen, stable=True)
        counts = _counts(chosen, len(first[0]))
        rows = x.float()[torch.div(order, choices, rounding_mode="floor")]
        hidden = gate(_each(first, counts, rows))
        made = _each(second, counts, hidden)
        made *= weights.reshape(-1)[order].float()[:, None]
        back = torch.empty_like(made)
        back[order] = made
        return back.reshape(tokens, choices, second[1]).sum(1).to(x.dtype)

    return call


def _check(x: Tensor, index: Tensor, weights: Tensor, inputs: int) -> None:
    if x.dim() != 2 or x.shape[1] != inputs:
        raise ValueError(f"hidden_states: needs shape [tokens, {inputs}], not {tuple(x.shape)}")
    if index.dim() != 2 or len(index) != len(x):
        raise ValueError(f"top_k_index: needs shape [{len(x)}, k], not {tuple(index.shape)}")
    if index.is_floating_point():
        raise TypeError(f"top_k_index: needs whole numbers of experts, not {index.dtype}")
    if weights.shape != index.shape:
        raise ValueError(
            f"top_k_weights: needs shape {tuple(index.shape)}, as top_k_index, not "
            f"{tuple(weights.shape)}"
        )
    if x.dtype not in ops.CODES and x.dtype is not torch.float64:
        raise ops.allowed(x)


def layers(
    packed: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    inputs: int,
    group: int = 0,
    format: str = WeightFormat.INT8.value,  # noqa: A002  # as the operator calls it
) -> ExpertLayers:
    """Build the linear layers of all experts over these tensors, which they keep alive."""
    if scale.dim() != 2 or any(len(t) != len(packed) for t in (scale, bias) if t is not None):
        raise ValueError(f"up, down: need scales [{len(packed)}, n], and as many biases")
    made, held_as = [], WeightFormat.parse(format)
    for i in range(len(packed)):
        tensors = array(packed[i]), scale.shape[1], inputs, array(scale[i])
        held = PackedWeight(*tensors, None, group, held_as)
        made.append(Kernel(held, optional(None if bias is None else bias[i]), "none"))
    return made, scale.shape[1]


def _counts(chosen: Tensor, experts: int) -> list[int]:
    """Count the rows that each expert gets. The number behind the last one stands for none."""
    low, high = (int(n) for n in chosen.aminmax()) if chosen.numel() else (0, 0)
    if low < 0 or high > experts:
        raise IndexError(
            f"top_k_index: {low if low < 0 else high} is not in 0..{experts - 1}, the experts"
        )
    return torch.bincount(chosen, minlength=experts)[:experts].tolist()  # type: ignore[no-any-return]


def _each(of_experts: ExpertLayers, counts: Sequence[int], rows: Tensor) -> Tensor:
    """Apply each expert to its rows, which lie one behind the other; rows behind those give 0."""
    each, width = of_experts
    rows, threads = rows.contiguous(), torch.get_num_threads()
    out = rows.new_empty(len(rows), width)
    k, start = rows.shape[1], 0
    if each[0].k != k:
        raise ValueError(f"down: takes {each[0].k} values in a row, and up gives {k}")
    for layer, count in zip(each, counts, strict=True):
        if count:
            x, y = rows[start:], out[start:]
            layer.run(x.data_ptr(), count, k, y.data_ptr(), width, _FLOAT32, 0, 0, threads)
            start += count
    out[start:] = 0
    return out


_first, _second = ops.KernelCache(), ops.KernelCache()


def _run(x: Tensor, index: Tensor, weights: Tensor, *held: Any) -> Tensor:
    gate, groups = Gate(*held[8:12]), held[12:]  # defaults may be left out
    up, down = (*held[:3], held[6], *groups), (*held[3:6], held[7], *groups)
    first = _first.get(up[0], up[1:], lambda: layers(*up))
    second = _second.get(down[0], down[1:], lambda: layers(*down))
    return kernel(gate, first, second)(x, index, weights)


def _fake(x: Tensor, index: Tensor, weights: Tensor, *held: Any) -> Tensor:
    return x.new_empty((x.shape[0], held[4].shape[1]))


experts = ops.define(
    "experts",
    "(Tensor x, Tensor index, Tensor weights, Tensor up, Tensor up_scale, Tensor? up_bias, "
    "Tensor down, Tensor down_scale, Tensor? down_bias, int inputs, int inner, str form, "
    "str activation, float limit, float alpha, int group=0, str format='int8') -> Tensor",
    _run,
    _fake,
)
