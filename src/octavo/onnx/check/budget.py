"""What a check may take where nobody gave inputs: memory, known before a run, and time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from threading import Timer
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort

from octavo.onnx.serialized import to_proto

MOST_BYTES = 10**9
"""Above the two models."""
SECONDS = 10.0
FLOAT_RUNS = 20
"""A check takes `SECONDS`, or as long as this many runs of the float model."""
LONGEST_RUN = 60.0
"""Seconds after which a run on inputs that were made up is ended."""
COPIES = 1.5
"""Of the float model's activations: the quantized model holds integers of some beside them."""

_LARGE = 1024  # elements; a smaller constant may be a shape, whose values tell others' sizes
_UNKNOWN_BYTES = 4  # of an element whose type nobody knows


class Clock:
    """How much time is left. The time of a float run, once it is known, may lengthen it."""

    def __init__(self) -> None:
        self._started, self._seconds = perf_counter(), SECONDS

    def ran(self, seconds: float) -> None:
        """Takes note of a run of the float model."""
        self._seconds = max(self._seconds, FLOAT_RUNS * seconds)

    @property
    def left(self) -> float:
        """Seconds; below 0 when it is over."""
        return self._seconds - (perf_counter() - self._started)


def run_within(model: Any, names: list[str] | None, feed: Mapping[str, Any], seconds: float) -> Any:
    """The outputs of a session. Raises TimeoutError where it is not done in time, and whatever ONNX
    Runtime raises."""
    options = ort.RunOptions()
    options.log_severity_level = 4

    def end() -> None:
        options.terminate = True

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        return model.run(names, dict(feed), options)
    except Exception as error:
        if options.terminate:
            raise TimeoutError(f"it was not done in {seconds:.0f} s") from error
        raise
    finally:
        timer.cancel()


class Memory:
    """Tells what a run of a model needs from the shapes of its inputs."""

    def __init__(self, model: ir.Model) -> None:
        self._named = {v.name: v for node in model.graph for v in node.outputs if v.name}
        self._proto = _without_weights(model)

    def most(self, feed: Mapping[str, npt.NDArray[Any]]) -> float:
        """The bytes that comparing two models on `feed` takes above the models."""
        return COPIES * self.of_run(feed)

    def of_values(self, names: Iterable[str], feed: Mapping[str, npt.NDArray[Any]]) -> float:
        """The bytes of these values of both models, as far as their sizes are known."""
        symbols, inferred = self._symbols(feed), self._inferred(feed)
        sizes = (inferred.get(n, _bytes(self._named.get(n), symbols)) for n in names)
        return 2 * sum(size or 0 for size in sizes)

    def of_run(self, feed: Mapping[str, npt.NDArray[Any]]) -> int:
        """The bytes of one run: the most that inputs, activations and outputs take at a time.

        A value whose size neither ONNX's shape inference nor the model itself tells is taken to be
        as large as the largest that it is computed from.
        """
        symbols = self._symbols(feed)
        inferred = self._inferred(feed)
        given = {name: int(getattr(array, "nbytes", 0)) for name, array in feed.items()}
        sizes = dict(given)
        graph = self._proto.graph
        last = {name: i for i, node in enumerate(graph.node) for name in _reads(node)}
        last |= {v.name: len(graph.node) for v in graph.output}
        alive = most = sum(given.values())
        for i, node in enumerate(graph.node):
            largest = max((sizes.get(name, 0) for name in _reads(node)), default=0)
            for name in filter(None, node.output):
                size = inferred.get(name)
                if size is None:
                    size = _bytes(self._named.get(name), symbols)
                sizes[name] = largest if size is None else size
                alive += sizes[name]
            most = max(most, alive + sum(inferred.get(name, 0) for name in _made_inside(node)))
            for name in {*_reads(node), *node.output}:
                if last.get(name, i) == i and name in sizes and name not in given:
                    alive -= sizes.pop(name)
        return most

    def _symbols(self, feed: Mapping[str, npt.NDArray[Any]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for value in self._proto.graph.input:
            if isinstance(feed.get(value.name), np.ndarray):
                dims = value.type.tensor_type.shape.dim
                for dim, size in zip(dims, feed[value.name].shape, strict=False):
                    if dim.dim_param:
                        found[dim.dim_param] = size
        return found

    def _inferred(self, feed: Mapping[str, npt.NDArray[Any]]) -> dict[str, int]:
        """Bytes by name of a value, where shape inference tells them."""
        if any(value.type.WhichOneof("value") is None for value in self._proto.graph.input):
            return {}  # ONNX's inference may die of a type that is not stated
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        for value in proto.graph.input:
            if isinstance(feed.get(value.name), np.ndarray):
                value.type.tensor_type.shape.Clear()
                for size in feed[value.name].shape:
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
    """The main graph with large constants as inputs, and without what it says of activations."""
    graph = model.graph
    large = [v for v in graph.initializers.values() if _is_large(v.const_value)]
    for value in large:
        del graph.initializers[value.name or ""]
    try:
        proto = to_proto(model)
    finally:
        for value in large:
            graph.register_initializer(value)
    known = {value.name for value in proto.graph.input}
    for value in large:
        if value.name not in known and value.const_value is not None:
            tensor = value.const_value
            proto.graph.input.append(
                onnx.helper.make_tensor_value_info(
                    value.name or "", int(tensor.dtype), list(tensor.shape.numpy())
                )
            )
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return proto


def _stated(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """What a graph and its bodies say of their values."""
    yield from graph.value_info
    yield from graph.output
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _stated(body)


def _made_inside(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the values that the bodies of a node make."""
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from filter(None, inner.output)
                yield from _made_inside(inner)


def _is_large(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and math.prod(tensor.shape.numpy()) >= _LARGE


def _reads(node: onnx.NodeProto) -> list[str]:
    """The names that a node and its subgraphs read."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                names += _reads(inner)
    return names


def _bytes(value: ir.Value | None, symbols: Mapping[str, int]) -> int | None:
    """What the model itself says of a value, with sizes for its names."""
    if value is None or value.shape is None:
        return None
    sizes = [d if isinstance(d, int) else symbols.get(d.value or "") for d in value.shape]
    if any(size is None for size in sizes):
        return None
    number = math.prod(size for size in sizes if size is not None)
    itemsize = _UNKNOWN_BYTES if value.dtype is None else value.dtype.itemsize
    return math.ceil(number * itemsize)


def _element_bytes(code: int) -> int:
    try:
        return int(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)).itemsize)
    except (KeyError, TypeError):
        return _UNKNOWN_BYTES
