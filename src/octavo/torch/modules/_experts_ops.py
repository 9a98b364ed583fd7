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

_FLOAT32 = 0  # of `ops.CODES`


def kernel(
    gate: Gate,
    up: Tensor,
    up_scale: Tensor,
    up_bias: Tensor | None,
    down: Tensor,
    down_scale: Tensor,
    down_bias: Tensor | None,
    inputs: int,
    inner: int,
) -> Call:
    """The experts over these tensors, which it keeps alive."""
    first = _layers(up, up_scale, up_bias, inputs)
    second = _layers(down, down_scale, down_bias, inner)
    widths = up_scale.shape[1], inner, down_scale.shape[1]

    def call(x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        tokens, choices = index.shape
        chosen = index.reshape(-1)
        order = torch.argsort(chosen, stable=True)
        counts = _counts(chosen, len(first))
        rows = x.float()[torch.div(order, choices, rounding_mode="floor")]
        hidden = gate(_each(first, counts, rows, widths[0]))
        made = _each(second, counts, hidden, widths[2])
        made *= weights.reshape(-1)[order].float()[:, None]
        back = torch.empty_like(made)
        back[order] = made
        return back.reshape(tokens, choices, widths[2]).sum(1).to(x.dtype)

    return call


def _layers(
    packed: Tensor, scale: Tensor, bias: Tensor | None, inputs: int
) -> list[tuple[Kernel, Any]]:
    """The linear layer of each expert, and what it refers to."""
    made = []
    for i in range(len(packed)):
        held = PackedWeight(array(packed[i]), scale.shape[1], inputs, array(scale[i]), None, 0)
        made.append(Kernel(held, optional(None if bias is None else bias[i]), "none"))
    return made  # type: ignore[return-value]


def _counts(chosen: Tensor, experts: int) -> list[int]:
    """How many rows each expert gets. The number behind the last one stands for none."""
    low, high = (int(n) for n in chosen.aminmax()) if chosen.numel() else (0, 0)
    if low < 0 or high > experts:
        raise IndexError(
            f"top_k_index: {low if low < 0 else high} is not in 0..{experts - 1}, the experts"
        )
    return torch.bincount(chosen, minlength=experts)[:experts].tolist()  # type: ignore[no-any-return]


def _each(layers: Sequence[Any], counts: Sequence[int], rows: Tensor, width: int) -> Tensor:
    """What each expert makes of its rows, which lie one behind the other; 0 of those behind."""
    rows, threads = rows.contiguous(), torch.get_num_threads()
    out = rows.new_empty(len(rows), width)
    k, start = rows.shape[1], 0
    for layer, count in zip(layers, counts, strict=True):
        if count:
            x, y = rows[start:], out[start:]
            layer.run(x.data_ptr(), count, k, y.data_ptr(), width, _FLOAT32, 0, 0, threads)
            start += count
    out[start:] = 0
    return out


_bound = ops.Bound()


def _run(x: Tensor, index: Tensor, weights: Tensor, *held: Any) -> Tensor:
    up, *others = held
    *tensors, form, activation, limit, alpha = others
    gate = Gate(form, activation, limit, alpha)
    made = _bound.get(up, tuple(others), lambda: kernel(gate, up, *tensors))
    return made(x, index, weights)


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
