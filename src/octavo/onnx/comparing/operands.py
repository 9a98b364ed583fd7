"""What a float layer multiplies: activations, by the names of their values, and weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from octavo.onnx.constants import Constants
from octavo.onnx.plan.inventory import Site
from octavo.recipe import Kind

_NO_PRODUCT = frozenset({Kind.EMBEDDING, Kind.OTHER})
"""Kinds that look rows up, or of which nobody knows what they multiply."""


def activations(site: Site) -> tuple[str, ...]:
    """Names of what the node multiplies with its weights, or of both operands without weights.

    Empty for a lookup, an operator without a rule, and a layer in a subgraph: what flows there is
    not seen from outside.
    """
    if site.layer.kind in _NO_PRODUCT or site.layer.scope:
        return ()
    # Every operator that has a rule takes activations and matrix first, in either order.
    operands = (v for v in site.node.inputs[:2] if v is not None and v not in site.weights)
    return tuple(dict.fromkeys(v.name for v in operands if v.name))


def weights(site: Site, constants: Constants) -> Iterator[npt.NDArray[Any]]:
    """The layer's weights one by one, as they are stored: perhaps transposed."""
    for weight in site.weights:
        leaf = constants.root(weight).leaf
        yield constants.array(leaf)
        constants.release(leaf)
