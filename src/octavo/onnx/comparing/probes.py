"""Values that two graphs share, the nodes between them, and sessions that show them.

Quantization replaces nodes and keeps the names of the values between them, so that a value of the
float model's main graph is found in the quantized one by its name. A layer's nodes in the quantized
graph are those between the shared values around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from octavo.errors import ModelError, brief
from octavo.graph.analysis.walk import opset_of
from octavo.graph.emit.emitter import Names
from octavo.onnx.constants import Constants
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.run.sessions import Scratch, open_session
from octavo.onnx.write.save import save

Values = dict[str, npt.NDArray[Any]]

_NO_TENSORS = ("Sequence", "Optional", "SplitToSequence")
"""How operators begin whose outputs may be no tensors."""


def shared_values(floating: ir.Model, quantized: ir.Model) -> frozenset[str]:
    """Names of activations (inputs, and what nodes compute of them) of both main graphs."""
    return frozenset(_activations(floating)) & frozenset(_activations(quantized))


def _activations(model: ir.Model) -> Iterator[str]:
    constants = Constants(opset_of(model))
    for value in model.graph.inputs:
        if value.name and not value.is_initializer():
            yield value.name
    for node in model.graph:
        if node.op_type.startswith(_NO_TENSORS):
            continue
        for value in node.outputs:
            if value.name and not constants.is_constant(value):
                yield value.name


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads: its inputs, and what its subgraphs read of graphs around it."""
    yield from (v for v in node.inputs if v is not None)
    for body in subgraphs(node):
        for inner in body:
            yield from values_read(inner)
        yield from (v for v in body.outputs if v is not None)


