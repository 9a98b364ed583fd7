"""What a run of a model needs, known before it from the shapes of its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from octavo.onnx.read.tensor_store import to_proto

COPIES = 1.5
"""Of the float model's activations: the quantized model holds integers of some beside them."""

_LARGE = 1024  # elements; a smaller constant may be a shape, whose values tell others' sizes
_UNKNOWN_BYTES = 4  # of an element whose type nobody knows


class Memory:
    """Tells what a run of a model needs from the shapes of its inputs."""

    def __init__(self, model: ir.Model) -> None:
        self._named = {v.name: v for node in model.graph for v in node.outputs if v.name}
        self._proto = _without_weights(model)

    def most(self, feed: Mapping[str, Any]) -> float:
        """Return the bytes that comparing two models on `feed` takes above the models."""
        return COPIES * self.of_run(feed)

    def of_values(self, names: Iterable[str], feed: Mapping[str, Any]) -> float:
        """Return the bytes of these values of both models, as far as their sizes are known."""
        known = self._known(feed)
        return 2 * sum(known.get(name, 0) for name in names)

    def of_run(self, feed: Mapping[str, Any]) -> int:
        """Return a run's bytes: the most that inputs, activations and outputs take at a time.

        A value whose size neither ONNX's shape inference nor the model itself tells is taken to be
        as large as the largest that it is computed from.
        """
        known = self._known(feed)
        given = {name: int(getattr(array, "nbytes", 0)) for name, array in feed.items()}
        sizes = dict(given)
        nodes, outputs = self._proto.graph.node, self._proto.graph.output
        last = {name: i for i, node in enumerate(nodes) for name in _reads(node)}
        last |= {v.name: len(nodes) for v in outputs}
        alive = most = sum(given.values())
        for i, node in enumerate(nodes):
            largest = max((sizes.get(name, 0) for name in _reads(node)), default=0)
            for name in filter(None, node.output):
                sizes[name] = known.get(name, largest)
                alive += sizes[name]
            most = max(most, alive + sum(known.get(name, 0) for name in _made_inside(node)))
            for name in {*_reads(node), *node.output}:
                if last.get(name, i) == i and name in sizes and name not in given:
                    alive -= sizes.pop(name)
        return most

    def _known(self, feed: Mapping[str, Any]) -> dict[str, int]:
        """Bytes by name of a value, as the model states them or ONNX's shape inference tells."""
        shapes = {n: array.shape for n, array in feed.items() if isinstance(array, np.ndarray)}
        symbols = {
            dim.dim_param: size
            for value in self._proto.graph.input
            for dim, size in zip(
                value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False
            )
            if dim.dim_param
        }
        stated = {name: _stated_bytes(value, symbols) for name, value in self._named.items()}
        known = {name: size for name, size in stated.items() if size is not None}
        return known | _inferred(self._proto, shapes)


def _stated_bytes(value: ir.Value, symbols: Mapping[str, int]) -> int | None:
    """Return a value's bytes by the shape that the model states, with `symbols` for its names."""
    if value.shape is None or value.dtype is ir.DataType.STRING:
        return None
    dims = [d if isinstance(d, int) else symbols.get(d.value or "") for d in value.shape]
    sizes = [d for d in dims if d is not None]
    itemsize = _UNKNOWN_BYTES if value.dtype is None else value.dtype.itemsize
    return math.ceil(math.prod(sizes) * itemsize) if len(sizes) == len(dims) else None


def _inferred(given: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    if any(value.type.WhichOneof("value") is None for value in given.graph.input):
        return {}  # ONNX's inference may die of a type that is not stated
    proto = onnx.ModelProto()
    proto.CopyFrom(given)
    for value in proto.graph.input:
        if value.name in shapes:
            value.type.tensor_type.shape.Clear()
            for size in shapes[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = size
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # noqa: BLE001 - operators of others, and models that state wrong shapes
        return {}
    found = {}
    for value in _stated(proto.graph):
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            number = math.prod(d.dim_value for d in dims)
            found[value.name] = number * _element_bytes(tensor.elem_type)
    return found


def _without_weights(model: ir.Model) -> onnx.ModelProto:
    """Return the main graph with large constants as inputs and without stated activation shapes."""
    graph = model.graph
    large = {
        name: (value, value.const_value)
        for name, value in graph.initializers.items()
        if value.const_value is not None and math.prod(value.const_value.shape.numpy()) >= _LARGE
    }
    for name in large:
        del graph.initializers[name]
    try:
        proto = to_proto(model)
    finally:
        for value, _ in large.values():
            graph.register_initializer(value)
    known = {value.name for value in proto.graph.input}
    for name, (_, tensor) in large.items():
        if name not in known:
            dtype, shape = int(tensor.dtype), list(tensor.shape.numpy())
            proto.graph.input.append(onnx.helper.make_tensor_value_info(name, dtype, shape))
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return proto


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from (attribute.g, *attribute.graphs)


def _stated(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield the types that a graph and its bodies state for their values."""
    yield from (*graph.value_info, *graph.output)
    for body in (body for node in graph.node for body in _bodies(node)):
        yield from _stated(body)


def _made_inside(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the values that the bodies of a node make."""
    for inner in (inner for body in _bodies(node) for inner in body.node):
        yield from filter(None, inner.output)
        yield from _made_inside(inner)


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node and its subgraphs read."""
    inside = [name for body in _bodies(node) for inner in body.node for name in _reads(inner)]
    return [*filter(None, node.input), *inside]


def _element_bytes(code: int) -> int:
    try:
        return int(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)).itemsize)
    except (KeyError, TypeError):
        return _UNKNOWN_BYTES
