"""Normalization of rows as one node.

    Norm(X, weight, [bias])  ->  (X - mean) / sqrt(variance + epsilon) * weight + bias    "layer"
    Norm(X, weight)          ->  X / sqrt(mean of X^2 + epsilon) * weight + bias          "rms"

over the last axis of X [..., N]; weight and bias have N elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from octavo.ir.operator import Operator, Packer, Written, attribute

LAYER_NORM, RMS_NORM = "layer", "rms"


@dataclass(frozen=True)
class Norm(Operator):
    """It holds no weights that are quantized."""

    OPS: ClassVar[tuple[str, ...]] = ("Norm",)
    LEAST: ClassVar[int] = 2

    x: ir.Value
    weight: ir.Value
    bias: ir.Value | None
    kind: str
    epsilon: float

    def write(self, p: Packer) -> Written:
        return Written(self.inputs(), {"kind": self.kind, "epsilon": self.epsilon})

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Norm:
        x, weight, *rest = inputs
        bias = rest[0] if rest else None
        return cls(x, weight, bias, attribute(node, "kind"), attribute(node, "epsilon"))
