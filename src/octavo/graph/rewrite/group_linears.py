"""Linear nodes over one input (Q, K and V; gate and up)  ->  one GroupedLinear.

Its input is quantized once, and is read once while it lies in the cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.context import Context
from octavo.ir.linear import GroupedLinear, Linear


def reference(outputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[np.float64]]:
    """Return the layers' outputs in float64: grouping changes nothing, bit for bit."""
    return [np.asarray(y, np.float64) for y in outputs]


MOST_NODES_BETWEEN = 48
"""Farther apart they are of other layers (what a decoder's layers make of the encoder's outputs):
outputs that nobody reads for long only take memory."""


class _Part(NamedTuple):
    node: ir.Node
    position: int


def group_all(graph: ir.Graph, c: Context) -> dict[str, int]:
    """Group the Linear nodes of `graph` that read the same value."""
    together: dict[Any, list[list[_Part]]] = defaultdict(list)
    for position, node in enumerate(graph):
        linear = Linear.of(node)
        if linear is None or linear.residual is not None:
            continue
        groups = together[linear.x, linear.quantizes]
        if not groups or position - groups[-1][-1].position > MOST_NODES_BETWEEN:
            groups.append([])
        groups[-1].append(_Part(node, position))
    for parts in (group for groups in together.values() for group in groups if len(group) > 1):
        _group([part.node for part in parts], c)
    return {}


def _group(nodes: Sequence[ir.Node], c: Context) -> None:
    # Taken apart only now: what they read may be the output of a group that was drawn before.
    parts = [linear for node in nodes if (linear := Linear.of(node)) is not None]
    names = [node.name or "linear" for node in nodes]
    outs = [node.outputs[0].name or "y" for node in nodes]
    values = c.put(GroupedLinear(tuple(parts)), name="+".join(names), outs=outs)
    c.emitter.flush_before(nodes[0])
    for node, value in zip(nodes, values, strict=True):
        c.sweeper.replace(node, [value])
