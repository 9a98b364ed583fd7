"""Where the numbers of an input go, and the stored numbers that stand beside them there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from octavo.errors import OctavoError
from octavo.graph.analysis.logarithms import below_logarithms
from octavo.onnx.constants import Constants

MOST_NODES = 20_000  # looked at for one input
_FEW = 64  # elements of a constant whose numbers are read

MOVES = frozenset(
    "Cast Identity Unsqueeze Squeeze Reshape Flatten Slice Expand Transpose Tile Split "
    "Dropout OptionalGetElement SequenceAt".split()
)
"""Steps after which a number is still the same number, perhaps elsewhere."""
PICKS = frozenset(["Gather", "GatherND", "GatherElements", "Pad", "Concat", "SplitToSequence"])
"""Steps that give some of the numbers of their first input, or more beside them."""
_REPEATS = frozenset(["Expand", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Cast"])

Axes = tuple[int | None, ...] | None
"""By axis of a value, that of the input; None for one that was put in. None: as the input's."""
LOST: Axes = ()
"""Axes of a value that nothing is known of."""
Step = Callable[[ir.Node, int], bool]
"""Whether a node is gone through, and the number of the input at which it is reached."""


class Read(NamedTuple):
    """`node` reads `value`, which is an input or made of one, as its input number `slot`."""

    node: ir.Node
    slot: int
    value: ir.Value


class Reading(NamedTuple):
    """`node` reads a value of these `axes` as its input number `slot`."""

    node: ir.Node
    slot: int
    axes: Axes

    def axis(self, axis: int) -> int | None:
        """Return the input's axis behind `axis` of what the node reads; None where unknown."""
        if self.axes is None:
            return axis
        return self.axes[axis] if -len(self.axes) <= axis < len(self.axes) else None


