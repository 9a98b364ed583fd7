"""Experts over tensors: the C++ core's linear layers, and the operator `octavo::experts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from octavo.core.kernels import PackedWeight
from octavo.core.linear import Linear as Kernel
from octavo.torch import ops
from octavo.torch.modules._base import array, optional
from octavo.torch.modules._gates import Gate

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`call(x, index, weights)`: rows [S, inputs], and for each row its k experts and their weights."""

Layers = tuple[Sequence[Kernel], int]
"""A linear layer for each expert, and how many outputs it has."""

_FLOAT32 = 0  # of `ops.CODES`


def kernel(gate: Gate, first: Layers, second: Layers) -> Call:
    """Experts of two linear layers each, with a gate between them."""

    def call(x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
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


def layers(packed: Tensor, scale: Tensor, bias: Tensor | None, inputs: int) -> Layers:
    """The linear layers of all experts over these tensors, which they keep alive."""
    made = []
    for i in range(len(packed)):
        held = PackedWeight(array(packed[i]), scale.shape[1], inputs, array(scale[i]), None, 0)
        made.append(Kernel(held, optional(None if bias is None else bias[i]), "none"))
    return made, scale.shape[1]


def _counts(chosen: Tensor, experts: int) -> list[int]:
    """How many rows each expert gets. The number behind the last one stands for none."""
    low, high = (int(n) for n in chosen.aminmax()) if chosen.numel() else (0, 0)
    if low < 0 or high > experts:
        raise IndexError(
            f"top_k_index: {low if low < 0 else high} is not in 0..{experts - 1}, the experts"
        )
    return torch.bincount(chosen, minlength=experts)[:experts].tolist()  # type: ignore[no-any-return]


def _each(of_experts: Layers, counts: Sequence[int], rows: Tensor) -> Tensor:
    """What each expert makes of its rows, which lie one behind the other; 0 of those behind."""
    each, width = of_experts
    rows, threads = rows.contiguous(), torch.get_num_threads()
    out = rows.new_empty(len(rows), width)
    k, start = rows.shape[1], 0
    for layer, count in zip(each, counts, strict=True):
        if count:
            x, y = rows[start:], out[start:]
            layer.run(x.data_ptr(), count, k, y.data_ptr(), width, _FLOAT32, 0, 0, threads)
            start += count
    out[start:] = 0
    return out


_first, _second = ops.Bound(), ops.Bound()


def _run(x: Tensor, index: Tensor, weights: Tensor, *held: Any) -> Tensor:
    up, down, (k, inner), gate = held[:3], held[3:6], held[6:8], Gate(*held[8:])
    first = _first.get(up[0], (*up[1:], k), lambda: layers(up[0], up[1], up[2], k))
    second = _second.get(
        down[0], (*down[1:], inner), lambda: layers(down[0], down[1], down[2], inner)
    )
    return kernel(gate, first, second)(x, index, weights)


def _fake(x: Tensor, index: Tensor, weights: Tensor, *held: Any) -> Tensor:
    return x.new_empty((x.shape[0], held[4].shape[1]))


experts = ops.define(
    "experts",
    "(Tensor x, Tensor index, Tensor weights, Tensor up, Tensor up_scale, Tensor? up_bias, "
    "Tensor down, Tensor down_scale, Tensor? down_bias, int inputs, int inner, str form, "
    "str activation, float limit, float alpha) -> Tensor",
    _run,
    _fake,
)
