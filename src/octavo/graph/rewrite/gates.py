"""Two Linear nodes over one input whose outputs are multiplied  ->  one GatedLinear.

    x ─┬─ Linear(gate), silu ─┐
       └─ Linear(up) ──────── Mul    ->   GatedLinear(x)        (SwiGLU, GeGLU, ReGLU, GLU)

The product is made while the factors lie in the cache. At most one of both has an activation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.walk import only_reader
from octavo.graph.context import Context
from octavo.ir.linear import GatedLinear, Linear


def reference(gate: npt.NDArray[Any], up: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Compute the reference in float64: the outputs [..., N] of two layers -> their product."""
    y: npt.NDArray[np.float64] = np.asarray(gate, np.float64) * up
    return y


def fuse_gates(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Fuse every pair of Linear nodes of `graph` whose outputs are multiplied."""
    for node in list(graph):
        if node.op_type == "Mul" and node.domain in ("", "ai.onnx") and len(node.inputs) == 2:
            _fuse(node, c)
    return {}


def _fuse(product: ir.Node, c: Context) -> None:
    nodes = [None if v is None else _made_for(v, product) for v in product.inputs]
    first, second = (None if n is None else Linear.of(n) for n in nodes)
    if first is None or second is None or not _are_alike(first, second):
        return
    pair = [(nodes[0], first), (nodes[1], second)]
    if first.activation == "none":  # that of the first is applied on the way
        pair.reverse()
    names = [node.name or "linear" for node, _ in pair if node is not None]
    for node in nodes:
        if node is not None:
            c.names.nodes.free(node.name)
    out = product.outputs[0].name or "y"
    gated = GatedLinear(tuple(linear for _, linear in pair))
    c.replace(product, c.put(gated, name="+".join(names), outs=[out]))


def _made_for(value: ir.Value, reader: ir.Node) -> ir.Node | None:
    """Return the node that makes `value` for `reader` alone; else None."""
    found = only_reader(value)
    return value.producer() if found is not None and found[0] is reader else None


def _are_alike(a: Linear, b: Linear) -> bool:
    if "none" not in (a.activation, b.activation):  # the operator applies one
        return False
    same = a.x is b.x and a.weight.n == b.weight.n and a.quantizes == b.quantizes
    return same and a.residual is None and b.residual is None
