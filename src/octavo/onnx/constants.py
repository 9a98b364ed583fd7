"""Finds the weights of a graph, also behind nodes that only move or convert them.

A weight is rarely just an initializer: exporters put Constant, Transpose, Cast, Slice, Concat and
the like between the stored numbers and their use. `Constants` tells which values are constant, and
computes one only when it is asked for, so that nothing is loaded or copied for layers left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from octavo.errors import ModelError

# Operators that move, convert or rescale stored numbers, and are cheap to compute once.
CHAIN_OPS = frozenset(
    "Identity Cast Transpose Reshape Squeeze Unsqueeze Flatten Slice Concat Split Gather "
    "Mul Div Add Sub Neg Expand Tile Shape Dropout Pad".split()
)
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


@dataclass(frozen=True)
class Root:
    """Where a constant matrix is stored: `leaf`, and whether it is used transposed.

    `key` is equal for values that hold the same numbers: the same initializer, or equal chains
    over the same initializers.
    """

    leaf: ir.Value
    transposed: bool
    key: Any


class Constants:
    """Which values of a model are constant, and what they are. It never changes the graph."""

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._constant: dict[int, bool] = {}
        self._arrays: dict[int, npt.NDArray[Any]] = {}

    def tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """The stored tensor behind an initializer or Constant node, else None."""
        if value is None:
            return None
        producer = value.producer()
        if producer is None:
            return value.const_value if value.is_initializer() else None
        if producer.op_type != "Constant" or producer.domain not in ("", "ai.onnx"):
            return None
        attribute = producer.attributes.get("value")
        if attribute is not None and attribute.type is ir.AttributeType.TENSOR:
            tensor: ir.TensorProtocol = attribute.value  # as_tensor() checks a slow protocol
            return tensor
        return ir.convenience.get_const_tensor(value)

    def is_constant(self, value: ir.Value | None) -> bool:
        """Whether `value` is stored, or follows from stored values by CHAIN_OPS alone."""
        if value is None:
            return False
        known = self._constant.get(id(value))
        if known is not None:
            return known
        stack = [value]
        while stack:
            v = stack[-1]
            if id(v) in self._constant:
                stack.pop()
                continue
            node = v.producer()
            if node is None or self.tensor(v) is not None:
                self._constant[id(v)] = self.tensor(v) is not None
                stack.pop()
                continue
            if node.op_type not in CHAIN_OPS or node.domain not in ("", "ai.onnx"):
                self._constant[id(v)] = False
                stack.pop()
                continue
            inputs = [i for i in node.inputs if i is not None]
            unknown = [i for i in inputs if id(i) not in self._constant]
            if unknown:
                stack.extend(unknown)
                continue
            self._constant[id(v)] = all(self._constant[id(i)] for i in inputs)
            stack.pop()
        return self._constant[id(value)]

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """The element type of a constant, without loading it where that can be told."""
        tensor = self.tensor(value)
        if tensor is not None:
            return tensor.dtype
        if value.type is not None and isinstance(value.type, ir.TensorType):
            return value.type.dtype
        node = value.producer()
        if node is None:
            return None
        if node.op_type == "Cast":
            return ir.DataType(node.attributes["to"].as_int())
        if node.op_type == "Shape":
            return ir.DataType.INT64
        first = node.inputs[0] if node.inputs else None
        return None if first is None else self.dtype(first)

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """The shape of a constant; a chain whose shape the model does not state is computed."""
        tensor = self.tensor(value)
        if tensor is not None:
            return tuple(tensor.shape.numpy())
        if value.shape is not None and all(isinstance(d, int) for d in value.shape):
            return tuple(value.shape.numpy())
        root = self.root(value)
        if root.leaf is not value:
            shape = self.shape(root.leaf)
            return shape[::-1] if root.transposed else shape
        array = self.array(value)
        self._arrays[id(value)] = array
        return tuple(array.shape)

    def root(self, value: ir.Value) -> Root:
        """Follows Identity and 2-D Transpose back to where the numbers are stored."""
        transposed = False
        while True:
            node = value.producer()
            if node is None or node.domain not in ("", "ai.onnx"):
                break
            source = node.inputs[0] if node.inputs else None
            if source is None:
                break
            if node.op_type == "Transpose" and _swaps_two(node, source, self):
                transposed = not transposed
            elif node.op_type != "Identity":
                break
            value = source
        return Root(value, transposed, self._key(value))

    def array(self, value: ir.Value) -> npt.NDArray[Any]:
        """The numbers of a constant. Call `release` when done with them."""
        if id(value) in self._arrays:
            return self._arrays[id(value)]
        tensor = self.tensor(value)
        if tensor is not None:
            return _numpy(tensor, value.name)
        return self._evaluate(value)

    def release(self, value: ir.Value) -> None:
        """Unmaps what `array` mapped, so that a large model passes through little memory."""
        self._arrays.pop(id(value), None)
        seen: set[int] = set()
        stack = [value]
        while stack:
            v = stack.pop()
            if id(v) in seen:
                continue
            seen.add(id(v))
            tensor = self.tensor(v)
            if isinstance(tensor, ir.ExternalTensor):
                unmap(tensor)
            node = v.producer()
            if tensor is None and node is not None:
                stack.extend(i for i in node.inputs if i is not None)

    def _key(self, value: ir.Value) -> Any:
        node = value.producer()
        if node is None or self.tensor(value) is not None:
            return id(value)
        attributes = tuple(sorted((k, str(a.value)) for k, a in node.attributes.items()))
        inputs = tuple(None if i is None else self._key(i) for i in node.inputs)
        return (node.op_type, attributes, inputs, value.index())

    def _evaluate(self, value: ir.Value) -> npt.NDArray[Any]:
        """Runs the chain that makes `value` with ONNX's reference implementation."""
        nodes: dict[int, ir.Node] = {}
        feeds: dict[str, npt.NDArray[Any]] = {}
        names: dict[int, str] = {}
        self._collect(value, nodes, feeds, names)
        protos = []
        for node in nodes.values():
            proto = ir.serde.serialize_node(node)
            del proto.input[:], proto.output[:]
            proto.input.extend("" if i is None else names[id(i)] for i in node.inputs)
            proto.output.extend(names.setdefault(id(o), f"v{id(o)}") for o in node.outputs)
            protos.append(proto)
        graph = onnx.helper.make_graph(
            protos,
            "chain",
            [onnx.helper.make_empty_tensor_value_info(n) for n in feeds],
            [onnx.helper.make_empty_tensor_value_info(names[id(value)])],
        )
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", self._opset)]
        )
        try:
            result = cast(list[Any], ReferenceEvaluator(model).run(None, feeds))[0]
        except Exception as error:
            raise ModelError(
                f"weight {value.name!r} could not be computed from the nodes that feed it: {error}"
            ) from error
        return np.asarray(result)

    def _collect(
        self,
        value: ir.Value,
        nodes: dict[int, ir.Node],
        feeds: dict[str, npt.NDArray[Any]],
        names: dict[int, str],
    ) -> None:
        names.setdefault(id(value), f"v{id(value)}")
        tensor = self.tensor(value)
        if tensor is not None:
            feeds[names[id(value)]] = _numpy(tensor, value.name)
            return
        node = value.producer()
        assert node is not None
        if id(node) in nodes:
            return
        for i in node.inputs:
            if i is not None:
                self._collect(i, nodes, feeds, names)
        nodes[id(node)] = node


def unmap(tensor: ir.ExternalTensor) -> None:
    """Gives the tensor's mapped memory back, now or when the last view of it is gone."""
    try:
        tensor.release()
    except BufferError:
        tensor.raw = None


def _swaps_two(node: ir.Node, source: ir.Value, constants: Constants) -> bool:
    perm = node.attributes.get("perm")
    if perm is not None:
        return list(perm.as_ints()) == [1, 0]
    return len(constants.shape(source)) == 2


def _numpy(tensor: ir.TensorProtocol, name: str | None) -> npt.NDArray[Any]:
    try:
        return tensor.numpy()
    except FileNotFoundError as error:
        raise ModelError(
            f"external data of tensor {name!r} is missing: {error.filename}; "
            "put the file beside the model, under the name that the model states"
        ) from error
    except (ValueError, OSError) as error:
        raise ModelError(f"tensor {name!r} cannot be read: {error}") from error
