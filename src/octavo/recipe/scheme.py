"""How one layer is held: its weight, and its activations while the model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from octavo.core.qtype import QType
from octavo.errors import RecipeError, did_you_mean

OBSERVERS = ("minmax", "histogram")


class Granularity(Enum):
    """How much of a tensor shares one scale."""

    TENSOR = "tensor"
    CHANNEL = "channel"  # weights: one output channel
    BLOCK = "block"  # weights: `block` consecutive inputs of one output channel
    ROW = "row"  # activations: one vector along the inputs
    GROUP = "group"  # activations: `group` consecutive inputs of one row


@dataclass(frozen=True)
class WeightScheme:
    """How a weight is stored.

    `observer` finds the range: "minmax", or "histogram" (least squared error; whole tensors only).
    `block` is the block length, with granularity BLOCK only.
    """

    qtype: QType = QType.INT8
    granularity: Granularity = Granularity.CHANNEL
    symmetric: bool = True
    reduce_range: bool = False
    observer: str = "minmax"
    block: int | None = None

    def __post_init__(self) -> None:
        if self.granularity in (Granularity.ROW, Granularity.GROUP):
            raise RecipeError(
                f"weight granularity {self.granularity.value!r} is for activations; "
                "a weight takes 'tensor', 'channel' or 'block'"
            )
        if self.observer not in OBSERVERS:
            raise RecipeError(
                f"unknown observer {self.observer!r}.{did_you_mean(self.observer, OBSERVERS)}"
            )
        if self.observer == "histogram" and self.granularity is not Granularity.TENSOR:
            raise RecipeError(
                "observer 'histogram' clips one range of a whole weight; "
                "use it with granularity 'tensor', or observer 'minmax'"
            )
        if (self.block is not None) != (self.granularity is Granularity.BLOCK):
            raise RecipeError("'block' (a length) goes with granularity 'block', and only with it")
        if self.block is not None and (self.block not in (16, 32, 64, 128, 256)):
            raise RecipeError(f"block {self.block} is not one of 16, 32, 64, 128, 256")


@dataclass(frozen=True)
class ActivationScheme:
    """How a layer's input is quantized while the model runs. `group` goes with GROUP only."""

    qtype: QType = QType.UINT8
    granularity: Granularity = Granularity.ROW
    group: int | None = None

    def __post_init__(self) -> None:
        if self.granularity in (Granularity.CHANNEL, Granularity.BLOCK):
            raise RecipeError(
                f"activation granularity {self.granularity.value!r} is for weights; "
                "an activation takes 'tensor', 'row' or 'group'"
            )
        if self.qtype is not QType.UINT8:
            raise RecipeError(
                f"activations are quantized to 'uint8', not {self.qtype.value!r}; "
                "leave `activation` out (null) to keep them float"
            )
        if (self.group is not None) != (self.granularity is Granularity.GROUP):
            raise RecipeError("'group' (a length) goes with granularity 'group', and only with it")


@dataclass(frozen=True)
class Scheme:
    """How one layer is held. `weight=None` leaves the layer alone: see FLOAT.

    `activation=None` keeps activations in float: only the weight gets smaller.
    """

    weight: WeightScheme | None = WeightScheme()
    activation: ActivationScheme | None = ActivationScheme()

    def __post_init__(self) -> None:
        if self.weight is None and self.activation is not None:
            raise RecipeError("a scheme with quantized activations needs a quantized weight")
        if self.weight and not self.weight.qtype.is_integer and self.activation:
            raise RecipeError(f"{self.weight.qtype.value} weights take float activations (null)")

    @property
    def is_float(self) -> bool:
        """Whether the layer is left alone."""
        return self.weight is None

    def describe(self) -> str:
        """A few words for tables, such as `int8 per channel, activations per row`."""
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
        w, a = self.weight, self.activation
        weight: dict[str, Any] = {
            "qtype": w.qtype.value,
            "granularity": w.granularity.value,
            "symmetric": w.symmetric,
            "reduce_range": w.reduce_range,
            "observer": w.observer,
        }
        if w.block is not None:
            weight["block"] = w.block
        if a is None:
            return {"weight": weight, "activation": None}
        activation: dict[str, Any] = {
            "qtype": a.qtype.value,
            "granularity": a.granularity.value,
        }
        if a.group is not None:
            activation["group"] = a.group
        return {"weight": weight, "activation": activation}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | str) -> Scheme:
        """The inverse of `to_dict`. Unknown keys and values raise RecipeError."""
        if data == "float":
            return FLOAT
        if isinstance(data, str):
            from octavo.recipe.presets import preset

            return preset(data).default
        _refuse_unknown(data, ("weight", "activation"), "a scheme")
        return cls(
            _section(WeightScheme, data.get("weight", {}), "weight"),
            _section(ActivationScheme, data.get("activation", {}), "activation"),
        )


def _section(cls: Any, data: Mapping[str, Any] | None, where: str) -> Any:
    if data is None:
        return None
    _refuse_unknown(data, cls.__dataclass_fields__, where)
    values = dict(data)
    if "qtype" in values:
        values["qtype"] = QType.parse(str(values["qtype"]))
    if "granularity" in values:
        text = str(values["granularity"])
        known = [g.value for g in Granularity]
        if text not in known:
            raise RecipeError(f"unknown granularity {text!r}.{did_you_mean(text, known)}")
        values["granularity"] = Granularity(text)
    return cls(**values)


def _refuse_unknown(data: Mapping[str, Any], known: Any, where: str) -> None:
    if not isinstance(data, Mapping):
        raise RecipeError(f"{where} is a mapping with {', '.join(known)}; got {data!r}")
    for key in data:
        if key not in known:
            raise RecipeError(f"unknown key {key!r} in {where}.{did_you_mean(str(key), known)}")


FLOAT = Scheme(weight=None, activation=None)
