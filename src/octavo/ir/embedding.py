"""An embedding lookup as one node.

    Embedding(indices, W, W_scale, W_zero_point)  ->  (W[i] - zero_point[i]) * scale[i]

W is int8 [V, D], or the packed weight [ceil(V/16), ceil(D/4), 16, 4] of an output layer that has
the same numbers (`packed`); the vectors have V elements. Negative indices count from the end. A
table in groups is always packed, as `octavo.ir.linear` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.ir.linear import format_attribute, pack_matrix, stored_matrix
from octavo.ir.operator import Operator, Packer, Written, attribute, format_of
from octavo.ir.weight import Weight, WeightIntegers


def pack_table(
    integers: WeightIntegers,
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    """int8 [V, D] as W is stored: as it is."""
    return np.ascontiguousarray(integers.q), integers.scale, integers.zeros


@dataclass(frozen=True)
class Embedding(Operator):
    """Rows of `weight` [V, D] for `indices` int32 or int64 [...]: float32 [..., *row].

    The product of `row` is D. `packed`: a linear layer of the same graph reads the table too, or
    it is in groups.
    """

    OPS: ClassVar[tuple[str, ...]] = ("Embedding",)
    LEAST: ClassVar[int] = 4
    IN_GROUPS: ClassVar[bool] = True

    indices: ir.Value
    weight: Weight
    row: tuple[int, ...]
    packed: bool = False

    def write(self, p: Packer) -> Written:
        packed = self.packed or self.weight.format.group > 0
        pack, layout = (pack_matrix, "matrix") if packed else (pack_table, "table")
        w = p.packed(self.weight, pack, layout=layout)
        attributes = {
            "V": self.weight.n,
            "D": self.weight.k,
            "shape": list(self.row),
            "packed": int(packed),
            "checksum": w.checksum,
            **format_attribute(self.weight.format),
        }
        return Written([self.indices, w.w, w.scale, w.zero_point], attributes)

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Embedding:
        packed = bool(attribute(node, "packed"))
        n, k = attribute(node, "V"), attribute(node, "D")
        weight = stored_matrix(inputs[1:4], n, k, packed=packed, weight_format=format_of(node))
        return cls(inputs[0], weight, tuple(attribute(node, "shape")), packed)
