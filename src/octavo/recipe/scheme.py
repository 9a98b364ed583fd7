"""How one layer is held: its weight, and its activations while the model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from octavo.core.data import plain
from octavo.core.qparams import QType
from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.reading import LocatedRecipeError, expect, refuse_unknown, within

OBSERVERS = ("minmax", "histogram", "search")
LENGTHS = (16, 32, 64, 128, 256)  # of blocks and groups
GROUPS = (32, 64, 128)  # of weights in groups as Octavo's kernels hold them


class Granularity(Enum):
    """How much of a tensor shares one scale."""

    TENSOR = "tensor"
    CHANNEL = "channel"  # weights: one output channel
    BLOCK = "block"  # weights: `block` consecutive inputs of one output channel
    ROW = "row"  # activations: one vector along the inputs
    GROUP = "group"  # activations: `group` consecutive inputs of one row

    @classmethod
    def parse(cls, text: str) -> Granularity:
        """Return the granularity called `text`. Raises RecipeError, which names the known ones."""
        known = [g.value for g in cls]
        if text not in known:
            raise RecipeError(f"unknown granularity {text!r}.{did_you_mean(text, known)}")
        return cls(text)


def _check_length(key: str, length: int | None, wanted: bool) -> None:
    """Raise LocatedRecipeError unless `length` is one of `LENGTHS` if `wanted`, else None."""
    if (length is not None) != wanted:
        raise LocatedRecipeError(
            f"`{key}` (a length) goes with granularity '{key}', and only with it", (key,)
        )
    if length is not None and length not in LENGTHS:
        known = ", ".join(map(str, LENGTHS))
        raise LocatedRecipeError(f"{key} {length} is not one of {known}", (key,))


@dataclass(frozen=True)
class WeightScheme:
    """How a weight is stored.

    `observer` finds the range: "minmax", "histogram" (least squared error; whole tensors only), or
    "search" (scale and zero point of least squared error; blocks only). `block` is the block
    length, with granularity BLOCK only; weights of 4 bits are always in blocks, of 32, 64 or 128.
    """

    qtype: QType = QType.INT8
    granularity: Granularity = Granularity.CHANNEL
    symmetric: bool = True
    reduce_range: bool = False
    observer: str = "minmax"
    block: int | None = None

    def __post_init__(self) -> None:
        if self.granularity in (Granularity.ROW, Granularity.GROUP):
            raise LocatedRecipeError(
                f"weight granularity {self.granularity.value!r} is for activations; "
                "a weight takes 'tensor', 'channel' or 'block'",
                ("granularity",),
            )
        if self.observer not in OBSERVERS:
            raise LocatedRecipeError(
                f"unknown observer {self.observer!r}.{did_you_mean(self.observer, OBSERVERS)}",
                ("observer",),
            )
        if self.observer == "histogram" and self.granularity is not Granularity.TENSOR:
            raise LocatedRecipeError(
                "observer 'histogram' clips one range of a whole weight; "
                "use it with granularity 'tensor', or observer 'minmax'",
                ("observer",),
            )
        _check_length("block", self.block, self.granularity is Granularity.BLOCK)
        if self.observer == "search" and self.granularity is not Granularity.BLOCK:
            raise LocatedRecipeError(
                "observer 'search' looks at blocks of a weight; say granularity 'block'",
                ("observer",),
            )
        if self.qtype is QType.INT4 and self.block not in GROUPS:
            known = ", ".join(map(str, GROUPS))
            raise LocatedRecipeError(
                f"weights of 4 bits come in blocks of {known} inputs, not {self.block or 'none'}",
                ("block",),
            )


@dataclass(frozen=True)
class ActivationScheme:
    """How a layer's input is quantized while the model runs. `group` goes with GROUP only."""

    qtype: QType = QType.UINT8
    granularity: Granularity = Granularity.ROW
    group: int | None = None

    def __post_init__(self) -> None:
        if self.granularity in (Granularity.CHANNEL, Granularity.BLOCK):
            raise LocatedRecipeError(
                f"activation granularity {self.granularity.value!r} is for weights; "
                "an activation takes 'tensor', 'row' or 'group'",
                ("granularity",),
            )
        if self.qtype is not QType.UINT8:
            raise LocatedRecipeError(
                f"activations are quantized to 'uint8', not {self.qtype.value!r}; "
                "leave `activation` out (null) to keep them float",
                ("qtype",),
            )
        _check_length("group", self.group, self.granularity is Granularity.GROUP)


