"""What was measured of a quantized model beside the float one, and beside ONNX Runtime's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from octavo.results.benchmark import Benchmark, Pair, Timed
from octavo.results.comparison import Comparison

FLOAT = "float"
QUANTIZED = "quantized"
ORT = "quantize_dynamic"
"""The names of the models in `Evidence.benchmark`."""


@dataclass(frozen=True)
class Evidence:
    """Measurements of one quantized model, each None where it was not made; `notes` say why.

    `comparison` is that with the float model, layer by layer. `benchmark` times the models `FLOAT`,
    `QUANTIZED` and, where it could be made, `ORT`: what ONNX Runtime's `quantize_dynamic` makes of
    the float model with its default options; `ort` is the comparison of that with the float model.
    """

    comparison: Comparison | None = None
    benchmark: Benchmark | None = None
    ort: Comparison | None = None
    notes: tuple[str, ...] = ()

    def timed(self, name: str) -> Timed | None:
        """Return the figures of the model `name`; None where that model was not timed."""
        found = self.benchmark.models if self.benchmark is not None else ()
        return next((one for one in found if one.name == name), None)

    def pair(self, a: str, b: str) -> Pair | None:
        """Return the time of `b` over that of `a`; None where one of them was not timed."""
        found = self.benchmark.rows if self.benchmark is not None else ()
        return next((pair for pair in found if (pair.a, pair.b) == (a, b)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in which numbers that are not finite are null."""
        return {
            "comparison": _data(self.comparison),
            "benchmark": _data(self.benchmark),
            "ort": _data(self.ort),
            "notes": list(self.notes),
        }


def _data(part: Comparison | Benchmark | None) -> Any:
    return None if part is None else json.loads(part.to_json(indent=None))
