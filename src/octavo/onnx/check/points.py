"""Where two models can be compared when their outputs cannot.

    h -> Sigmoid -> y        y is 1e-8 everywhere: compare h
    h -> ArgMax -> label     labels: compare h
    h -> Ceil -> n -> ...    what follows has as many steps as n says: compare h, then give both n

Decisions are nodes that make something discrete of what quantized layers computed. Draws of noise
are another kind: no two runs share them. Where both models are given the float model's decisions
and draws, what comes after can be compared too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from octavo.graph.analysis.walk import opset_of
from octavo.onnx.check.information import Bounds, Squash
from octavo.onnx.comparing.probes import values_read
from octavo.onnx.constants import RANDOM_OPS, Constants

MOST = 24
"""Values that are looked at behind one output."""

_STANDARD = ("", "ai.onnx")
_SOFTMAX_OF_ONE_AXIS = 13  # the opset from which its axis is one; before, all from there on are
_SAME_NUMBERS = frozenset(
    "Identity Cast Reshape Transpose Squeeze Unsqueeze Flatten Slice Split Gather Expand "
    "Dropout".split()
)
"""Their output's numbers are those of their first input, perhaps elsewhere."""
_SQUASHES = {
    "Sigmoid": Squash.SIGMOID,
    "Softmax": Squash.SOFTMAX,
    "Tanh": Squash.TANH,
    "Clip": Squash.CLIP,
    "HardSigmoid": Squash.CLIP,
}
_WHOLE_OUTPUTS = frozenset("Ceil Floor Round Sign Hardmax Unique".split())
"""Decisions whose outputs may be floating-point numbers."""
_DECIDING = _WHOLE_OUTPUTS | set(
    "ArgMax ArgMin TopK NonMaxSuppression NonZero Greater GreaterOrEqual Less LessOrEqual Equal "
    "Cast CastLike Multinomial".split()
)


@dataclass(frozen=True)
class Decision:
    """A node that decides: what it read of layers, and the outputs that both models are given."""

    node: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def said(self) -> str:
        """What messages call it."""
        return f"{self.op} {self.node!r}"


