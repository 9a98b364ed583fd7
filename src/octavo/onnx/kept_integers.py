"""The integers of a weight that a file holds in integers, for a layer that is quantized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.ir.weight import WeightIntegers
from octavo.onnx.constants import Constants
from octavo.onnx.stored_blocks import StoredBlocks
from octavo.onnx.stored_weight import StoredWeight

Arrange = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
MOVES = frozenset("Identity Transpose Reshape Squeeze Unsqueeze Flatten".split())
MOST = 127
"""The largest int8 weight."""


@dataclass(frozen=True)
class Moved:
    """A stored weight behind nodes that move its numbers: `arrange` moves an array likewise."""

    weight: StoredWeight
    arrange: Arrange


def stored_weights(constants: Constants, value: ir.Value) -> list[StoredWeight]:
    """Return the stored weights that a constant is made of."""
    found = (tensor for _, tensor in constants.leaves(value))
    return [tensor for tensor in found if isinstance(tensor, StoredWeight)]


def is_stored(constants: Constants, value: ir.Value) -> bool:
    """Tell whether a constant is made of such weights, or of weights in blocks."""
    return any(
        isinstance(tensor, StoredWeight | StoredBlocks) for _, tensor in constants.leaves(value)
    )


def stored_blocks(constants: Constants, value: ir.Value) -> StoredBlocks | None:
    """Return the matrix in blocks that `value` holds, as it is or transposed."""
    tensor = constants.tensor(constants.root(value).leaf)
    return tensor if isinstance(tensor, StoredBlocks) else None


def stored_weight(constants: Constants, value: ir.Value | None) -> Moved | None:
    """Return the stored weight that `value` holds, and how it was moved; None for another value."""
    steps: list[Arrange] = []
    while value is not None:
        tensor = constants.tensor(value)
        if isinstance(tensor, StoredWeight):
            return Moved(tensor, lambda array: _in_turn(array, steps[::-1]))
        node = value.producer()
        if node is None or node.op_type not in MOVES or node.domain not in ("", "ai.onnx"):
            return None
        if not constants.is_constant(value):
            return None
        steps.append(_step(node, constants.shape(value)))
        value = node.inputs[0]
    return None


def _step(node: ir.Node, shape: tuple[int, ...]) -> Arrange:
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        axes = None if perm is None else [int(i) for i in perm.as_ints()]
        return lambda array: array.transpose(axes)
    return lambda array: array.reshape(shape)


def _in_turn(array: npt.NDArray[Any], steps: list[Arrange]) -> npt.NDArray[Any]:
    for step in steps:
        array = step(array)
    return array


@dataclass(frozen=True)
class Kept:
    """Integers [rows, k] of a layer; `changed` rows of them are not those of the file."""

    integers: WeightIntegers
    changed: int = 0


def keep(found: Moved, rows: Arrange, *, zero_points: bool) -> Kept | None:
    """Return the weight's integers as `rows` arranges numbers, a row a channel.

    None where the numbers of a row have several scales. Without `zero_points` they are taken into
    the integers; rows that go above 127 then get another scale.
    """
    weight = found.weight

    def arrange(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return rows(found.arrange(array))

    scale = _one_a_row(arrange(weight.scales()))
    zero = _one_a_row(arrange(weight.zero_points()))
    if scale is None or zero is None:
        return None
    q = arrange(weight.integers())
    if not np.any(zero):
        kept = Kept(WeightIntegers(np.array(q, np.int8, order="C"), scale))
    elif zero_points:
        kept = Kept(WeightIntegers(np.array(q, np.int8, order="C"), scale, zero))
    else:
        kept = _centred(q, scale, zero)
    weight.unmap()
    return kept


def _one_a_row(array: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    array = array.reshape(len(array), -1)
    if not array.size or (array != array[:, :1]).any():
        return None
    return np.array(array[:, 0])


def _centred(
    q: npt.NDArray[Any], scale: npt.NDArray[np.float32], zero: npt.NDArray[np.int8]
) -> Kept:
    steps = q.reshape(len(q), -1).astype(np.int16) - zero[:, None].astype(np.int16)
    most = np.abs(steps).max(axis=1)
    wide = most > MOST
    factor = most[wide].astype(np.float32) / MOST
    steps[wide] = np.rint(steps[wide] / factor[:, None]).astype(np.int16)
    scale = scale.copy()
    scale[wide] *= factor
    return Kept(WeightIntegers(steps.astype(np.int8), scale), int(wide.sum()))
