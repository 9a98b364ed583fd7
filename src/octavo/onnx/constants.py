"""Finds the weights of a graph, also behind nodes that only move or convert them.

A weight is rarely just an initializer: exporters put Constant, Transpose, Cast, Slice, Concat and
the like between the stored numbers and their use. `Constants` tells which values are constant, and
computes one only when it is asked for, so that nothing is loaded or copied for layers left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from octavo.errors import ModelError
from octavo.graph.analysis.walk import bodies_of
from octavo.onnx.stored_blocks import StoredBlocks
from octavo.onnx.stored_weight import StoredWeight, read_numbers, unmap

# Operators that move, convert, rescale or constrain stored numbers, as weight norm, clipping and
# adapters do, and are cheap to compute once. Not Softmax, of which ONNX's reference knows only the
# meaning that it has from opset 13 on.
CHAIN_OPS = frozenset(
    "Identity Cast Transpose Reshape Squeeze Unsqueeze Flatten Slice Concat Split Gather Expand "
    "Tile Shape Dropout Pad Mul Div Add Sub Neg Abs Sqrt Pow Exp Log Reciprocal Sign Clip Min Max "
    "Where Relu Tanh Sigmoid Softplus ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 "
    "ReduceL2 ReduceSumSquare MatMul".split()
)
MOVES = frozenset("Identity Cast Transpose Reshape Squeeze Unsqueeze Flatten".split())
LAYER_OPS = frozenset("MatMul Gemm FusedMatMul Attention Conv LSTM GRU RNN".split())
"""What such operators make of stored values is the result of a layer, and no weight."""
RANDOM_OPS = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split()
)
SMALL = 64  # elements of shapes, axes and bounds
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
NARROW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
WEIGHTS = FLOATS | {ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8}


@dataclass(frozen=True)
class Root:
    """Where a constant matrix is stored: `leaf`, and whether it is used transposed.

    `key` is equal for values that hold the same numbers: the same initializer, or equal chains
    over the same initializers.
    """

    leaf: ir.Value
    transposed: bool
    key: Any


@dataclass(frozen=True)
class Computed:
    """A value that is the same in every run, and not computed here: an operator is in the way.

    `stored` are the tensors that it is computed from, without shapes and single numbers.
    """

    by: str
    stored: tuple[ir.Value, ...]


class Constants:
    """Which values of a model are constant, and what they are. It never changes the graph."""

    def __init__(self, opset: int) -> None:
        self._opset = opset
        # By the values themselves, not their ids: a new value may get the id of one that is gone.
        self._constant: dict[ir.Value, bool] = {}
        self._computed: dict[ir.Value, Computed | None] = {}
        self._arrays: dict[ir.Value, npt.NDArray[Any]] = {}
        self._shapes: dict[ir.Value, tuple[int, ...]] = {}
        self._keys: dict[ir.Value, int] = {}
        self._chains: dict[tuple[object, ...], int] = {}

    def tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """Return the stored tensor behind an initializer or Constant node, else None."""
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
        """Tell whether `value` is stored, or follows from stored values by CHAIN_OPS alone."""
        if value is None:
            return False
        known = self._constant.get(value)
        if known is not None:
            return known
        stack = [value]
        while stack:
            v = stack[-1]
            if v in self._constant:
                stack.pop()
                continue
            node = v.producer()
            if node is None or self.tensor(v) is not None:
                self._constant[v] = self.tensor(v) is not None
                stack.pop()
                continue
            if node.op_type not in CHAIN_OPS or node.domain not in ("", "ai.onnx"):
                self._constant[v] = False
                stack.pop()
                continue
            inputs = [i for i in node.inputs if i is not None]
            unknown = [i for i in inputs if i not in self._constant]
            if unknown:
                stack.extend(unknown)
                continue
            self._constant[v] = all(self._constant[i] for i in inputs)
            stack.pop()
        return self._constant[value]

    def computed(self, value: ir.Value | None) -> Computed | None:
        """Return how `value` follows from stored values alone, where not by CHAIN_OPS alone."""
        if value is None:
            return None
        if value in self._computed:
            return self._computed[value]
        if self.is_constant(value):
            return None
        stack = [value]
        while stack:
            v = stack[-1]
            node = v.producer()
            inputs = [] if node is None else [i for i in node.inputs if i is not None]
            unknown = [i for i in inputs if not self.is_constant(i) and i not in self._computed]
            if v in self._computed:
                stack.pop()
            elif unknown and node is not None and _is_fixed(node):
                stack.extend(unknown)
            else:
                self._computed[v] = None if node is None else self._computed_by(node, inputs)
                stack.pop()
        return self._computed[value]

    def _computed_by(self, node: ir.Node, inputs: Sequence[ir.Value]) -> Computed | None:
        if not inputs or not _is_fixed(node):
            return None
        found = {i: self._computed.get(i) for i in inputs}
        if any(known is None and not self.is_constant(i) for i, known in found.items()):
            return None
        by, stored = "", dict[ir.Value, None]()
        for i, known in found.items():
            by = by or (known.by if known is not None else "")
            stored.update(dict.fromkeys(self._stored(i) if known is None else known.stored))
        return Computed(by or node.op_type, tuple(stored))

    def bytes_stored(self, value: ir.Value) -> int:
        """Return the bytes, in the file, of the tensors that a constant is made of."""
        return sum(tensor.nbytes for _, tensor in self.leaves(value))

    def _stored(self, value: ir.Value) -> Iterator[ir.Value]:
        """Yield the tensors that a constant is made of, without shapes and single numbers."""
        for v, tensor in self.leaves(value):
            if tensor.dtype in WEIGHTS and len(tensor.shape):
                yield v

    def leaves(self, value: ir.Value) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
        """Yield what a constant is made of, each with the tensor that it holds."""
        stack, seen = [value], set[ir.Value]()
        while stack:
            v = stack.pop()
            node = v.producer()
            tensor = self.tensor(v)
            if v in seen:
                continue
            seen.add(v)
            if tensor is None and node is not None:
                stack.extend(i for i in node.inputs if i is not None)
            elif tensor is not None:
                yield v, tensor

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """Return the element type of a constant, without loading it where that can be told."""
        at: ir.Value | None = value
        while at is not None:
            tensor = self.tensor(at)
            if tensor is not None:
                return tensor.dtype
            if at.type is not None and isinstance(at.type, ir.TensorType):
                return at.type.dtype
            node = at.producer()
            if node is None:
                return None
            if node.op_type == "Cast":
                return ir.DataType(node.attributes["to"].as_int())
            if node.op_type == "Shape":
                return ir.DataType.INT64
            first = 1 if node.op_type == "Where" else 0  # behind its condition
            at = node.inputs[first] if len(node.inputs) > first else None
        return None

    def stored_as(self, value: ir.Value) -> ir.DataType | None:
        """Return the element type of the numbers in the file that `value` is made of.

        Where other nodes than those that move or convert numbers stand between them, return that of
        `value`.
        """
        at: ir.Value | None = value
        while at is not None:
            tensor, node = self.tensor(at), at.producer()
            if tensor is not None:
                if isinstance(tensor, StoredBlocks):
                    return tensor.stored_dtype
                stored = tensor.stored if isinstance(tensor, StoredWeight) else tensor
                return stored.dtype
            if node is None or node.op_type not in MOVES:
                break
            at = node.inputs[0]
        return self.dtype(value)

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """Return a constant's shape. A chain's is inferred: what a model states may be stale."""
        tensor = self.tensor(value)
        if tensor is not None:
            return tuple(tensor.shape.numpy())
        root = self.root(value)
        if root.leaf is not value:
            shape = self.shape(root.leaf)
            return shape[::-1] if root.transposed else shape
        if value not in self._shapes:
            inferred = self._infer_shape(value)
            if inferred is None:
                self._arrays[value] = array = self.array(value)
                inferred = tuple(array.shape)
            self._shapes[value] = inferred
        return self._shapes[value]

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
        """Return the numbers of a constant. Call `release` when done with them."""
        if value in self._arrays:
            return self._arrays[value]
        tensor = self.tensor(value)
        if tensor is not None:
            return read_numbers(tensor, value.name)
        return self._evaluate(value)

    def release(self, value: ir.Value) -> None:
        """Unmaps what `array` mapped, so that a large model passes through little memory."""
        self._arrays.pop(value, None)
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
        """Return the same number for equal chains over the same stored tensors."""
        stack = [value]
        while stack:
            v = stack[-1]
            node = v.producer()
            if v in self._keys:
                stack.pop()
            elif node is None or self.tensor(v) is not None:
                self._keys[v] = len(self._keys)
            else:
                inputs = [i for i in node.inputs if i is not None]
                unknown = [i for i in inputs if i not in self._keys]
                stack.extend(unknown)
                if not unknown:
                    self._keys[v] = self._chain_key(v, node)
        return self._keys[value]

    def _chain_key(self, value: ir.Value, node: ir.Node) -> int:
        attributes = tuple(sorted((k, str(a.value)) for k, a in node.attributes.items()))
        inputs = tuple(-1 if i is None else self._keys[i] for i in node.inputs)
        step = (node.op_type, attributes, inputs, value.index())
        return self._chains.setdefault(step, len(self._keys))

    # docs/notes/onnxruntime.md: "Constants are evaluated on demand"
    def _evaluate(self, value: ir.Value) -> npt.NDArray[Any]:
        """Run the chain that makes `value` with ONNX's reference implementation.

        16-bit floats in float32, as ONNX Runtime does: their squares and sums leave the range of
        float16, and NumPy multiplies matrices of them a hundred times slower.
        """
        graph, leaves = self._chain(value)
        feeds = {n: read_numbers(tensor, leaf) for n, (leaf, tensor) in leaves.items()}
        narrow = [t.dtype in NARROW for _, t in leaves.values()]
        narrow += [_narrows(node) for node in graph.node]
        if any(narrow):
            _widen(graph, feeds, leaves)
        try:
            result = cast(Any, ReferenceEvaluator(self._model(graph)).run(None, feeds))[0]
        except Exception as error:  # whatever the evaluator raises, name the value
            raise ModelError(
                f"weight {value.name!r} could not be computed from the nodes that feed it: {error}"
            ) from error
        dtype = self.dtype(value) if any(narrow) else None
        result = np.asarray(result)
        return result.astype(dtype.numpy()) if dtype in NARROW and dtype is not None else result

    def _infer_shape(self, value: ir.Value) -> tuple[int, ...] | None:
        """Infer the shape that the chain gives from its leaves' shapes and small integers alone."""
        graph, leaves = self._chain(value)
        for name, (leaf, tensor) in leaves.items():
            if tensor.size <= SMALL and tensor.dtype in (ir.DataType.INT64, ir.DataType.INT32):
                graph.initializer.append(
                    onnx.numpy_helper.from_array(read_numbers(tensor, leaf), name)
                )
        try:
            inferred = onnx.shape_inference.infer_shapes(self._model(graph), data_prop=True)
        except Exception:  # noqa: BLE001 - then it is computed, which names what is wrong
            return None
        dims = inferred.graph.output[0].type.tensor_type
        if not dims.HasField("shape") or not all(d.HasField("dim_value") for d in dims.shape.dim):
            return None
        return tuple(d.dim_value for d in dims.shape.dim)

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        imports = [onnx.helper.make_opsetid("", self._opset)]
        return onnx.helper.make_model(graph, opset_imports=imports)

    def _chain(
        self, value: ir.Value
    ) -> tuple[onnx.GraphProto, dict[str, tuple[str | None, ir.TensorProtocol]]]:
        """Return the nodes that make `value`, and by input name what is stored in front of them."""
        nodes: dict[int, ir.Node] = {}
        leaves: dict[str, tuple[str | None, ir.TensorProtocol]] = {}
        names: dict[int, str] = {}
        self._collect(value, nodes, leaves, names)
        protos = []
        for node in nodes.values():
            proto = ir.serde.serialize_node(node)
            del proto.input[:], proto.output[:]
            proto.input.extend("" if i is None else names[id(i)] for i in node.inputs)
            proto.output.extend(names.setdefault(id(o), f"v{id(o)}") for o in node.outputs)
            protos.append(proto)
        inputs = [
            onnx.helper.make_tensor_value_info(n, int(t.dtype), list(t.shape.numpy()))
            for n, (_, t) in leaves.items()
        ]
        output = onnx.helper.make_empty_tensor_value_info(names[id(value)])
        return onnx.helper.make_graph(protos, "chain", inputs, [output]), leaves

    def _collect(
        self,
        value: ir.Value,
        nodes: dict[int, ir.Node],
        leaves: dict[str, tuple[str | None, ir.TensorProtocol]],
        names: dict[int, str],
    ) -> None:
        names.setdefault(id(value), f"v{id(value)}")
        tensor = self.tensor(value)
        if tensor is not None:
            leaves[names[id(value)]] = (value.name, tensor)
            return
        node = value.producer()
        assert node is not None
        if id(node) in nodes:
            return
        for i in node.inputs:
            if i is not None:
                self._collect(i, nodes, leaves, names)
        nodes[id(node)] = node


def _is_fixed(node: ir.Node) -> bool:
    """Tell whether equal inputs give equal outputs, as the inputs show.

    Results of layers do not count as fixed.
    """
    if node.op_type in RANDOM_OPS or node.op_type in LAYER_OPS:
        return False
    return not bodies_of(node)


def _narrows(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and ir.DataType(node.attribute[0].i) in NARROW


def _widen(
    graph: onnx.GraphProto,
    feeds: dict[str, npt.NDArray[Any]],
    leaves: Mapping[str, tuple[str | None, ir.TensorProtocol]],
) -> None:
    """Lets all 16-bit floats of a chain be float32."""
    for given in graph.input:
        if leaves[given.name][1].dtype in NARROW:
            feeds[given.name] = feeds[given.name].astype(np.float32)
            given.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for node in graph.node:
        if _narrows(node):
            node.attribute[0].i = onnx.TensorProto.FLOAT


def _swaps_two(node: ir.Node, source: ir.Value, constants: Constants) -> bool:
    perm = node.attributes.get("perm")
    if perm is not None:
        return list(perm.as_ints()) == [1, 0]
    return len(constants.shape(source)) == 2
