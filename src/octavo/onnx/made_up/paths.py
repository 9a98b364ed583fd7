"""Which axis of an input a layer reads as what, behind nodes that turn or add axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.flow import Flow
from octavo.onnx.made_up.stored import attribute_ints, numbers, read_by

Axes = tuple[int | None, ...] | None
"""By axis of a value, that of the input; None for one that was put in. None: as the input's."""

LOST: Axes = ()
"""Axes of a value that nothing is known of."""


class Reading(NamedTuple):
    """`node` reads a value of these `axes` as its input number `slot`."""

    node: ir.Node
    slot: int
    axes: Axes

    def axis(self, axis: int) -> int | None:
        """The input's axis behind `axis` of what the node reads; None where nobody knows."""
        if self.axes is None:
            return axis
        return self.axes[axis] if -len(self.axes) <= axis < len(self.axes) else None

    @property
    def is_lost(self) -> bool:
        """Whether nothing is known of the axes."""
        return self.axes == LOST


def readings(
    value: ir.Value, flow: Flow, constants: Constants, steps: Callable[[ir.Node, int], bool]
) -> Iterator[Reading]:
    """Nodes that read `value`, also behind `steps` and nodes that turn, add or drop axes."""
    rank = None if value.shape is None else len(value.shape)
    known: dict[ir.Value, Axes] = {value: None if rank is None else tuple(range(rank))}

    def goes_on(node: ir.Node, index: int) -> bool:
        source = node.inputs[index]
        before = known.get(source, LOST) if source is not None else LOST
        if index == 0 and node.op_type in _TURNS:
            after = _TURNS[node.op_type](node, before, constants)
        elif index == 0 and node.op_type in ("Reshape", "Flatten"):
            after = LOST
        elif steps(node, index):
            after = before
        else:
            return False
        for out in node.outputs:
            known.setdefault(out, after)
        return True

    for node, index, at in flow.reads(value, goes_on):
        yield Reading(node, index, known.get(at, LOST))


def _transposed(node: ir.Node, axes: Axes, constants: Constants) -> Axes:
    perm = attribute_ints(node, "perm")
    if axes == LOST:
        return LOST
    if perm is None:
        return None if axes is None else axes[::-1]
    if axes is None:
        return perm
    return tuple(axes[p] for p in perm) if max(perm, default=0) < len(axes) else LOST


def _unsqueezed(node: ir.Node, axes: Axes, constants: Constants) -> Axes:
    at = _axes_of(node, constants)
    if not axes or at is None:
        return LOST
    rank = len(axes) + len(at)
    rest = iter(axes)
    put_in = {a % rank for a in at}
    return tuple(None if i in put_in else next(rest, None) for i in range(rank))


def _squeezed(node: ir.Node, axes: Axes, constants: Constants) -> Axes:
    at = _axes_of(node, constants)
    if not axes or at is None:
        return LOST
    dropped = {a % len(axes) for a in at}
    return tuple(a for i, a in enumerate(axes) if i not in dropped)


def _axes_of(node: ir.Node, constants: Constants) -> list[int] | None:
    given = attribute_ints(node, "axes")
    if given is not None:
        return list(given)
    found = numbers(read_by(node, 1), constants)
    return None if found is None else [int(n) for n in found if math.isfinite(n)]


_TURNS: dict[str, Callable[[ir.Node, Axes, Constants], Axes]] = {
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
    "Squeeze": _squeezed,
}
