"""What became of every layer: the outcome of a quantization as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from octavo.recipe.layer import Layer

VERSION = 1


@dataclass(frozen=True)
class LayerOutcome:
    """One layer: whether it was quantized, how, or why not.

    `scheme` is in words (`Scheme.describe`); `notes` say where the result differs from what the
    recipe asked; bytes count weights, scales and zero points, a shared weight once (at its first
    layer); `sqnr_db` is the weight's signal to quantization noise ratio.
    """

    layer: Layer
    quantized: bool
    scheme: str
    reason: str
    bytes_before: int
    bytes_after: int
    sqnr_db: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """How the quantized model compares with the float one.

    `status` is "passed", "loaded" (it loads, but was not compared, and `detail` says why) or
    "skipped". `error` is the worst output's error (`octavo.core.metrics`), `cosine_error` likewise,
    `inputs` says whether inputs were given or made up.
    """

    status: str
    inputs: str = "none"
    runs: int = 0
    error: float | None = None
    cosine_error: float | None = None
    max_error: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The outcome for every layer, with bytes before and after; prints as a table, dumps as JSON.

    `model_bytes_*` are the sizes of the files (with external data). `min_onnxruntime` and `opset`
    say what the result needs, `notes` what was changed beside the layers.
    """

    source: str
    output: str
    recipe: Mapping[str, Any]
    target: str
    cpu: str
    quant_format: str
    layers: tuple[LayerOutcome, ...]
    model_bytes_before: int
    model_bytes_after: int
    opset: int
    min_onnxruntime: str
    verification: Verification
    seconds: float
    notes: tuple[str, ...] = ()
    version: int = field(default=VERSION)

    @property
    def quantized(self) -> tuple[LayerOutcome, ...]:
        """The layers that were quantized."""
        return tuple(o for o in self.layers if o.quantized)

    @property
    def left_float(self) -> tuple[LayerOutcome, ...]:
        """The layers that were left float, each with its reason."""
        return tuple(o for o in self.layers if not o.quantized)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = asdict(self)
        data["recipe"] = dict(self.recipe)
        data["layers"] = [
            {**asdict(o), "layer": o.layer.to_dict(), "notes": list(o.notes)} for o in self.layers
        ]
        data["notes"] = list(self.notes)
        return data

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text; an infinite SQNR is written as null."""
        data = self.to_dict()
        for outcome in data["layers"]:
            if outcome["sqnr_db"] in (float("inf"), float("-inf")):
                outcome["sqnr_db"] = None
        return json.dumps(data, indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The inverse of `to_dict`."""
        values = dict(data)
        values["verification"] = Verification(**values["verification"])
        values["layers"] = tuple(
            LayerOutcome(**{**o, "layer": Layer.from_dict(o["layer"]), "notes": tuple(o["notes"])})
            for o in values["layers"]
        )
        values["notes"] = tuple(values["notes"])
        return cls(**values)

    def __str__(self) -> str:
        from octavo.report.table import report_text

        return report_text(self)
