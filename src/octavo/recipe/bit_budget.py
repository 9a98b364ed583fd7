"""Which layers of a model get more bits than others, for a size that all of them keep to.

Each layer may be held in several ways, from few bytes to many. All begin with the fewest; then that
layer gets more whose outputs gain most for a byte, as long as the size allows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from octavo.core.layer import Kind, Layer
from octavo.core.qparams import QType
from octavo.errors import TooFewBitsError
from octavo.recipe.held_bytes import Storage, held_bytes
from octavo.recipe.reading import LocatedRecipeError, expect, refuse_unknown, within
from octavo.recipe.scheme import Granularity, Scheme, in_groups

_BITS = 5.0  # a weight, where nobody says otherwise


class Held(NamedTuple):
    """Weights of so many bits, in groups of so many inputs, with zero points where affine."""

    bits: int
    group: int
    affine: bool = False


WAYS = (
    Held(4, 128),
    Held(4, 64),
    Held(4, 64, affine=True),
    Held(4, 32),
    Held(4, 32, affine=True),
    Held(8, 32),
)
"""How layers of a mix may be held, from few bytes to many."""
# Of each, the squared error over the square of what it holds: Gaussian weights rounded by search.
_NOISE = (9.3e-3, 8.0e-3, 7.4e-3, 6.5e-3, 5.8e-3, 2.3e-5)
_USUAL = WAYS.index(Held(4, 32))
GROWTH = 0.85
"""By what power of a layer's size its loss grows, where nobody measured it."""
_KINDS = (Kind.LINEAR, Kind.EMBEDDING)


@dataclass(frozen=True)
class Mix:
    """How large the weights of a recipe's linear layers and tables may become together.

    `bits` a weight of all quantized layers, scales and all that belongs to them included, or
    `size`, bytes of all weights of the model, those of layers left float too; without either about
    5 bits, and more where the smallest way to hold layers takes more. `sensitivities` tell by a
    layer's name how much outputs lose where it is held in each of `WAYS`; a number alone stands
    for what they lose by the same relative error of its weights. Other layers count by their size.
    """

    bits: float | None = None
    size: int | None = None
    sensitivities: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.bits is not None and self.size is not None:
            raise LocatedRecipeError(
                "give one of `bits` (a weight) and `size` (bytes of all weights)", ("bits",)
            )
        limits: dict[str, float | None] = {"bits": self.bits, "size": self.size}
        for key, value in limits.items():
            if value is not None and not 0.0 < value < math.inf:
                raise LocatedRecipeError(f"{key} {value} must be above 0 and finite", (key,))
        for name, said in self.sensitivities.items():
            losses = said if isinstance(said, tuple) else (said,)
            if len(losses) not in (1, len(WAYS)) or not all(0 <= x < math.inf for x in losses):
                raise LocatedRecipeError(
                    f"the sensitivity of {name!r} is {said}; it must be a number of 0 or more, or "
                    f"{len(WAYS)} of them",
                    ("sensitivities",),
                )

    @property
    def is_limited(self) -> bool:
        """Tell whether somebody says how large weights may become."""
        return self.bits is not None or self.size is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for YAML and JSON."""
        limits = {"bits": self.bits, "size": self.size}
        losses = {k: list(v) if isinstance(v, tuple) else v for k, v in self.sensitivities.items()}
        known = {"sensitivities": losses} if losses else {}
        return {**{key: value for key, value in limits.items() if value is not None}, **known}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Mix:
        """Invert `to_dict`. Unknown keys and values and wrong types raise RecipeError."""
        refuse_unknown(data, ("bits", "size", "sensitivities"), "`mix`")
        known = data.get("sensitivities", {})
        with within("sensitivities"):
            if not isinstance(known, Mapping):
                raise LocatedRecipeError("sensitivities are numbers by the names of layers")
            found = {str(name): _losses(str(name), value) for name, value in known.items()}
        bits = expect(data["bits"], float, "bits") if "bits" in data else None
        size = expect(data["size"], int, "size") if "size" in data else None
        return cls(bits, size, found)


def _losses(name: str, value: object) -> float | tuple[float, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(expect(one, float, name) for one in value)
    return expect(value, float, name)


@dataclass(frozen=True)
class _Way:
    """One way to hold a layer."""

    scheme: Scheme
    bytes: int
    error: float


def mixes(layer: Layer) -> bool:
    """Tell whether a mix chooses how `layer` is held, where no rule does."""
    return layer.kind in _KINDS and all(len(shape) == 2 for _, shape in layer.weights)


class Rest(NamedTuple):
    """Of the weights that a mix leaves alone: bytes of all, bytes and numbers of quantized ones."""

    bytes: int
    quantized: int
    weights: int


def mixed(
    mix: Mix, layers: Sequence[Layer], rest: Rest, storage: Storage = Storage.PACKED
) -> dict[str, Scheme]:
    """Choose a scheme for each of `layers`, by name; `rest` is what the model holds beside them.

    Layers that share weights are held alike. Raises TooFewBitsError where even the smallest way to
    hold them takes more than `mix` allows.
    """
    units = _together(layers)
    usual = _usual(mix, units)
    ways = [_hull(_ways(mix, unit, usual, storage)) for unit in units]
    chosen = [0] * len(units)
    weights = sum(_elements(unit) for unit in units)
    allowed = (mix.bits or _BITS) * (weights + rest.weights) / 8 - rest.quantized
    if mix.size is not None:
        allowed = mix.size - rest.bytes
    left = allowed - sum(some[0].bytes for some in ways)
    if left < 0 and (mix.bits or mix.size):
        least = allowed - left
        text = _too_small(mix, least, weights, rest)
        raise TooFewBitsError(text, math.ceil(least + rest.bytes))
    steps = [(i, j) for i, some in enumerate(ways) for j in range(1, len(some))]

    def gain(step: tuple[int, int]) -> float:
        before, after = ways[step[0]][step[1] - 1], ways[step[0]][step[1]]
        return (before.error - after.error) / (after.bytes - before.bytes)

    for i, j in sorted(steps, key=gain, reverse=True):
        more = ways[i][j].bytes - ways[i][j - 1].bytes
        if chosen[i] == j - 1 and more <= left:
            chosen[i] = j
            left -= more
    return {layer.name: ways[i][chosen[i]].scheme for i, unit in enumerate(units) for layer in unit}


def _together(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Layers with the others that share their weights."""
    first = {layer.name: layer.name for layer in layers}
    for layer in layers:
        for other in layer.shares_with:
            if other in first:
                a, b = first[layer.name], first[other]
                first = {name: a if root == b else root for name, root in first.items()}
    units: dict[str, list[Layer]] = defaultdict(list)
    for layer in layers:
        units[first[layer.name]].append(layer)
    return list(units.values())


