"""A linear layer over rows of a matrix, between two Reshapes  ->  one that keeps the axes.

    x [B, S, K] ─ Reshape([-1, K]) ─ Linear ─ Reshape([B, S, N])   ->   Linear(x)

Exporters write it of GPT-2's Conv1D. What stands behind has the axes of the model again, so that
activations and residuals can be taken in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.computed_shapes import SizeOf, sizes
from octavo.graph.analysis.kept_axes import leaves_rows
from octavo.graph.analysis.walk import only_reader
from octavo.graph.context import Context
from octavo.ir.linear import Linear


def reference(x: npt.NDArray[Any], w: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Compute the reference in float64: x [B, S, K] and w [K, N] -> [B, S, N]."""
    flat = np.asarray(x, np.float64).reshape(-1, x.shape[-1]) @ w
    rows: npt.NDArray[np.float64] = flat.reshape(*x.shape[:-1], w.shape[-1])
    return rows


def keep_axes(node: ir.Node, c: Context) -> ir.Node | None:
    """Drop the Reshapes before and behind the Linear `node`; return the new node, or None."""
    linear = Linear.of(node)
    assert linear is not None
    flat, reader = linear.x.producer(), only_reader(node.outputs[0])
    if linear.residual is not None or flat is None or reader is None or reader[1] != 0:
        return None
    source, apart = flat.inputs[0] if flat.inputs else None, reader[0]
    if source is None or not _reshapes(flat) or not _reshapes(apart):
        return None
    into, back = (sizes(r.inputs[1], c.constants) for r in (flat, apart))
    if into is None or back is None or not _flattens(source, into, linear.weight.k):
        return None
    if not _parts(source, back, linear.weight.n):
        return None
    return c.absorb(node, apart, replace(linear, x=source))


def _flattens(source: ir.Value, into: list[int | SizeOf], k: int) -> bool:
    """Tell whether a Reshape of [B, S, K] into `into` gives rows of K."""
    known = source.shape is not None and len(source.shape) == 3 and source.shape[2] == k
    return known and len(into) == 2 and into[1] == k and into[0] != 0


def _parts(source: ir.Value, back: list[int | SizeOf], n: int) -> bool:
    """Tell whether a Reshape of rows of N into `back` gives [B, S, N], as `source` has B and S."""
    if len(back) != 3 or 0 in back:
        return False
    return back[2] == n and leaves_rows(back[:2], source, None, zero_is_size=True)


def _reshapes(node: ir.Node) -> bool:
    return node.op_type == "Reshape" and node.domain in ("", "ai.onnx")
