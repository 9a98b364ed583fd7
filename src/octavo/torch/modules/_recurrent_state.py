"""Recurrent modules' state: the buffers of their directions, PyTorch's names from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.recurrent_weights import MOST_INPUTS, Kind
from octavo.torch.choice import Choice
from octavo.torch.modules._base import QuantizedModule
from octavo.torch.modules._recurrent_weights import Way, storage_of

_PARAMETER = re.compile(r"((?:weight|bias)_(?:ih|hh|hr))((?:_l\d+)?(?:_reverse)?)")
_HOLDING = ("packed", "scale", "blocks")
_WEIGHT = re.compile(r"weight_(ih|hh|hr)((?:_l\d+)?(?:_reverse)?)")


class HoldsWays(QuantizedModule):
    """Weights of recurrent layers in buffers, under PyTorch's names from outside."""

    _ways: tuple[Way, ...] = ()
    _names: tuple[str, ...]
    """Of the buffers, in the order in which the operator takes them."""

    def _hold_ways(self, ways: Iterable[Way]) -> None:
        self._ways = tuple(ways)
        for way in self._ways:
            self._hold(**{name + way.suffix: empty for name, empty in way.empty().items()})
        self._names = tuple(name + way.suffix for way in self._ways for name in way.names())

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._names]

    def _held(self, way: Way) -> dict[str, Tensor]:
        return {name: getattr(self, name + way.suffix) for name in way.names()}

    def integers(self) -> dict[str, tuple[Tensor, Tensor]]:
        """(q int8 [gates * hidden, inputs], scale float32 [gates * hidden]) of the int8 weights.

        By PyTorch's names and with its order of gates; layers that are not int8 are left out.
        """
        return {
            f"weight_{part}{way.suffix}": way.integers(self._held(way), part)
            for way in self._ways
            if way.storage == "int8"
            for part in way.shapes
        }

    def dequantized(self) -> dict[str, Tensor]:
        """Weights and biases as float32: the `state_dict` of a float layer that holds the same."""
        found: dict[str, Tensor] = {}
        for way in self._ways:
            held = self._held(way)
            for part in way.shapes:
                found[f"weight_{part}{way.suffix}"] = way.weight(held, part)
            for name in ("bias_ih", "bias_hh") if way.bias else ():
                found[name + way.suffix] = held[name]
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("weight_"):
            found = _WEIGHT.fullmatch(name)
            part, suffix = found.groups() if found else ("", "")
            for way in self._ways:
                if suffix == way.suffix and part in way.shapes:
                    return self._float_weight(way, part)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        found = _PARAMETER.fullmatch(name) if isinstance(value, Tensor) else None
        for way in self._ways if found else ():
            if found is not None and way.suffix == found[2]:
                self._assign(way, found[1], value)
                return
        super().__setattr__(name, value)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _assign(self, way: Way, part: str, value: Tensor) -> None:
        """Holds a float weight or bias that is assigned, as by a parent that drops some of it in
        each call: int8 with a scale for each output channel, or in the way's own float type."""
        name = part + way.suffix
        kind, _, matrix = part.partition("_")
        if matrix not in way.shapes or (kind == "bias" and not way.bias):
            raise AttributeError(f"{type(self).__name__} has no {name}: it was made without one")
        shape = way.shapes[matrix] if kind == "weight" else way.shapes[matrix][:1]
        if tuple(value.shape) != shape:
            raise ValueError(f"{name}: needs shape {list(shape)}, not {list(value.shape)}")
        if kind == "bias":
            made = {part: value.detach().to("cpu", torch.float32)}
        else:
            made = way.assigned(matrix, value, name)
        self._fill(**{key + way.suffix: tensor for key, tensor in made.items()})

    def _float_weight(self, way: Way, part: str) -> Tensor:
        return self._computed_weight(
            way.shapes[part],
            lambda: way.weight(self._held(way), part),
            f"weight_{part}{way.suffix}",
        )

    def _parts(self, name: str) -> list[str]:
        ending = name.removeprefix("weight")
        return [key for key in self._own if key in (f"{w}{ending}" for w in _HOLDING)]


def float_names(way: Way) -> list[str]:
    """PyTorch's names of a direction's weights without their suffix, in its order."""
    biases = ["bias_ih", "bias_hh"] if way.bias else []
    return ["weight_ih", "weight_hh", *biases] + (["weight_hr"] if "hr" in way.shapes else [])


def pair(hx: Any) -> tuple[Tensor, Tensor]:
    """(h0, c0), where `hx` is that."""
    if not isinstance(hx, (tuple, list)) or len(hx) != 2:
        raise TypeError(f"hx: needs a pair of tensors, (h0, c0), not {type(hx).__name__}")
    return hx[0], hx[1]


def plain_kind(nonlinearity: str) -> Kind:
    """Of a layer with one gate. Raises ValueError for what is neither "tanh" nor "relu"."""
    kinds = {"tanh": Kind.RNN_TANH, "relu": Kind.RNN_RELU}
    if nonlinearity not in kinds:
        raise ValueError(f"nonlinearity: {nonlinearity!r} must be 'tanh' or 'relu'")
    return kinds[nonlinearity]


def refusal(module: nn.Module, choice: Choice) -> str:
    """Why recurrent weights cannot be held as `choice` says; "" where they can."""
    own = _own_parameters(module)
    if own:
        return (
            f"it holds {', '.join(own)}, of which its weights may be made in each call: take that "
            "off, or keep it in a module around this one, which assigns the weights"
        )
    weights = [w for w in module.parameters() if w.dim() == 2]
    if any(not w.numel() for w in weights):
        return "it has no inputs or no hidden units"
    if storage_of(choice) == "int8":
        most = max(w.shape[1] for w in weights)
        return f"{most} inputs; int8 has up to {MOST_INPUTS}" if most > MOST_INPUTS else ""
    if storage_of(choice) == "float16" and any(w.detach().abs().max() > 65504 for w in weights):
        return "it holds weights beyond 65504, the largest of float16"
    return ""


def _own_parameters(module: nn.Module) -> list[str]:
    """Names of parameters that torch's layer has not; those of weight_norm and its like it has."""
    norms = ("_g", "_v", "_orig")
    return [
        name
        for name, value in module._parameters.items()
        if value is not None and not _PARAMETER.fullmatch(name) and not name.endswith(norms)
    ]
