"""What a model holds and what a recipe would do with it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.recipe.layer import Decision


@dataclass(frozen=True)
class Inspection:
    """One decision for each layer, in the model's order.

    `model` is what it is called (a file's path, a module's type), `model_bytes` its size (with
    external data; of a module: its tensors). `opset` and `ir_version` are an ONNX model's.
    """

    model: str
    model_bytes: int
    recipe_name: str
    decisions: tuple[Decision, ...]
    opset: int | None = None
    ir_version: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        onnx = {} if self.opset is None else {"opset": self.opset, "ir_version": self.ir_version}
        return {
            "model": self.model,
            **onnx,
            "model_bytes": self.model_bytes,
            "recipe": self.recipe_name,
            "layers": [
                {
                    **d.layer.to_dict(),
                    "scheme": d.scheme.describe(),
                    "quantized": not d.scheme.is_float,
                    "reason": d.reason,
                }
                for d in self.decisions
            ],
        }
