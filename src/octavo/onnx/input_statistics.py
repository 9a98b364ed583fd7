"""What samples tell of a linear layer's inputs: mean squares [K], or mean products [K, K].

    x [.., K] -> Reshape [n, K] -> sum over n of x^2, or x x^T      beside the float model's layers

Sums are made in the graph, so that no activation leaves it. Products of a large layer take as much
memory as its weight: they are collected for some layers at a time, in the order in which these are
quantized, and dropped when the next ones follow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.errors import InputDataError, listed
from octavo.graph.analysis.walk import opset_of
from octavo.graph.emit.emitter import Names
from octavo.onnx.comparing.probes import ValueProbe
from octavo.onnx.constants import Constants
from octavo.onnx.inputs.given import Feed
from octavo.onnx.operators.linear import LinearReader
from octavo.onnx.operators.operands import inputs_of
from octavo.onnx.plan.inventory import inventory
from octavo.onnx.plan.prepare import Prepared
from octavo.onnx.read.load import Origin, Source, load
from octavo.onnx.read.normalize import normalize
from octavo.recipe import Kind
from octavo.results.words import count

Float32 = npt.NDArray[np.float32]

_ROOM = 512 << 20  # bytes of products that are held at a time
_OPSET = 13  # from which on axes of a sum are an input
_MASK = "attention_mask"
_LABEL = "the float model, with sums of its layers' inputs,"


@dataclass(frozen=True)
class _Read:
    """One layer's input: the value `x`, of `k` numbers a row."""

    x: str
    k: int


class InputStatistics:
    """Statistics of what comes to the layers that hold a weight, by the weight's name.

    `layers` are names of linear layers, in the order in which they are quantized; those in
    subgraphs, and whose inputs are arranged anew, are not seen. Where the model has an input
    attention_mask [batch, tokens], padding does not count. With `products` the statistics are mean
    products, else mean squares.
    """

    def __init__(
        self, origin: Origin, layers: Sequence[str], feeds: Sequence[Feed], *, products: bool
    ) -> None:
        self._origin, self._feeds, self._products = origin, feeds, products
        self._reads, self._by_layer = _reads(_model(origin), layers)
        self._layers = layers
        self._means: dict[str, Float32 | None] = {}

    def of(self, weight: str) -> Float32 | None:
        """Return what is known of the inputs that multiply `weight`; None where none came to it.

        Raises ModelError where the float model does not open or run, and InputDataError where what
        comes to a layer is not finite.
        """
        if weight in self._reads and weight not in self._means:
            self._means = {}  # makes room
            self._means = self._collected(self._batch(weight))
        return self._means.get(weight)

    def notes(self, used: Collection[str]) -> list[str]:
        """Return what the report says where the weights `used` were rounded by statistics."""
        done = [layer for layer in self._layers if self._by_layer.get(layer) in used]
        left = [layer for layer in self._layers if layer not in done]
        how = "with error feedback" if self._products else "by the mean squares of their inputs"
        which = count(len(self._feeds), "given input")
        notes = [f"weights of {count(len(done), 'layer')} were rounded {how}, of {which}"]
        if left:
            layers = count(len(left), "layer")
            notes.append(f"nothing is known of what comes to {layers}: {listed(left, 5)}")
        return notes if done else notes[1:]

    def _batch(self, weight: str) -> list[str]:
        """Return the weight and those after it, as many as there is room for."""
        names = list(self._reads)
        some: list[str] = []
        room = _ROOM
        for name in names[names.index(weight) :]:
            k = self._reads[name][0].k
            room -= 4 * k * k if self._products else 0
            if some and room < 0:
                break
            some.append(name)
        return some

    def _collected(self, weights: Sequence[str]) -> dict[str, Float32 | None]:
        reads = {weight: self._reads[weight] for weight in weights}
        model = _model(self._origin)
        names = _watch(model, {r for each in reads.values() for r in each}, products=self._products)
        probe = ValueProbe(model, [n for pair in names.values() for n in pair], _LABEL)
        means: dict[tuple[_Read, ...], Float32] = {}  # sums at first; weights may share one
        counts = dict.fromkeys(reads.values(), 0)
        for feed in self._feeds:
            found = probe.run(feed)
            for each in counts:
                for total, shape in (names[read] for read in each):
                    if each in means:
                        means[each] += found[total]
                    else:
                        means[each] = np.array(found[total], np.float32)
                    counts[each] += int(found[shape][0])
        for each in means:
            means[each] /= max(counts[each], 1)
        for weight, each in reads.items():
            if counts[each] and not np.isfinite(means[each]).all():
                raise InputDataError(
                    f"inputs: what comes to the weight {weight} holds NaN or infinity"
                )
        return {weight: means[each] if counts[each] else None for weight, each in reads.items()}