def nodes_in(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the node, and all nodes of its subgraphs."""
    yield node
    for body in subgraphs(node):
        for inner in body:
            yield from nodes_in(inner)


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the node's subgraphs."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def main_graph_nodes(main: ir.Graph) -> dict[ir.Node, ir.Node]:
    """Map each node, of subgraphs too, to the node of the main graph that it is or lies in."""
    return {inner: node for node in main for inner in nodes_in(node)}


def nodes_making(value: ir.Value, shared: Collection[str]) -> dict[ir.Node, None]:
    """Return the nodes of the main graph that make `value` from shared values (and constants)."""
    found: dict[ir.Node, None] = {}
    producer = value.producer()
    main = None if producer is None else producer.graph
    stack = [producer]
    while stack:
        node = stack.pop()
        if node is None or node in found or node.graph is not main:
            continue
        found[node] = None
        stack += [v.producer() for v in values_read(node) if v.name not in shared]
    return found


def first_shared_values(
    node: ir.Node, shared: Collection[str], held_by: Mapping[ir.Node, ir.Node]
) -> tuple[str, ...]:
    """Return which outputs of `node` are shared; else the first shared values computed of them."""
    found = {v.name: None for v in node.outputs if v.name in shared}
    seen: set[ir.Value] = set()
    waiting = [] if found else list(node.outputs)
    for value in waiting:  # grows while it is walked
        if value.name in shared:
            found[value.name] = None
        elif value not in seen:
            seen.add(value)
            waiting += [o for use in value.uses() for o in held_by[use.node].outputs]
    return tuple(name for name in found if name)


# --- sessions ---


class ValueProbe:
    """A session whose outputs are the values with these names."""

    def __init__(self, model: ir.Model, names: Iterable[str], label: str) -> None:
        """Change `model`: its outputs become `names`. Messages call the model `label`."""
        made = {v.name: v for node in model.graph for v in node.outputs if v.name}
        self._names = [name for name in dict.fromkeys(names) if name in made]
        self._label = label
        model.graph.outputs[:] = [made[name] for name in self._names]
        self._runner = _opened(model, label)
        self._takes = {v.name for v in self._runner.get_inputs()}

    def run(self, feed: Mapping[str, Any]) -> Values:
        """Return the values by name, those of `feed` among them. Raises ModelError."""
        fed = {name: value for name, value in feed.items() if name in self._takes}
        found = dict(zip(self._names, _run(self._runner, fed, self._label), strict=True))
        return {**feed, **found}


# docs/notes/checking.md: "A layer's error alone comes from the file"
class LayerProbe:
    """The quantized layers of a model alone, each fed from outside.

    `at` are the layers' outputs; what makes them of `shared` values stays, and takes those from
    the feed. All else goes.
    """

    def __init__(
        self, model: ir.Model, at: Iterable[str], shared: frozenset[str], label: str
    ) -> None:
        """Prepare to cut `model`, which changes, where values `at` are made from `shared` ones."""
        made = {v.name: v for node in model.graph for v in node.outputs if v.name}
        self._at = list(dict.fromkeys(at))
        self._model, self._label = model, label
        self._nodes = {n: None for name in self._at for n in nodes_making(made[name], shared)}
        fed = {v: None for n in self._nodes for v in values_read(n) if v.name in shared}
        self._fed: dict[str, ir.Value] = {v.name or "": v for v in fed}
        self._outputs = [made[name] for name in self._at]
        self._runner: Any = None
        self._new: dict[str, str] = {}

    @property
    def needs(self) -> list[str]:
        """Names of the values that `run` takes from the feed."""
        return list(self._fed)

    def run(self, values: Mapping[str, npt.NDArray[Any]]) -> Values:
        """Return the layers' outputs by name. Raises ModelError."""
        if self._runner is None:
            self._open(values)
        fed = {new: values[name] for name, new in self._new.items()}
        return dict(zip(self._at, _run(self._runner, fed, self._label), strict=True))

    def _open(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Cut the layers off; `values` tell the inputs' types, as a graph need not state them."""
        names, graph = Names(self._model), self._model.graph
        inputs = {}
        for name, old in self._fed.items():
            inputs[old] = new = input_like(names.values.new(f"{name}_float"), values[name])
            self._new[name] = new.name or ""
        for node in [inner for n in self._nodes for inner in nodes_in(n)]:
            for i, value in enumerate(node.inputs):
                if value in inputs:
                    node.replace_input_with(i, inputs[value])
            for body in subgraphs(node):
                body.outputs[:] = [inputs.get(v, v) for v in body.outputs]
        graph.outputs[:] = self._outputs
        graph.inputs[:] = [v for v in graph.inputs if v.is_initializer()] + list(inputs.values())
        self._drop_others()
        self._runner = _opened(self._model, self._label)

    def _drop_others(self) -> None:
        """Take out what no layer needs, even where subgraphs of nodes that go refer to it."""
        graph = self._model.graph
        graph.remove([node for node in graph if node not in self._nodes])
        needed = {v for node in self._nodes for v in values_read(node)}
        for name, value in list(graph.initializers.items()):
            if value not in needed:
                del graph.initializers[name]
        graph.inputs[:] = [v for v in graph.inputs if not v.is_initializer() or v in needed]


def input_like(name: str, array: npt.NDArray[Any]) -> ir.Value:
    """Build an input of a graph that takes arrays of the dtype and rank of `array`, of any size."""
    text = array.dtype.kind in "OUS"
    dtype = ir.DataType.STRING if text else ir.DataType.from_numpy(array.dtype)
    return ir.Value(
        name=name,
        type=ir.TensorType(dtype),
        shape=ir.Shape([None] * array.ndim),
    )


def _opened(model: ir.Model, label: str) -> Any:
    try:
        with Scratch() as place:
            save(model, place, TensorStore(None), {})
            return open_session(place.model, None)
    except ModelError as error:
        raise ModelError(
            f"{label}: its layers cannot be looked at, as ONNX Runtime does not open the model "
            f"with more outputs: {brief(error)}"
        ) from error


def _run(runner: Any, feed: Mapping[str, Any], label: str) -> list[Any]:
    try:
        return list(runner.run(None, dict(feed)))
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        raise ModelError(f"{label} fails on these inputs: {brief(error)}") from error
