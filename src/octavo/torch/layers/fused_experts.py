"""Float modules of experts, as transformers' `use_experts_implementation` makes them.

What they do between their two products is known by its values, as there are many spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from octavo.errors import typed

PARTS = ("up", "down")
"""An expert's two products."""

_CLOSE = 0.1  # a gate, a bias or a routing that is another changes outputs by more


class FusedExperts(nn.Module):
    """Stands in `mapping` for every class that transformers' `use_experts_implementation` made.

    Such a module holds `gate_up_proj` (or `up_proj`) and `down_proj`, one matrix for each expert.
    """


def is_fused_experts(module: nn.Module) -> bool:
    """Tell whether it is a module of experts as `FusedExperts` describes."""
    marks = ("has_gate", "has_bias", "is_transposed", "is_concatenated")
    if not all(name in module.__dict__ for name in marks):
        return False
    names = ("gate_up_proj" if module.has_gate else "up_proj", "down_proj")
    held = [module._parameters.get(name) for name in names]
    return all(weight is not None and weight.dim() == 3 for weight in held)


def weight_name(module: Any, part: str) -> str:
    """Return the name of the float module's weight `part`, "up" or "down"."""
    if part == "down":
        return "down_proj"
    return "gate_up_proj" if module.has_gate else "up_proj"


def matrix(module: Any, part: str, expert: int) -> Tensor:
    """Return the matrix [outputs, inputs] of one expert, its gates first."""
    weight = getattr(module, weight_name(module, part))[expert].detach()
    rows: Tensor = weight.t() if module.is_transposed else weight
    return rows if part == "down" or module.is_concatenated else _deinterleaved(rows)


def vector(module: Any, part: str, expert: int) -> Tensor:
    """Return the bias float32 [outputs] of one expert; a single 0 where the module has none."""
    if not module.has_bias:
        return torch.zeros(())
    bias = getattr(module, f"{weight_name(module, part)}_bias")[expert].detach()
    bias = bias if part == "down" or module.is_concatenated else _deinterleaved(bias)
    return bias.to("cpu", torch.float32)


def _deinterleaved(rows: Tensor) -> Tensor:
    """Gate 0, up 0, gate 1, up 1 as all gates, then all ups."""
    return torch.cat([rows[::2], rows[1::2]])


def difference(module: Any, gate: Gate) -> str:
    """Return why `module` is not what `QuantizedExperts` computes; "" where it is.

    Both are tried on two rows.
    """
    experts = [0, len(module.down_proj) - 1]
    weight = module.down_proj
    inputs = matrix(module, "up", 0).shape[1]
    rows = torch.randn(2, inputs, generator=torch.Generator().manual_seed(0))
    given = rows.to(weight.device, weight.dtype)
    index = torch.tensor(experts, device=weight.device)[:, None]
    shares = torch.tensor([[0.5], [2.0]]).to(weight.device, weight.dtype)
    with torch.no_grad():
        try:
            found = module(given, index, shares).float().cpu()
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            return f"its forward fails on two rows ({typed(error)})"
        wanted = []
        for row, i in zip(rows, experts, strict=True):
            x = row
            for part in PARTS:
                x = matrix(module, part, i).to("cpu", torch.float32) @ x + vector(module, part, i)
                x = gate(x) if part == "up" else x
            wanted.append(x)
    expected = torch.stack(wanted) * shares.float().cpu()
    if not expected.isfinite().all():
        return ""  # what is wrong with the weights is said where they are quantized
    alike = found.shape == expected.shape
    if not alike or not (found - expected).norm() <= _CLOSE * expected.norm():
        return "its forward is not that of experts with a gate"
    return ""


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

    def __post_init__(self) -> None:
        known = ("form", self.form, FORMS), ("activation", self.activation, ACTIVATIONS)
        for name, value, there in known:
            if value not in there:
                raise ValueError(f"{name}: unknown {value!r}; there are {', '.join(there)}")

    def __call__(self, first: Tensor) -> Tensor:
        """Apply the gate to the outputs of the first product, and return [..., n].

        The outputs are [..., 2 n], gates first (ungated: [..., n]).
        """
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
    """Return the gate of a float module of experts; None where it is none of the known gates."""
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
