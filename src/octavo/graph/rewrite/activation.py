"""Finds an activation after a Linear or Conv node, however it is spelt.

Exporters write GELU as one operator, or as five to nine (Erf or Tanh, products in any order). What
counts is the function: the nodes between the layer's output and the point where they meet again are
evaluated in float64 on a grid, and compared with the activations that the kernel has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.functions import Float64, function_of, gelu_by_tanh, gelu_erf
from octavo.graph.context import Context
from octavo.ir.conv import Conv
from octavo.ir.linear import Linear

MOST_NODES = 16
GRID: Float64 = np.concatenate(
    [np.linspace(-12, 12, 2401), np.array([-60.0, -30.0, -20.0, 20.0, 30.0, 60.0])]
)
# Constants are float32 and often written with few digits; GELU and its tanh form are 4.7e-4 apart.
RELATIVE, ABSOLUTE = 2e-6, 5e-6


@dataclass(frozen=True)
class ActivationRule:
    """An activation that kernels have: its name there, and the function in float64."""

    name: str
    reference: Callable[[Float64], Float64]


RELU = ActivationRule("relu", lambda y: np.maximum(y, 0.0))
ACTIVATIONS = (
    RELU,
    ActivationRule("gelu", gelu_erf),
    ActivationRule("gelu_tanh", gelu_by_tanh),
    ActivationRule("silu", lambda y: y / (1.0 + np.exp(-y))),
    ActivationRule("tanh", np.tanh),
    ActivationRule("sigmoid", lambda y: 1.0 / (1.0 + np.exp(-y))),
)
BEHIND_POOLS = (RELU,)
"""The largest of activated numbers is the activated largest, to the bit."""


# docs/notes/native_target.md: "An activation is known by its values"
def fold_activation(node: ir.Node, rules: Sequence[ActivationRule], c: Context) -> ir.Node | None:
    """Fold the activation behind `node` into it, if one of `rules` fits; return the new node."""
    layer = Linear.of(node) or Conv.of(node)
    if layer is None or not layer.takes_activation:
        return None
    for last, values in _closed_regions(node, c.constants):
        for rule in rules:
            if np.allclose(values, _on_grid(rule), RELATIVE, ABSOLUTE):
                return c.absorb(node, last, replace(layer, activation=rule.name))
    return None


@cache
def _on_grid(rule: ActivationRule) -> Float64:
    return rule.reference(GRID)


def _closed_regions(node: ir.Node, constants: ConstantLookup) -> Any:
    """Yield each node where all that reads `node`'s output meets, and its values on the grid."""
    known: dict[ir.Value, Float64] = {node.outputs[0]: GRID}
    region: set[ir.Node] = set()
    while len(region) < MOST_NODES:
        ready = _next(node.graph, known, region, constants)
        if ready is None:
            return
        inner, values = ready
        region.add(inner)
        known[inner.outputs[0]] = values
        last = inner.outputs[0]
        if all(v is last or _inside(v, region) for v in known):
            yield inner, values


def _inside(value: ir.Value, region: set[ir.Node]) -> bool:
    return not value.is_graph_output() and all(use.node in region for use in value.uses())


def _next(
    graph: ir.Graph | None,
    known: dict[ir.Value, Float64],
    region: set[ir.Node],
    constants: ConstantLookup,
) -> tuple[ir.Node, Float64] | None:
    """Return a node that reads `known` values and constants only, and what it computes."""
    for value in known:
        for use in value.uses():
            if use.node in region or use.node.graph is not graph:
                continue
            values = _evaluate(use.node, known, constants)
            if values is not None:
                return use.node, values
    return None


def _evaluate(
    node: ir.Node, known: dict[ir.Value, Float64], constants: ConstantLookup
) -> Float64 | None:
    operands = []
    for v in node.inputs:
        if v is None:
            return None
        operand = known.get(v)
        if operand is None:
            tensor = constants.tensor(v)
            if tensor is None or tensor.size != 1 or len(tensor.shape) > 1:
                return None
            operand = np.asarray(tensor.numpy(), np.float64).reshape(())
        operands.append(operand)
    function = function_of(node)
    if function is None or not 1 <= len(operands) <= 2:
        return None
    with np.errstate(all="ignore"):
        try:
            return np.broadcast_to(function(*operands), GRID.shape)
        except TypeError:  # another number of operands than the function takes
            return None