class Points:
    """Answers about the float model's main graph.

    `layers` are names of the values behind quantized layers; None where nobody knows the layers,
    and each activation may be of one. `shared` are the names that the quantized model has too.
    """

    def __init__(
        self, model: ir.Model, layers: Collection[str] | None, shared: Collection[str]
    ) -> None:
        self._opset = opset_of(model)
        self._made = {v.name: v for node in model.graph for v in node.outputs if v.name}
        self._shared = frozenset(shared)
        self._layers = frozenset(layers or ())
        self._computed = self._downstream(model, layers)
        self.draws = tuple(
            v.name
            for node in model.graph
            if _is_standard(node) and node.op_type in RANDOM_OPS
            for v in node.outputs
            if v.name in self._shared
        )
        """Values that are drawn by chance."""
        self.decisions = tuple(self._decisions(model))

    def is_computed(self, name: str) -> bool:
        """Whether it comes of a quantized layer."""
        return name in self._computed

    def decided_before(self, name: str) -> tuple[Decision, ...]:
        """The decisions that `name` comes of."""
        upstream = self._upstream(name)
        return tuple(d for d in self.decisions if upstream & frozenset(d.outputs))

    def bounds(self, name: str) -> Bounds | None:
        """What bounds the numbers of a value."""
        value = self._made.get(name)
        while value is not None and (node := value.producer()) is not None:
            if not _is_standard(node):
                return None
            if node.op_type in _SQUASHES:
                if node.op_type == "Softmax" and value.name != name:
                    return None  # nobody knows where its axis went
                if node.op_type == "Softmax" and self._opset < _SOFTMAX_OF_ONE_AXIS:
                    return None
                axis = node.attributes.get("axis")
                said = f"{node.op_type} {(node.name or value.name)!r}"
                return Bounds(_SQUASHES[node.op_type], -1 if axis is None else axis.as_int(), said)
            value = node.inputs[0] if node.op_type in _SAME_NUMBERS and node.inputs else None
        return None

    def made_by(self, name: str) -> str:
        """The node that makes a value, as messages call it."""
        value = self._made.get(name)
        node = None if value is None else value.producer()
        return "" if node is None else f"{node.op_type} {(node.name or name)!r}"

    def layers_behind(self, name: str) -> frozenset[str]:
        """The values of layers that `name` comes of."""
        return self._upstream(name) & self._layers

    def next_behind(self, name: str) -> list[str]:
        """Shared values that `name` is computed of, with no other between; none behind a layer."""
        if name in self._layers and name in self._shared:
            return []
        found: dict[str, None] = {}
        waiting, seen = [name], {name}
        for current in waiting:  # grows while it is walked
            value = self._made.get(current)
            node = None if value is None else value.producer()
            for read in [] if node is None else values_read(node):
                if not read.name or read.name in seen or read.name not in self._computed:
                    continue
                seen.add(read.name)
                if read.name in self._shared:
                    found[read.name] = None
                elif current not in self._layers:
                    waiting.append(read.name)
        return list(found)

    def behind(self, name: str) -> list[str]:
        """Shared values that `name` is computed of, the nearest first, none behind a layer."""
        found: dict[str, None] = {}
        waiting, seen = [name], {name}
        for current in waiting:  # grows while it is walked
            if current in self._layers and current in self._shared:
                continue  # the layer itself, or what took it in
            value = self._made.get(current)
            node = None if value is None else value.producer()
            for read in [] if node is None else values_read(node):
                if not read.name or read.name in seen or read.name not in self._computed:
                    continue
                seen.add(read.name)
                waiting.append(read.name)
                if read.name in self._shared:
                    found[read.name] = None
            if len(found) >= MOST:
                break
        return list(found)

    def _downstream(self, model: ir.Model, layers: Collection[str] | None) -> frozenset[str]:
        if layers is None:
            constants = Constants(model.opset_imports.get("", 1))
            return frozenset(n for n, v in self._made.items() if n and not constants.is_constant(v))
        found = set(layers)
        for node in model.graph:  # in order, as ONNX asks
            if any(v.name in found for v in values_read(node)):
                found.update(v.name for v in node.outputs if v.name)
        return frozenset(found)

    def _upstream(self, name: str) -> frozenset[str]:
        found, stack = {name}, [name]
        while stack:
            value = self._made.get(stack.pop())
            node = None if value is None else value.producer()
            for read in [] if node is None else values_read(node):
                if read.name and read.name not in found:
                    found.add(read.name)
                    stack.append(read.name)
        return frozenset(found)

    def _decisions(self, model: ir.Model) -> Iterator[Decision]:
        for node in model.graph:
            if not _is_standard(node) or node.op_type not in _DECIDING:
                continue
            read = [v for v in node.inputs if v is not None and v.name in self._computed]
            floats = tuple(v.name for v in read if v.name and _may_be_float(v))
            if not floats or not _discretizes(node):
                continue
            outputs = node.outputs[1:] if node.op_type == "TopK" else node.outputs
            names = tuple(v.name for v in outputs if v.name in self._shared and v.name)
            if names:
                yield Decision(node.name or names[0], node.op_type, floats, names)


def _is_standard(node: ir.Node) -> bool:
    return node.domain in _STANDARD


def _may_be_float(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()


def _discretizes(node: ir.Node) -> bool:
    """A Cast among floating-point types decides nothing."""
    if node.op_type == "CastLike":
        dtype = node.outputs[0].dtype
        return dtype is not None and not dtype.is_floating_point()
    if node.op_type != "Cast":
        return True
    to = node.attributes.get("to")
    return to is not None and not ir.DataType(to.as_int()).is_floating_point()