@dataclass(frozen=True)
class Scheme:
    """How one layer is held. `weight=None` leaves the layer alone: see FLOAT.

    `activation=None` keeps activations in float: only the weight gets smaller.
    """

    weight: WeightScheme | None = WeightScheme()
    activation: ActivationScheme | None = ActivationScheme()

    def __post_init__(self) -> None:
        if self.weight is None and self.activation is not None:
            raise LocatedRecipeError(
                "a scheme with quantized activations needs a quantized weight", ("weight",)
            )
        if self.weight and not self.weight.qtype.is_integer and self.activation:
            raise LocatedRecipeError(
                f"{self.weight.qtype.value} weights take float activations; say `activation: null`",
                ("activation",),
            )

    @property
    def is_float(self) -> bool:
        """Tell whether the layer is left alone."""
        return self.weight is None

    def describe(self) -> str:
        """Describe the scheme for tables, such as `int8 per channel, activations per row`."""
        if self.weight is None:
            return "float"
        w = self.weight
        words = w.qtype.value
        if w.qtype.is_integer:
            per = f"block of {w.block}" if w.block else w.granularity.value
            words += f" per {per}" + ("" if w.symmetric else ", affine")
            words += ", 7 bits" if w.reduce_range else ""
        if self.activation is None:
            return words + ", weights only"
        a = self.activation
        per = f"group of {a.group}" if a.group else a.granularity.value
        return f"{words}, activations per {per}"

    def to_dict(self) -> dict[str, Any] | str:
        """Plain data for YAML and JSON; the word `float` for FLOAT."""
        if self.weight is None:
            return "float"
        parts = {"weight": self.weight, "activation": self.activation}
        return {key: part and _without_none(plain(part)) for key, part in parts.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | str) -> Scheme:
        """Invert `to_dict`; a preset's name stands for its default scheme.

        Unknown keys and values and wrong types raise RecipeError.
        """
        if data == "float":
            return FLOAT
        if isinstance(data, str):
            if data not in SCHEMES:
                known = ["float", *SCHEMES]
                raise LocatedRecipeError(f"unknown scheme {data!r}.{did_you_mean(data, known)}")
            return SCHEMES[data]
        refuse_unknown(data, ("weight", "activation"), "a scheme (or `float`, or a preset's name)")
        return cls(
            _section(WeightScheme, data.get("weight", {}), "weight"),
            _section(ActivationScheme, data.get("activation", {}), "activation"),
        )


def _without_none(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}


def _section(cls: Any, data: Mapping[str, Any] | None, where: str) -> Any:
    """Build the `cls` that `data` describes, key by key; None for None."""
    if data is None:
        return None
    with within(where):
        refuse_unknown(data, cls.__dataclass_fields__, f"`{where}`")
        return cls(**{key: _field(key, value) for key, value in data.items()})


def _field(key: str, value: Any) -> Any:
    if key in ("block", "group"):
        return None if value is None else expect(value, int, key)
    if key in ("symmetric", "reduce_range"):
        return expect(value, bool, key)
    text = expect(value, str, key)
    with within(key):
        if key == "qtype":
            return QType.parse(text)
        return Granularity.parse(text) if key == "granularity" else text


FLOAT = Scheme(weight=None, activation=None)
"""The scheme that leaves a layer alone."""


# docs/notes/rounding.md: "Groups are symmetric"
def in_groups(qtype: QType, length: int, affine: bool = False) -> Scheme:
    """Weights in groups of `length` inputs, with zero points where `affine`; activations likewise.

    The latter have no zero points.
    """
    return Scheme(
        WeightScheme(
            qtype, Granularity.BLOCK, symmetric=not affine, observer="search", block=length
        ),
        ActivationScheme(granularity=Granularity.GROUP, group=length),
    )


SCHEMES = {
    "int8": Scheme(),
    "int8-per-tensor": Scheme(
        WeightScheme(granularity=Granularity.TENSOR),
        ActivationScheme(granularity=Granularity.TENSOR),
    ),
    "int8-accurate": Scheme(
        WeightScheme(symmetric=False),
        ActivationScheme(granularity=Granularity.GROUP, group=128),
    ),
    "int8-block": Scheme(WeightScheme(granularity=Granularity.BLOCK, block=32), None),
    "int4": in_groups(QType.INT4, 32),
    "int4-128": in_groups(QType.INT4, 128),
    "float16": Scheme(WeightScheme(qtype=QType.FLOAT16, granularity=Granularity.TENSOR), None),
}
"""The default schemes of the presets, by their names."""
