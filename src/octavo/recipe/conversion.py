"""What became of a model that went from one target to the other, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from octavo.recipe.report import Verification


@dataclass(frozen=True)
class Conversion:
    """`layers` counts the layers by the operator of domain ai.octavo that holds or held them.

    `notes` say what is otherwise than it was, and what stayed as it was. `verification` compares
    the two files, whose weights are the same integers.
    """

    source: str
    output: str
    target: str
    cpu: str
    layers: Mapping[str, int]
    model_bytes_before: int
    model_bytes_after: int
    opset: int
    min_onnxruntime: str
    verification: Verification
    seconds: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "layers": dict(self.layers), "notes": list(self.notes)}

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        from octavo.report.conversion import conversion_text

        return conversion_text(self)