def _elements(unit: Sequence[Layer]) -> int:
    return sum(math.prod(shape) for _, shape in unit[0].weights)


def _usual(mix: Mix, units: Sequence[Sequence[Layer]]) -> float:
    """Average, over units of known sensitivity, the loss for their size; 1 where there is none."""
    known = [unit for unit in units if any(layer.name in mix.sensitivities for layer in unit)]
    lost = sum(_lost(mix, unit, 0.0)[_USUAL] for unit in known)
    return lost / sum(map(_weight, known)) / _NOISE[_USUAL] if lost else 1.0


def _weight(unit: Sequence[Layer]) -> float:
    return float(_elements(unit) ** GROWTH)


def _lost(mix: Mix, unit: Sequence[Layer], usual: float) -> list[float]:
    """Return what outputs lose where the layers of `unit` are held in each of `WAYS`."""
    said = [mix.sensitivities[layer.name] for layer in unit if layer.name in mix.sensitivities]
    if not said:
        said = [usual * _weight(unit)]
    each = [s if isinstance(s, tuple) else [s * noise for noise in _NOISE] for s in said]
    return [sum(losses) for losses in zip(*each, strict=True)]


def _ways(mix: Mix, unit: Sequence[Layer], usual: float, storage: Storage) -> list[_Way]:
    schemes = [_scheme(held) for held in WAYS]
    return [
        _Way(scheme, held_bytes(unit[0], scheme.weight, storage), lost)
        for scheme, lost in zip(schemes, _lost(mix, unit, usual), strict=True)
    ]


def _scheme(held: Held) -> Scheme:
    return in_groups(QType.INT4 if held.bits == 4 else QType.INT8, held.group, held.affine)


USUAL = _scheme(WAYS[_USUAL])
"""How layers are held before bits are given to them."""


def is_grouped(scheme: Scheme) -> bool:
    """Tell whether weights are in groups, so that a mix may choose others for them."""
    return scheme.weight is not None and scheme.weight.block is not None


def like(default: Scheme, chosen: Scheme) -> Scheme:
    """Return `chosen`, whose activations are quantized as those of `default`, or not at all."""
    activation = default.activation
    if activation is not None and activation.granularity is Granularity.GROUP:
        return chosen  # in groups of its own length
    return replace(chosen, activation=activation)


def _hull(ways: Sequence[_Way]) -> list[_Way]:
    """Return those ways of which each gains less for a byte than the one before it."""
    kept: list[_Way] = []
    for way in ways:
        while kept and way.bytes <= kept[-1].bytes:  # fewer inputs than a long group has
            kept.pop()
        if kept and way.error > kept[-1].error:  # measured, with noise
            continue
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) <= _slope(kept[-1], way):
            kept.pop()
        kept.append(way)
    return kept


def _slope(a: _Way, b: _Way) -> float:
    return (a.error - b.error) / (b.bytes - a.bytes)


def _too_small(mix: Mix, least: float, weights: int, rest: Rest) -> str:
    if mix.size is not None:
        return (
            f"size {mix.size}: the model's weights take {math.ceil(least + rest.bytes)} bytes or "
            f"more, {rest.bytes} of them in layers that the mix leaves alone; allow that many"
        )
    needed = math.ceil(80 * (least + rest.quantized) / max(1, weights + rest.weights)) / 10
    of = f", {rest.quantized} bytes by rules or in layers without groups," if rest.quantized else ""
    return f"bits {mix.bits}: these layers take{of} {needed} a weight or more; allow that many"
