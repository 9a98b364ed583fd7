"""How a quantized model differs from the float one: its outputs, and layer by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from octavo.core.tally import Tally
from octavo.recipe.ranges import Range

VERSION = 1


@dataclass(frozen=True)
class Difference:
    """How far the quantized model's numbers are from the float one's, over all runs as one.

    `error` is `octavo.core.metrics.relative_error` (half the squared distance over the squared
    length; infinite where the quantized numbers are not finite), `sqnr_db` the same in decibels,
    `cosine` None where a vector has no direction, `max_error` the largest absolute difference of
    finite numbers. `values` are the numbers compared: those that are finite in the float model.
    `non_finite` of them are not finite in the quantized one; `float_non_finite` are left out.
    """

    error: float
    sqnr_db: float
    cosine: float | None
    max_error: float
    values: int
    non_finite: int = 0
    float_non_finite: int = 0

    @classmethod
    def of(cls, tally: Tally) -> Difference | None:
        """What was counted; None where there was nothing to compare."""
        if not tally.values and not tally.reference_non_finite:
            return None
        return cls(
            tally.error,
            tally.sqnr_db,
            tally.cosine,
            tally.largest,
            tally.values,
            tally.non_finite,
            tally.reference_non_finite,
        )


@dataclass(frozen=True)
class OutputDifference:
    """One output of the model.

    `top1` is the share of rows (along the last axis) whose largest number is at the same place; of
    outputs that are no floating-point numbers, the share of elements that are equal. None where
    there are no such rows. `difference` is None where nothing could be compared; `note` says why.
    `scores` is False for rows that are vectors (hidden states, embeddings): the place of their
    largest number means nothing.
    """

    name: str
    difference: Difference | None
    top1: float | None = None
    note: str = ""
    scores: bool = True

    @property
    def agreement(self) -> float | None:
        """`top1`, where it means something."""
        return self.top1 if self.scores else None


@dataclass(frozen=True)
class LayerDifference:
    """One quantized layer.

    `alone` is its error when it is fed what the float model feeds it, `accumulated` that of the
    same numbers in the quantized model as it runs. `at` names the values that are compared: the
    layer's outputs, or the next ones that both models have (behind an activation that the layer
    has taken in, for example).

    `inputs` is the range of what the float model multiplies with the weights in these runs: of
    several tensors (query, key and value; a product of two activations) the one with the largest
    peak. `weights` is that of the float weights, all as one. None where there are none, as for the
    inputs of an embedding, or where they are not seen: inside of a subgraph, for example.
    """

    name: str
    kind: str
    op: str
    at: tuple[str, ...]
    alone: Difference | None
    accumulated: Difference | None
    notes: tuple[str, ...] = ()
    inputs: Range | None = None
    weights: Range | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """Larger is worse: the error alone, then the accumulated one."""
        return _error(self.alone), _error(self.accumulated)


def _error(difference: Difference | None) -> float:
    return -1.0 if difference is None else difference.error


@dataclass(frozen=True)
class Comparison:
    """A float model and a quantized form of it, compared on the same inputs.

    `layers` are the quantized ones, the worst first: by their error alone, then by the accumulated
    one. `left_float` counts the others. `target` is "portable", "native" or "torch"; `inputs` says
    whether inputs were "given" or "made up".
    """

    float_model: str
    quantized_model: str
    target: str
    inputs: str
    runs: int
    outputs: tuple[OutputDifference, ...]
    layers: tuple[LayerDifference, ...]
    left_float: int
    notes: tuple[str, ...] = ()
    version: int = field(default=VERSION)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        data["outputs"], data["notes"] = list(data["outputs"]), list(self.notes)
        data["layers"] = [
            {**layer, "at": list(layer["at"]), "notes": list(layer["notes"])}
            for layer in data["layers"]
        ]
        return data

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text, which has no infinity: such numbers are null.

        `error` 0 tells an infinite SQNR of equal numbers from that of hopeless ones.
        """
        return json.dumps(_finite(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The inverse of `to_dict`; infinities that JSON lost come back."""
        values = dict(data)
        values["outputs"] = tuple(
            OutputDifference(**{**o, "difference": _difference(o["difference"])})
            for o in data["outputs"]
        )
        values["layers"] = tuple(
            LayerDifference(
                **{
                    **layer,
                    "at": tuple(layer["at"]),
                    "alone": _difference(layer["alone"]),
                    "accumulated": _difference(layer["accumulated"]),
                    "notes": tuple(layer["notes"]),
                    "inputs": _range(layer.get("inputs")),
                    "weights": _range(layer.get("weights")),
                }
            )
            for layer in data["layers"]
        )
        values["notes"] = tuple(data["notes"])
        return cls(**values)

    def __str__(self) -> str:
        from octavo.report.comparison import comparison_text

        return comparison_text(self)


def worst_first(layers: Sequence[LayerDifference]) -> tuple[LayerDifference, ...]:
    """Layers in the order of a Comparison; those that are equally bad stay as they are."""
    return tuple(sorted(layers, key=lambda layer: layer.rank, reverse=True))


def _difference(data: Mapping[str, Any] | None) -> Difference | None:
    if data is None:
        return None
    error = math.inf if data["error"] is None else data["error"]
    endless = math.inf if error == 0.0 else -math.inf
    sqnr = endless if data["sqnr_db"] is None else data["sqnr_db"]
    return Difference(**{**data, "error": error, "sqnr_db": sqnr})


def _range(data: Mapping[str, Any] | None) -> Range | None:
    if data is None:
        return None
    return Range(**{**data, "rms": math.inf if data["rms"] is None else data["rms"]})


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
