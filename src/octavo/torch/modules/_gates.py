"""What experts do between their two products, known by its values as there are many spellings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class Gate:
    """`form` is a key of `FORMS`, `activation` of `ACTIVATIONS`; `limit` clamps, where it is not
    0, and `alpha` is for the form "plus_one"."""

    form: str
    activation: str
    limit: float = 0.0
    alpha: float = 1.0

    def __call__(self, first: Tensor) -> Tensor:
        """[..., n] of the first product's outputs [..., 2 n], gates first (ungated: [..., n])."""
        return FORMS[self.form](self, first)


def _plain(gate: Gate, x: Tensor) -> Tensor:
    return ACTIVATIONS[gate.activation](x)


def _product(gate: Gate, x: Tensor) -> Tensor:
    a, up = x.chunk(2, -1)
    return ACTIVATIONS[gate.activation](a) * up


def _clamped(gate: Gate, x: Tensor) -> Tensor:
    a, up = x.chunk(2, -1)
    limit = gate.limit
    return ACTIVATIONS[gate.activation](a.clamp(max=limit)) * up.clamp(-limit, limit)


def _clamped_behind(gate: Gate, x: Tensor) -> Tensor:
    a, up = x.chunk(2, -1)
    limit = gate.limit
    return ACTIVATIONS[gate.activation](a).clamp(max=limit) * up.clamp(-limit, limit)


def _plus_one(gate: Gate, x: Tensor) -> Tensor:
    a, up = x.chunk(2, -1)
    a = a.clamp(max=gate.limit)
    return (up.clamp(-gate.limit, gate.limit) + 1) * (a * torch.sigmoid(a * gate.alpha))


FORMS: dict[str, Callable[[Gate, Tensor], Tensor]] = {
    "plain": _plain,
    "product": _product,
    "clamped": _clamped,
    "clamped_behind": _clamped_behind,
    "plus_one": _plus_one,
}


def gate_of(module: Any) -> Gate | None:
    """The gate of a float module of experts; None where it is none of these."""
    grid = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) * 6
    with torch.no_grad():
        given = grid if module.is_concatenated else _interleaved(grid)
        if not module.has_gate:
            given = grid
        wanted = (module._apply_gate if module.has_gate else module.act_fn)(given)
        for gate in _candidates(module):
            found = gate(grid)
            if found.shape == wanted.shape and torch.allclose(found, wanted, 1e-4, 1e-5):
                return gate
    return None


def _interleaved(x: Tensor) -> Tensor:
    """Columns gate 0, up 0, gate 1, up 1 of columns gate, then up."""
    return torch.stack(x.chunk(2, -1), -1).flatten(-2)


def _candidates(module: nn.Module) -> Iterator[Gate]:
    if not module.has_gate:
        yield from (Gate("plain", name) for name in ACTIVATIONS)
        return
    yield from (Gate("product", name) for name in ACTIVATIONS)
    limit, alpha = _number(module, "limit"), _number(module, "alpha")
    if limit is not None:
        for form in ("clamped", "clamped_behind"):
            yield from (Gate(form, name, limit) for name in ACTIVATIONS)
        yield Gate("plus_one", "silu", limit, 1.0 if alpha is None else alpha)


def _number(module: nn.Module, name: str) -> float | None:
    for attribute in (name, f"swiglu_{name}"):
        value = getattr(module, attribute, None)
        if isinstance(value, (int, float)):
            return float(value)
    return None