def input_statistics(
    source: Source, prepared: Prepared, feeds: Sequence[Feed] | None, error_feedback: bool
) -> InputStatistics | None:
    """Return statistics of linear layers whose scales are searched; None without given inputs."""
    layers = [
        decision.layer.name
        for decision in prepared.decisions
        if decision.layer.kind is Kind.LINEAR
        and decision.scheme.weight is not None
        and decision.scheme.weight.observer == "search"
    ]
    if feeds is None or not layers:
        return None
    return InputStatistics(source.origin, layers, feeds, products=error_feedback)


def _model(origin: Origin) -> ir.Model:
    source = load(origin)
    normalize(source.model, source.label, _OPSET)
    return source.model


def _reads(
    model: ir.Model, layers: Sequence[str]
) -> tuple[dict[str, tuple[_Read, ...]], dict[str, str]]:
    """Return by a weight's name the inputs of its `layers`, and by a layer's name the weight."""
    constants = Constants(opset_of(model))
    sites = {site.layer.name: site for site in inventory(model, constants)}
    found: dict[str, tuple[_Read, ...]] = {}
    by_layer: dict[str, str] = {}
    for name in layers:
        site = sites.get(name)
        if site is None or site.layer.scope or not isinstance(site.reader, LinearReader):
            continue
        operands = site.reader.operands(site.node, constants)
        if operands is None or operands.transpose_x or operands.before is not None:
            continue
        k = inputs_of(operands.shape(constants), operands.transpose_w)
        weight = constants.root(operands.w).leaf.name
        if weight and operands.x.name:
            read, others = _Read(operands.x.name, k), found.get(weight, ())
            if others and others[0].k != k:
                continue  # the weight the other way round
            by_layer[name] = weight
            found[weight] = others if read in others else (*others, read)
    return found, by_layer


def _watch(
    model: ir.Model, reads: Collection[_Read], *, products: bool
) -> Mapping[_Read, tuple[str, str]]:
    """Add sums to `model`; return by what is read the names of the sum and of the rows' shape."""
    graph, names = model.graph, Names(model)
    made = {v.name: v for v in (*graph.inputs, *(v for node in graph for v in node.outputs))}
    found = {}

    def put(op: str, inputs: Sequence[ir.Value], **attributes: Any) -> ir.Value:
        out = ir.Value(name=names.values.new(f"octavo_{op}"))
        graph.append(ir.node(op, inputs, attributes, outputs=[out], name=out.name))
        return out

    def constant(numbers: Sequence[int]) -> ir.Value:
        name = names.values.new("octavo_sizes")
        value = ir.Value(name=name, const_value=ir.tensor(np.array(numbers, np.int64), name=name))
        graph.register_initializer(value)
        return value

    first, one, all_of = constant([0]), constant([1]), constant([-1])
    mask = next((v for v in graph.inputs if v.name == _MASK and len(v.shape or ()) == 2), None)
    if mask is not None:
        tokens = put("Reshape", [put("Cast", [mask], to=int(ir.DataType.BOOL)), all_of])

    def unpadded(rows: ir.Value) -> ir.Value:
        """Take the rows whose tokens are seen; all where there is not a row for each token."""
        count = put("Slice", [put("Shape", [rows]), first, one])
        other = put("Not", [put("Equal", [count, put("Shape", [tokens])])])
        every = put("ConstantOfShape", [count], value=ir.tensor([True]))
        seen = put("Concat", [put("Or", [tokens, other]), every], axis=0)
        return put("Compress", [rows, put("Slice", [seen, first, count])], axis=0)

    for read in sorted(reads, key=lambda r: (r.x, r.k)):
        wide = put("Cast", [made[read.x]], to=int(ir.DataType.FLOAT))
        rows = put("Reshape", [wide, constant([-1, read.k])])
        rows = rows if mask is None else unpadded(rows)
        if products:
            total = put("MatMul", [put("Transpose", [rows], perm=[1, 0]), rows])
        else:
            total = put("ReduceSum", [put("Mul", [rows, rows]), first], keepdims=0)
        found[read] = total.name or "", put("Shape", [rows]).name or ""
    return found
