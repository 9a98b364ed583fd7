"""Octavo's operators as a native file holds them: weights are packed here, and nowhere before."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import checksum
from octavo.errors import ModelError
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.context import Context
from octavo.ir import DOMAIN
from octavo.ir.operator import KEY, LAYER, Operator, Pack
from octavo.ir.weight import PackedValues, Weight


# docs/notes/onnxruntime.md: "Constants lie in the node's own graph"
def pack_operators(c: Context) -> None:
    """Draws every node that stands for an operator anew, with its constants in its own graph.

    ONNX Runtime shows a kernel in a subgraph no initializers of the graph around it.
    """
    for graph in graphs_of(c.model):
        for node in [n for n in graph if KEY in n.meta]:
            operator = type(node.meta[KEY]).of(node)
            assert isinstance(operator, Operator)
            written = operator.write(_NodePacker(c, node))
            outs = [o.name or "" for o in node.outputs]
            c.names.nodes.free(node.name)
            values = c.emitter.op_n(
                operator.op,
                list(written.inputs),
                outs=outs,
                name=node.name or operator.op,
                domain=DOMAIN,
                **written.attributes,
            )
            c.emitter.flush_before(node)
            c.sweeper.replace(node, values)


class _NodePacker:
    """The constants of one node."""

    def __init__(self, c: Context, node: ir.Node) -> None:
        self._c, self._node, self._graph = c, node, node.graph

    # docs/notes/native_target.md: "Weights are stored as kernels read them"
    def packed(self, weight: Weight, pack: Pack, *, layout: str) -> PackedValues:
        """Return `weight`, packed once for all nodes of the graph that read it in this `layout`."""

        def make() -> PackedValues:
            w, scale, zero = pack(weight.make()) if weight.packed is None else weight.packed()
            parts = ((w, "quantized"), (scale, "scale"), (zero, "zero_point"))
            digest = checksum(np.asarray(w).reshape(-1).view(np.uint8))
            values = [
                None if a is None else self._c.hold(a, weight.part_name(what), self._graph)
                for a, what in parts
            ]
            weight.account.bytes += sum(a.nbytes for a, _ in parts if a is not None)
            first, second, third = values
            assert first is not None and second is not None
            return PackedValues(first, second, third, digest)

        return self._c.once(("packed", layout, weight.key, self._graph), make)

    def bias(self, bias: ir.Value | None, count: int) -> ir.Value:
        """Return `bias` in the node's own graph, or `count` zeros where there is none."""
        if bias is None:
            return self.constant(np.zeros(count, np.float32), "bias")
        if bias.is_initializer() and bias.graph is self._graph:
            return bias
        stored = self._c.array(bias)
        if stored is None:
            raise ModelError(
                f"{bias.name}: the bias of a quantized layer is computed while the model runs; "
                "ONNX needs it as a constant"
            )
        return self._c.emitter.constant(stored, bias.name or "bias", self._graph)

    def constant(self, array: npt.NDArray[Any], what: str) -> ir.Value:
        """Put `array` into the graph, named after the node and `what` it is."""
        node, layer = self._node, self._node.meta.get(LAYER)
        wish = f"{node.name}_{what}" if layer in (None, node.name) else f"{layer}.{what}"
        return self._c.emitter.constant(array, wish, self._graph)
