"""An embedding lookup as one node.

    Embedding(indices, W, W_scale, W_zero_point)  ->  (W[i] - zero_point[i]) * scale[i]

W is int8 [V, D], or the packed weight [ceil(V/16), ceil(D/4), 16, 4] of an output layer that has
the same numbers (`packed`); the vectors have V elements. Negative indices count from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN
from octavo.graph.native.linear import PackedValues

OP = "Embedding"


def embedding(
    e: Emitter,
    indices: ir.Value,
    table: PackedValues,
    row: Sequence[int],
    *,
    packed: bool,
    name: str,
    out: str,
) -> ir.Value:
    """Rows of `table` [n, k] for `indices` int32 or int64 [...]: float32 [..., *row].

    The product of `row` is k. `packed` says how `table.w` lies.
    """
    return e.op(
        OP,
        [indices, table.w, table.scale, table.zero_point],
        out=out,
        name=name,
        domain=DOMAIN,
        V=table.n,
        D=table.k,
        shape=list(row),
        packed=int(packed),
        checksum=table.checksum,
    )


@dataclass(frozen=True)
class EmbeddingNode:
    """An Embedding node, taken apart."""

    indices: ir.Value
    table: PackedValues
    row: tuple[int, ...]
    packed: bool

    @classmethod
    def of(cls, node: ir.Node) -> EmbeddingNode | None:
        """What `node` is made of; None for another operator."""
        if node.domain != DOMAIN or node.op_type != OP:
            return None
        indices, w, scale, zero = (v for v in node.inputs if v is not None)
        a = node.attributes
        rows, width, digest = (a[name].as_int() for name in ("V", "D", "checksum"))
        table = PackedValues(w, scale, zero, rows, width, digest)
        return cls(indices, table, tuple(a["shape"].as_ints()), bool(a["packed"].as_int()))
