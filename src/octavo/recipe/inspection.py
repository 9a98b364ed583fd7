"""What a model holds and what a recipe would do with it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.recipe.layer import Decision


@dataclass(frozen=True)
class Inspection:
    """One decision for each layer, in the model's order.

    `model` is what it is called (a file's path, a module's type), `model_bytes` its size (with
    external data; of a module: its tensors). `opset` and `ir_version` are an ONNX model's, as the
    file has them.

    `weight_bytes` has for each layer the bytes of its weights that no layer before it holds, and
    `macs` its multiply-accumulates in one run (None: not known), for inputs of `sizes` where the
    model leaves sizes open. `uncounted` nodes multiply as well and are no layers. `quantized` says
    what is quantized already, "" in a float model.
    """

    model: str
    model_bytes: int
    recipe_name: str
    decisions: tuple[Decision, ...]
    opset: int | None = None
    ir_version: int | None = None
    weight_bytes: tuple[int, ...] = ()
    macs: tuple[int | None, ...] = ()
    sizes: str = ""
    uncounted: int = 0
    quantized: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        onnx = {} if self.opset is None else {"opset": self.opset, "ir_version": self.ir_version}
        count = len(self.decisions)
        rows = zip(
            self.decisions,
            self.weight_bytes or [d.layer.bytes for d in self.decisions],
            self.macs or [None] * count,
            strict=True,
        )
        return {
            "model": self.model,
            **onnx,
            "model_bytes": self.model_bytes,
            "quantized": self.quantized,
            "recipe": self.recipe_name,
            "sizes": self.sizes,
            "uncounted": self.uncounted,
            "layers": [
                {
                    **d.layer.to_dict(),
                    "own_bytes": own,
                    "macs": macs,
                    "scheme": d.scheme.describe(),
                    "quantized": not d.scheme.is_float,
                    "reason": d.reason,
                }
                for d, own, macs in rows
            ],
        }

    def __str__(self) -> str:
        from octavo.report.inspection import inspection_text

        return inspection_text(self)
