"""Adds nodes and constants to an onnx_ir graph under names that nobody else has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of
from octavo.ir import MS, WITHOUT_QUANTIZE


class NameSet:
    """Hands out names that nothing of its kind has yet."""

    def __init__(self, taken: Iterable[str | None]) -> None:
        self._taken = Counter(name for name in taken if name)

    def free(self, name: str | None) -> None:
        """Give a name back whose holder is about to be replaced."""
        if name:
            self._taken[name] -= 1

    def taken(self) -> list[str]:
        """Return the names that are in use."""
        return [name for name, count in self._taken.items() if count > 0]

    def new(self, wish: str) -> str:
        """Return the name `wish`, or `wish_1`, `wish_2`, ... where it is taken."""
        name, i = wish, 0
        while self._taken[name] > 0:
            i += 1
            name = f"{wish}_{i}"
        self._taken[name] = 1
        return name


class Names:
    """The names of all graphs of a model: of values, and apart from them those of nodes."""

    def __init__(self, model: ir.Model) -> None:
        graphs = graphs_of(model)
        self.values = NameSet(
            v.name
            for graph in graphs
            for v in (
                *graph.inputs,
                *(i for i in graph.initializers.values() if not i.is_graph_input()),
                *(o for node in graph for o in node.outputs),
            )
        )
        # Nodes of two graphs may share a name, and both keep it. Newer releases of ONNX Runtime
        # refuse it within one graph: there, one of them gets another.
        nodes: Counter[str | None] = Counter()
        for graph in graphs:
            nodes |= Counter(node.name for node in graph)
        self.nodes = NameSet(nodes.elements())


class Emitter:
    """Builds the nodes that replace `anchor`, and inserts them before it on `flush`.

    `opset` is the version of the standard operators in the model; helpers below pick the form of
    an operator that fits it. ConstantLookup go into the main graph, where every subgraph sees them.
    """

    def __init__(self, model: ir.Model, names: Names, opset: int) -> None:
        self.model = model
        self.names = names
        self.opset = opset
        self.domains: set[str] = set()
        self._nodes: list[ir.Node] = []
        self._constants: dict[Any, ir.Value] = {}
        self._first: list[ir.Node] = []

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        *,
        out: str,
        domain: str = "",
        name: str | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """Add a node with one output, called `out` or the next free name like `out`."""
        return self.op_n(op_type, inputs, outs=(out,), domain=domain, name=name, **attributes)[0]

    def op_n(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        *,
        outs: Sequence[str],
        domain: str = "",
        name: str | None = None,
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """Add a node with several outputs; the name "" leaves one out.

        `name` is the wished name of the node, by default made of the first output's.
        """
        outputs = [ir.Value(name=self.names.values.new(o) if o else "") for o in outs]
        node = ir.node(
            op_type,
            list(inputs),
            attributes={k: _attribute(k, v) for k, v in attributes.items()},
            domain=domain,
            outputs=outputs,
            name=self.names.nodes.new(name if name is not None else f"{outs[0]}/{op_type}"),
        )
        if domain:
            self.domains.add(domain)
        self._nodes.append(node)
        return outputs

    def scalar(self, value: float | int, dtype: Any) -> ir.Value:
        """Return a shared rank-0 constant."""
        return self.constant(np.asarray(value, dtype), f"octavo_{np.dtype(dtype).name}_{value:g}")

    def vector(self, values: Sequence[int]) -> ir.Value:
        """Return a shared int64 vector, for shapes and axes."""
        return self.constant(
            np.asarray(values, np.int64), "octavo_shape_" + "_".join(map(str, values))
        )

    def constant(
        self, array: np.ndarray[Any, Any], wish: str, graph: ir.Graph | None = None
    ) -> ir.Value:
        """Add an initializer to `graph`, by default the main one; share equal small arrays."""
        of = None if graph is None or graph is self.model.graph else graph
        key = (array.dtype.name, array.shape, array.tobytes(), of) if array.size <= 64 else None
        kept = self._constants.get(key) if key is not None else None
        if kept is not None and kept.is_initializer():  # it may have been removed with its reader
            return kept
        name = self.names.values.new(wish)
        value = self.initializer(ir.Tensor(array, name=name), name, of)
        if key is not None:
            self._constants[key] = value
        return value

    def initializer(
        self, tensor: ir.TensorProtocol, name: str, graph: ir.Graph | None = None
    ) -> ir.Value:
        """Register `tensor` in `graph` (by default the main one) under `name`.

        The name must come from `names.values`.
        """
        value = ir.Value(
            name=name,
            shape=ir.Shape([int(d) for d in tensor.shape.numpy()]),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        (self.model.graph if graph is None else graph).register_initializer(value)
        return value

    def cast(self, value: ir.Value, dtype: ir.DataType, out: str) -> ir.Value:
        """Add a Cast node to `dtype`."""
        return self.op("Cast", [value], out=out, to=int(dtype))

    def transpose(self, value: ir.Value, perm: Sequence[int], out: str) -> ir.Value:
        """Add a Transpose node."""
        return self.op("Transpose", [value], out=out, perm=list(perm))

    def quantize(
        self, value: ir.Value, scale: ir.Value, zero_point: ir.Value, out: str, **attributes: Any
    ) -> ir.Value:
        """Add a QuantizeLinear node.

        ONNX Runtime 1.23 runs opset 23 but for its QuantizeLinear, and has its own, which is the
        same.
        """
        domain = MS if self.opset == WITHOUT_QUANTIZE else ""
        inputs = [value, scale, zero_point]
        return self.op("QuantizeLinear", inputs, out=out, domain=domain, **attributes)

    def reduce_last(self, op_type: str, value: ir.Value, out: str) -> ir.Value:
        """Add a reduction along the last axis that keeps it, in the form this opset has."""
        since = 13 if op_type == "ReduceSum" else 18
        if self.opset >= since:
            return self.op(op_type, [value, self.vector([-1])], out=out, keepdims=1)
        return self.op(op_type, [value], out=out, axes=[-1], keepdims=1)

    def split(self, value: ir.Value, axis: int, sizes: Sequence[int], outs: Sequence[str]) -> Any:
        """Split an axis into `sizes`, in the form this opset has."""
        if self.opset >= 13:
            return self.op_n("Split", [value, self.vector(sizes)], outs=outs, axis=axis)
        return self.op_n("Split", [value], outs=outs, axis=axis, split=list(sizes))

    def unsqueeze(self, value: ir.Value, axes: Sequence[int], out: str) -> ir.Value:
        """Axes of length 1, numbered as in the result."""
        if self.opset >= 13:
            return self.op("Unsqueeze", [value, self.vector(axes)], out=out)
        return self.op("Unsqueeze", [value], out=out, axes=list(axes))

    def squeeze_last(self, value: ir.Value, out: str) -> ir.Value:
        """Drop a last axis of length 1."""
        if self.opset >= 13:
            return self.op("Squeeze", [value, self.vector([-1])], out=out)
        return self.op("Squeeze", [value], out=out, axes=[-1])

    def flush_before(self, anchor: ir.Node) -> list[ir.Node]:
        """Insert the nodes built so far before `anchor`, in its graph, and return them."""
        nodes, self._nodes = self._nodes, []
        graph = anchor.graph
        assert graph is not None
        graph.insert_before(anchor, nodes)
        return nodes

    def flush_first(self) -> None:
        """Insert the nodes built so far at the main graph's start, behind earlier ones.

        They depend on nothing but constants and what this function inserted before.
        """
        nodes, self._nodes = self._nodes, []
        graph = self.model.graph
        while self._first and self._first[-1].graph is not graph:  # taken out since
            self._first.pop()
        first = next(iter(graph), None)
        if self._first:
            graph.insert_after(self._first[-1], nodes)
        elif first is not None:
            graph.insert_before(first, nodes)
        else:
            graph.extend(nodes)
        self._first += nodes


def _attribute(name: str, value: Any) -> Any:
    """Make integers the attribute they become: `ir.node` is slow to tell what a list is."""
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        return ir.AttrInt64s(name, value)
    return value
