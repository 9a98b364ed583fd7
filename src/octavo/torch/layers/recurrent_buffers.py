"""Recurrent weights in buffers, one set for each direction; PyTorch's names from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from octavo.core.recurrent_weights import MOST_INPUTS, Kind
from octavo.torch import ops
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.recurrent_weights import DirectionForm, storage_of

_PARAMETER = re.compile(r"((?:weight|bias)_(?:ih|hh|hr))((?:_l\d+)?(?:_reverse)?)")
_HOLDING = ("packed", "scale", "blocks")
_WEIGHT = re.compile(r"weight_(ih|hh|hr)((?:_l\d+)?(?:_reverse)?)")


class RecurrentBuffers(QuantizedModule):
    """What recurrent layers and cells share: how they are held, and which they can be."""

    SYMMETRIC = True
    _KIND: ClassVar[Kind]
    """Of layers that have no `nonlinearity`."""

    input_size: int
    hidden_size: int
    storage: str | list[str]
    _directions: tuple[DirectionForm, ...] = ()
    _names: tuple[str, ...]
    """Of the buffers, in the order in which the operator takes them."""

    def _set_options(self, options: Mapping[str, Any]) -> None:
        """Set the constructor's further arguments; raise TypeError for what the layer has not."""
        for name, value in options.items():
            if name not in self.CONFIG:
                raise TypeError(f"{type(self).__name__} has no argument {name!r}")
            setattr(self, name, value)

    def _kind(self) -> Kind:
        return plain_kind(self.nonlinearity) if "nonlinearity" in self.CONFIG else self._KIND

    def _hold_directions(self, directions: Iterable[DirectionForm]) -> None:
        self._directions = tuple(directions)
        for one in self._directions:
            self._hold(**{name + one.suffix: empty for name, empty in one.empty().items()})
        self._names = tuple(name + one.suffix for one in self._directions for name in one.names())

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        own = _own_parameters(module)
        if own:
            return (
                f"it holds {', '.join(own)}, of which its weights may be made in each call: take "
                "that off, or keep it in a module around this one, which assigns the weights"
            )
        weights = [w for w in module.parameters() if w.dim() == 2]
        if any(not w.numel() for w in weights):
            return "it has no inputs or no hidden units"
        storage = storage_of(choice)
        if storage == "int8":
            most = max(w.shape[1] for w in weights)
            return f"{most} inputs; int8 has up to {MOST_INPUTS}" if most > MOST_INPUTS else ""
        weights = [w for w in weights if not w.is_meta]  # asked again when weights are there
        if storage == "float16" and any(w.detach().abs().max() > 65504 for w in weights):
            return "it holds weights beyond 65504, the largest of float16"
        return ""

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._names]

    def _held(self, one: DirectionForm) -> dict[str, Tensor]:
        return {name: getattr(self, name + one.suffix) for name in one.names()}

    def integers(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return (q, scale) of the int8 weights, by PyTorch's names and with its order of gates.

        q is int8 [gates * hidden, inputs], scale float32 [gates * hidden]. Layers that are not int8
        are left out.
        """
        return {
            f"weight_{part}{one.suffix}": one.integers(self._held(one), part)
            for one in self._directions
            if one.storage == "int8"
            for part in one.shapes
        }

    def dequantized(self) -> dict[str, Tensor]:
        """Weights and biases as float32: the `state_dict` of a float layer that holds the same."""
        found: dict[str, Tensor] = {}
        for one in self._directions:
            held = self._held(one)
            for part in one.shapes:
                found[f"weight_{part}{one.suffix}"] = one.weight(held, part)
            for name in ("bias_ih", "bias_hh") if one.bias else ():
                found[name + one.suffix] = held[name]
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("weight_"):
            found = _WEIGHT.fullmatch(name)
            part, suffix = found.groups() if found else ("", "")
            for one in self._directions:
                if suffix == one.suffix and part in one.shapes:
                    return self._float_weight(one, part)
        return super().__getattr__(name)

    # docs/notes/torch.md: "What a parent assigns is quantized"
    def __setattr__(self, name: str, value: Any) -> None:
        found = _PARAMETER.fullmatch(name) if isinstance(value, Tensor) else None
        for one in self._directions if found else ():
            if found is not None and one.suffix == found[2]:
                self._assign(one, found[1], value)
                return
        super().__setattr__(name, value)

    @ops.uncompiled
    def _assign(self, one: DirectionForm, part: str, value: Tensor) -> None:
        """Hold an assigned float weight or bias: int8, or in the layer's own float type.

        A parent that drops some of a weight in each call assigns so. int8 has a scale for each
        output channel.
        """
        name = part + one.suffix
        kind, _, matrix = part.partition("_")
        if matrix not in one.shapes or (kind == "bias" and not one.bias):
            raise AttributeError(f"{type(self).__name__} has no {name}: it was made without one")
        shape = one.shapes[matrix] if kind == "weight" else one.shapes[matrix][:1]
        if tuple(value.shape) != shape:
            raise ValueError(f"{name}: needs shape {list(shape)}, not {list(value.shape)}")
        if kind == "bias":
            made = {part: value.detach().to("cpu", torch.float32)}
        else:
            made = one.assigned(matrix, value, name)
        self._fill(**{key + one.suffix: tensor for key, tensor in made.items()})

    def _float_weight(self, one: DirectionForm, part: str) -> Tensor:
        return self._computed_weight(
            one.shapes[part],
            lambda: one.weight(self._held(one), part),
            f"weight_{part}{one.suffix}",
        )

    def _parts(self, name: str) -> list[str]:
        ending = name.removeprefix("weight")
        return [key for key in self._own if key in (f"{w}{ending}" for w in _HOLDING)]

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        said = [f"{self.input_size}, {self.hidden_size}"]
        usual = {"num_layers": 1, "bias": True, "nonlinearity": "tanh", "proj_size": 0}
        usual |= {"batch_first": False, "dropout": 0.0, "bidirectional": False}
        said += [
            f"{name}={getattr(self, name)}"
            for name in self.CONFIG
            if name in usual and getattr(self, name) != usual[name]
        ]
        storages = [self.storage] if isinstance(self.storage, str) else self.storage
        return ", ".join([*said, " + ".join(dict.fromkeys(storages))])


def float_names(one: DirectionForm) -> list[str]:
    """PyTorch's names of a direction's weights without their suffix, in its order."""
    biases = ["bias_ih", "bias_hh"] if one.bias else []
    return ["weight_ih", "weight_hh", *biases] + (["weight_hr"] if "hr" in one.shapes else [])


def pair(hx: Any) -> tuple[Tensor, Tensor]:
    """Return `hx` as (h0, c0); raise TypeError where it is no such pair."""
    if not isinstance(hx, (tuple, list)) or len(hx) != 2:
        raise TypeError(f"hx: needs a pair of tensors, (h0, c0), not {type(hx).__name__}")
    return hx[0], hx[1]


def plain_kind(nonlinearity: str) -> Kind:
    """Return the kind of a layer with one gate.

    Raises ValueError for a `nonlinearity` that is neither "tanh" nor "relu".
    """
    kinds = {"tanh": Kind.RNN_TANH, "relu": Kind.RNN_RELU}
    if nonlinearity not in kinds:
        raise ValueError(f"nonlinearity: {nonlinearity!r} must be 'tanh' or 'relu'")
    return kinds[nonlinearity]


def _own_parameters(module: nn.Module) -> list[str]:
    """Names of parameters that torch's layer has not; those of weight_norm and its like it has."""
    norms = ("_g", "_v", "_orig")
    return [
        name
        for name, value in module._parameters.items()
        if value is not None and not _PARAMETER.fullmatch(name) and not name.endswith(norms)
    ]
