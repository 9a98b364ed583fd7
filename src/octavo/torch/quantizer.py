"""One conversion's weights: each is quantized once, whoever shares it, and what it cost is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from octavo.core.half_linear import HalfLinear
from octavo.core.kernels import GroupedWeight
from octavo.core.metrics import sqnr_db
from octavo.torch.memory import float32, tensor_of
from octavo.torch.weight_choice import HALVES, Float32, Integers, WeightChoice, rounded

Buffers = dict[str, Tensor | None]


def _no_statistics(name: str) -> Float32 | None:
    """Return None: without samples nothing is known of inputs."""
    return None


@dataclass
class Quantizer:
    """Quantizes weights for layers, and remembers each layer's noise and notes by its name.

    `shared` are the ids of the weights that several modules hold: those are kept when quantized.
    """

    shared: frozenset[int] = frozenset()
    linears: Mapping[int, Collection[Hashable]] = field(default_factory=dict)
    """By the ids of those, what linear layers hold them as: their choices' `held`."""
    statistics: Callable[[str], Float32 | None] = _no_statistics
    """By a layer's name: what samples tell of its inputs, as `rounded` takes it."""
    by_statistics: set[str] = field(default_factory=set)
    """The layers whose weights were rounded by them."""
    notes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _power: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    _kept: dict[Any, tuple[Tensor, Buffers, tuple[float, float]]] = field(default_factory=dict)

    def integers(
        self,
        choice: WeightChoice,
        weight: Tensor,
        name: str,
        *,
        symmetric: bool = False,
        packed: bool = False,
    ) -> Integers:
        """Quantize `weight` [n, ...] as `choice` says, for the layer `name`."""
        found = choice.integers(float32(weight), name, symmetric=symmetric, packed=packed)
        self.count(name, found.signal, found.noise)
        return found

    def groups(self, choice: WeightChoice, weight: Tensor, name: str) -> GroupedWeight:
        """Quantize `weight` [n, k] in groups as `choice` says, for the layer `name`."""
        statistics = self.statistics(name) if choice.search else None
        if statistics is not None and statistics.shape[-1] != weight.shape[1]:
            statistics = None  # the layer's weight is not what multiplies its input
        if statistics is not None:
            self.by_statistics.add(name)
        found = rounded(choice, float32(weight), name, statistics)
        self.count(name, found.signal, found.noise)
        return found.weight

    def once(
        self,
        choice: WeightChoice,
        weight: Tensor,
        name: str,
        form: str,
        make: Callable[[], Buffers],
    ) -> Buffers:
        """Return what `make` makes of `weight`, computed once for all layers that share the weight.

        `form` says what is made. `make` counts its noise, which is then that of the others too.
        """
        owner = self._owner(weight)
        place = (weight.storage_offset(), weight.shape, weight.stride())
        key = (id(owner), place, choice.held, form)
        if key in self._kept:
            _, made, power = self._kept[key]
            self.count(name, *power)
            return made
        before = tuple(self._power[name])
        made = make()
        if id(owner) in self.shared:
            signal, noise = (b - a for a, b in zip(before, self._power[name], strict=True))
            self._kept[key] = (owner, made, (signal, noise))
        return made

    def _owner(self, weight: Tensor) -> Tensor:
        """Return the shared parameter that `weight` is a part of, or `weight` itself."""
        base = weight._base
        return weight if base is None or id(base) not in self.shared else base

    def count(self, name: str, signal: float, noise: float) -> None:
        """Add to the sums of squares of the layer `name`: of its weight, and of its error."""
        power = self._power[name]
        power[0] += signal
        power[1] += noise

    def count_rounded(self, name: str, weight: Tensor, held: Tensor) -> None:
        """Count the float32 `weight` of the layer `name` and its difference from `held`."""
        self.count(name, _sum_of_squares(weight), _sum_of_squares(weight - held))

    def packed(
        self,
        choice: WeightChoice,
        weight: Tensor,
        name: str,
        as_rows: Callable[[Tensor], Tensor],
    ) -> Buffers:
        """Return `packed`, `scale` and `zero_point` of a linear weight; shared if the weight is.

        `as_rows` makes the weight [n, k]. Zero points of groups are packed with their integers, and
        of 16 bits there is `packed` alone.
        """

        def make() -> Buffers:
            if choice.storage in HALVES:
                return {"packed": self._halves(choice.storage, as_rows(weight), name)}
            if choice.format.group:
                weights = self.groups(choice, as_rows(weight), name)
                scale = tensor_of(weights.channel_scale)
                return {
                    "packed": tensor_of(weights.pack()),
                    "scale": scale,
                    "zero_point": None,
                }
            found = self.integers(choice, as_rows(weight), name, packed=True)
            return {
                "packed": tensor_of(found.q),
                "scale": tensor_of(found.scale),
                "zero_point": tensor_of(found.zero_point),
            }

        return self.once(choice, weight, name, f"packed, {as_rows.__qualname__}", make)

    def _halves(self, dtype: str, rows: Tensor, name: str) -> Tensor:
        values = float32(rows)
        try:
            made = HalfLinear.from_float(values, None, dtype)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        self.count_rounded(name, torch.from_numpy(values), torch.from_numpy(made.weights()))
        return torch.from_numpy(made.packed).view(getattr(torch, dtype))

    def packs(self, weight: Tensor, choice: WeightChoice) -> bool:
        """Tell whether a linear layer holds the same integers of `weight` by `choice`, packed."""
        return choice.held in self.linears.get(id(weight), ())

    def note(self, name: str, text: str) -> None:
        """Note for the layer `name` what was done differently from what was asked."""
        if text:
            self.notes[name].append(text)

    def sqnr_db(self, name: str) -> float | None:
        """Return the SQNR in dB of weights quantized for the layer `name`; None if none were."""
        return sqnr_db(*self._power[name]) if name in self._power else None


def _sum_of_squares(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2


def shared_weights(tensors: Iterable[Tensor]) -> frozenset[int]:
    """Return the ids of tensors that occur more than once."""
    seen: set[int] = set()
    twice: set[int] = set()
    for tensor in tensors:
        (twice if id(tensor) in seen else seen).add(id(tensor))
    return frozenset(twice)
