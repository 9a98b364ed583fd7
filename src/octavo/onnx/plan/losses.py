"""What layers of an ONNX model lose by fewer bits, as their weights tell it."""

from __future__ import annotations

import numpy as np

from octavo.onnx.constants import Constants
from octavo.onnx.operators.linear import LinearReader
from octavo.onnx.plan.inventory import Site
from octavo.recipe import Kind
from octavo.recipe.weight_losses import some_rows, weight_losses


def losses_of(site: Site, constants: Constants) -> tuple[float, ...] | None:
    """Return what the layer loses, by way of a mix.

    None for a weight whose inputs have no axis of their own, and for NaN and infinity. The losses
    of several tables are summed up. A weight is let go of before the next one is read.
    """
    by_inputs = site.layer.kind is Kind.EMBEDDING or _has_inputs_last(site, constants)
    if by_inputs is None:
        return None
    total: tuple[float, ...] | None = None
    for value in site.weights:
        matrix = constants.array(value)
        rows = np.ascontiguousarray(some_rows(matrix if by_inputs else matrix.T), np.float32)
        found = weight_losses(rows, matrix.size)
        del matrix
        constants.release(value)
        if found is None:
            return None
        total = found if total is None else tuple(map(sum, zip(total, found, strict=True)))
    return total


def _has_inputs_last(site: Site, constants: Constants) -> bool | None:
    """Tell whether the weight is [N, K]; None where it is arranged otherwise."""
    if not isinstance(site.reader, LinearReader):
        return None
    operands = site.reader.operands(site.node, constants)
    if operands is None or operands.arrangement is not None:
        return None
    return operands.transpose_w