class Dataflow:
    """Follows values through the nodes, bodies and functions of one model."""

    def __init__(self, model: ir.Model, constants: Constants) -> None:
        self.constants = constants
        self._model = model
        self._functions = {(f.domain, f.name): f for f in model.functions.values()}

    @cached_property
    def below_logarithms(self) -> frozenset[ir.Value]:
        """Values of which a logarithm is made, that sees numbers near 0."""
        found = below_logarithms(self._model, self.constants)
        return frozenset(below.value for below in found if not below.raised)

    def reads(self, value: ir.Value, goes_on: Step) -> Iterator[Read]:
        """Yield who reads `value` or what nodes that it `goes_on` through make of it, each once."""
        stack, seen = [value], {value}
        calls: dict[ir.Value, list[ir.Value]] = {}  # by results of functions, their callers'
        left = MOST_NODES
        while stack and left > 0:
            v = stack.pop()
            outs = list(calls.get(v, ()))
            for node, index in v.uses():
                left -= 1
                called = self._functions.get((node.domain, node.op_type))
                if called is not None and index < len(called.inputs):
                    outs.append(called.inputs[index])
                    for inner, outer in zip(called.outputs, node.outputs, strict=False):
                        calls.setdefault(inner, []).append(outer)
                    continue
                yield Read(node, index, v)
                if goes_on(node, index):
                    outs.extend(node.outputs)
            for out in outs:
                if out not in seen:
                    seen.add(out)
                    stack.append(out)

    def reaches(self, value: ir.Value, ops: Iterable[str], goes_on: Step) -> bool:
        """Tell whether one of `ops` reads it."""
        return any(node.op_type in ops for node, _, _ in self.reads(value, goes_on))

    def readings(self, value: ir.Value, steps: Step) -> Iterator[Reading]:
        """Nodes that read `value`, also behind `steps` and nodes that turn, add or drop axes."""
        rank = rank_of(value)
        known: dict[ir.Value, Axes] = {value: None if rank is None else tuple(range(rank))}

        def goes_on(node: ir.Node, index: int) -> bool:
            source = node.inputs[index]
            before = known.get(source, LOST) if source is not None else LOST
            if index == 0 and node.op_type in _TURNS:
                after = _TURNS[node.op_type](node, before, self)
            elif index == 0 and node.op_type in ("Reshape", "Flatten"):
                after = LOST
            elif steps(node, index):
                after = before
            else:
                return False
            for out in node.outputs:
                known.setdefault(out, after)
            return True

        for node, index, at in self.reads(value, goes_on):
            yield Reading(node, index, known.get(at, LOST))

    def is_constant(self, value: ir.Value | None) -> bool:
        """Tell whether it is the same in every run."""
        return self.constants.is_constant(value)

    def number(self, value: ir.Value | None) -> float | None:
        """Return a stored number, where all elements are that number, else None."""
        found = self.numbers(value)
        return found[0] if found and len(set(found)) == 1 else None

    def whole(self, value: ir.Value | None) -> int | None:
        """Return a stored number that is finite, without its fraction; None where there is none."""
        found = self.number(value)
        return None if found is None or not math.isfinite(found) else int(found)

    def numbers(self, value: ir.Value | None) -> list[float] | None:
        """Return the elements of a small constant; None for others: large ones are not loaded."""
        if value is None:
            return None
        try:
            tensor = self.constants.tensor(value)
            if tensor is not None:
                if tensor.size > _FEW or tensor.dtype is ir.DataType.STRING:
                    return None
                found: list[float] = tensor.numpy().ravel().tolist()
                return found
            producer = value.producer()
            if producer is None or not self.is_constant(value):
                return None
            return self.numbers(input_at(producer, 0)) if producer.op_type in _REPEATS else None
        except (OctavoError, ValueError, TypeError, AttributeError):
            return None  # of a type that has no numbers, as text

    def sizes(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """Return the shape of a stored table, also where its numbers are held as integers."""
        while value is not None and not self.is_constant(value):
            node = value.producer()
            if node is None or node.op_type not in ("DequantizeLinear", "Identity", "Cast"):
                break
            value = node.inputs[0] if node.inputs else None
        if value is None:
            return None
        dims = [d for d in value.shape if isinstance(d, int)] if value.shape is not None else None
        if value.shape is not None and dims is not None and len(dims) == len(value.shape):
            return tuple(dims)
        try:
            return self.constants.shape(value) if self.is_constant(value) else None
        except (OctavoError, ValueError, TypeError, AssertionError):
            return None


def moves(node: ir.Node, index: int) -> bool:
    """Tell whether the outputs of `node` are the numbers of its input `index`, moved or cast."""
    return index == 0 and node.op_type in MOVES


def moves_or_picks(node: ir.Node, index: int) -> bool:
    """Tell whether the outputs of `node` are numbers of its input `index`, maybe beside others."""
    op = node.op_type
    return (index == 0 and (op in MOVES or op in PICKS)) or op == "Concat"


def rank_of(value: ir.Value) -> int | None:
    """Return the number of axes of `value` where the model states it, else None."""
    return None if value.shape is None else len(value.shape)


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Return what `node` reads as its input number `index`; None where it has none."""
    return node.inputs[index] if 0 <= index < len(node.inputs) else None


def attribute_ints(node: ir.Node, name: str) -> tuple[int, ...] | None:
    """Return an attribute that is a list of integers; None where the node has none of that name."""
    found = node.attributes.get(name)
    is_list = found is not None and found.type is ir.AttributeType.INTS
    return tuple(found.as_ints()) if found is not None and is_list else None


def attribute_int(node: ir.Node, name: str, default: int) -> int:
    """Return an attribute that is an integer; `default` where the node has none of that name."""
    found = node.attributes.get(name)
    is_int = found is not None and found.type is ir.AttributeType.INT
    return found.as_int() if found is not None and is_int else default


def _transposed(node: ir.Node, axes: Axes, flow: Dataflow) -> Axes:
    perm = attribute_ints(node, "perm")
    if axes == LOST:
        return LOST
    if perm is None:
        return None if axes is None else axes[::-1]
    if axes is None:
        return perm
    return tuple(axes[p] for p in perm) if max(perm, default=0) < len(axes) else LOST


def _unsqueezed(node: ir.Node, axes: Axes, flow: Dataflow) -> Axes:
    at = _axes_of(node, flow)
    if not axes or at is None:
        return LOST
    rank = len(axes) + len(at)
    rest = iter(axes)
    put_in = {a % rank for a in at}
    return tuple(None if i in put_in else next(rest, None) for i in range(rank))


def _squeezed(node: ir.Node, axes: Axes, flow: Dataflow) -> Axes:
    at = _axes_of(node, flow)
    if not axes or at is None:
        return LOST
    dropped = {a % len(axes) for a in at}
    return tuple(a for i, a in enumerate(axes) if i not in dropped)


def _axes_of(node: ir.Node, flow: Dataflow) -> list[int] | None:
    given = attribute_ints(node, "axes")
    if given is not None:
        return list(given)
    found = flow.numbers(input_at(node, 1))
    return None if found is None else [int(n) for n in found if math.isfinite(n)]


_TURNS: dict[str, Callable[[ir.Node, Axes, Dataflow], Axes]] = {
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
    "Squeeze": _squeezed,
}
