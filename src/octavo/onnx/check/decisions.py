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
from octavo.onnx.check.distance import Bounds, Squash
from octavo.onnx.comparing.probes import values_read
from octavo.onnx.constants import RANDOM_OPS, Constants

MOST_VALUES = 24
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
_DECIDING = frozenset(
    "Ceil Floor Round Sign Hardmax Unique ArgMax ArgMin TopK NonMaxSuppression NonZero Greater "
    "GreaterOrEqual Less LessOrEqual Equal Cast CastLike Multinomial".split()
)


# docs/notes/checking.md: "Decisions are given, not avoided"
@dataclass(frozen=True)
class NodeDecision:
    """A node that decides: what it read of layers, and the outputs that both models are given."""

    node: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def label(self) -> str:
        """Return the node's name in messages."""
        return f"{self.op} {self.node!r}"


class ComparablePoints:
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
            if node.domain in _STANDARD and node.op_type in RANDOM_OPS
            for v in node.outputs
            if v.name in self._shared
        )
        """Values that are drawn by chance."""
        self.decisions = tuple(self._decisions(model))

    def is_computed(self, name: str) -> bool:
        """Tell whether it comes of a quantized layer."""
        return name in self._computed

    def decided_before(self, name: str) -> tuple[NodeDecision, ...]:
        """Return the decisions that the value `name` is computed from."""
        upstream = self._upstream(name)
        return tuple(d for d in self.decisions if upstream & frozenset(d.outputs))

    def bounds(self, name: str) -> Bounds | None:
        """Return what bounds the numbers of the value `name`; None where nothing is known to."""
        value = self._made.get(name)
        while value is not None and (node := value.producer()) is not None:
            if node.domain not in _STANDARD:
                return None
            if node.op_type in _SQUASHES:
                if node.op_type == "Softmax" and value.name != name:
                    return None  # nobody knows where its axis went
                if node.op_type == "Softmax" and self._opset < _SOFTMAX_OF_ONE_AXIS:
                    return None
                axis = node.attributes.get_int("axis", -1)
                return Bounds(_SQUASHES[node.op_type], axis, _label(node, value.name))
            value = node.inputs[0] if node.op_type in _SAME_NUMBERS and node.inputs else None
        return None

    def made_by(self, name: str) -> str:
        """Return, as messages call it, the node that makes the value `name`; "" if none does."""
        value = self._made.get(name)
        node = None if value is None else value.producer()
        return "" if node is None else _label(node, name)

    def layers_behind(self, name: str) -> frozenset[str]:
        """Return the layers' values that the value `name` is computed from."""
        return self._upstream(name) & self._layers

    def next_behind(self, name: str) -> list[str]:
        """Shared values that `name` is computed of, with no other between; none behind a layer."""
        found, waiting, seen = list[str](), [] if name in self._layers else [name], {name}
        for current in waiting:  # grows while it is walked
            for read in self._new_reads(current, seen):
                (found if read in self._shared else waiting).append(read)
        return found

    def behind(self, name: str) -> list[str]:
        """Shared values that `name` is computed of, the nearest first, none behind a layer."""
        found, waiting, seen = list[str](), [name], {name}
        for current in waiting:  # grows while it is walked
            if current in self._layers:
                continue  # the layer itself, or what took it in
            new = self._new_reads(current, seen)
            waiting += new
            found += [read for read in new if read in self._shared]
            if len(found) >= MOST_VALUES:
                break
        return found

    def _new_reads(self, name: str, seen: set[str]) -> list[str]:
        """Return the computed values that make `name` and are new to `seen`; add them to `seen`."""
        new = [r for r in dict.fromkeys(self._reads(name)) if r in self._computed and r not in seen]
        seen.update(new)
        return new

    def _reads(self, name: str) -> list[str]:
        """Return the names of the values read by the node that makes the value `name`."""
        value = self._made.get(name)
        node = None if value is None else value.producer()
        return [] if node is None else [v.name for v in values_read(node) if v.name]

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
            new = set(self._reads(stack.pop())) - found
            found |= new
            stack += new
        return frozenset(found)

    def _decisions(self, model: ir.Model) -> Iterator[NodeDecision]:
        for node in model.graph:
            if node.domain not in _STANDARD or not _discretizes(node):
                continue
            read = [v for v in node.inputs if v is not None and v.name in self._computed]
            floats = tuple(v.name for v in read if v.name and _may_be_float(v.dtype))
            outputs = node.outputs[1:] if node.op_type == "TopK" else node.outputs
            names = tuple(v.name for v in outputs if v.name in self._shared and v.name)
            if floats and names:
                yield NodeDecision(node.name or names[0], node.op_type, floats, names)


def _label(node: ir.Node, value: str | None) -> str:
    return f"{node.op_type} {(node.name or value)!r}"


def _may_be_float(dtype: ir.DataType | None) -> bool:
    return dtype is None or dtype.is_floating_point()


def _discretizes(node: ir.Node) -> bool:
    """Tell whether `node` decides something; a Cast among floating-point types does not."""
    if node.op_type == "CastLike":
        return not _may_be_float(node.outputs[0].dtype)
    if node.op_type == "Cast":
        to = node.attributes.get_int("to", None)
        return to is not None and not ir.DataType(to).is_floating_point()
    return node.op_type in _DECIDING
