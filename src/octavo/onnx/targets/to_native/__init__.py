"""From target portable to native: the forms that Octavo writes, and quantize_dynamic's, as
operators of ours over the same integers. One kind of layer, one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.graph.native import DOMAIN
from octavo.graph.native.fusions import fuse
from octavo.graph.walk import graphs_of
from octavo.onnx.read.normalize import QUANTIZED_OPS
from octavo.onnx.targets.to_native import apart, conv, embedding, linear, recurrent
from octavo.onnx.targets.turning import Turning

RECOGNIZERS: Mapping[str, Callable[[ir.Node, Turning], bool]] = {
    "MatMulIntegerToFloat": linear.turn,
    "MatMulInteger": linear.turn,
    "Gather": embedding.turn,
    "ConvInteger": conv.turn,
    "DynamicQuantizeLSTM": recurrent.turn,
    "GRU": recurrent.turn,
    "RNN": recurrent.turn,
}
"""By the node that holds a layer's integers. Tables come last: a linear layer may share one."""

LEFT = "as it was: target native has no operator for it in this form"


def turn(t: Turning) -> None:
    """Draws every layer of a known form anew, and takes in what stands around linear ones."""
    for graph in graphs_of(t.model):
        apart.take_apart(graph, t)
        nodes = [node for node in graph if node.op_type in RECOGNIZERS]
        for node in sorted(nodes, key=lambda n: n.op_type == "Gather"):
            if node.graph is not None:
                RECOGNIZERS[node.op_type](node, t)
    if DOMAIN in t.emitter.domains:
        fuse(t.model, t.emitter, t.constants, t.sweeper)
    for graph in graphs_of(t.model):
        for node in graph:
            if node.op_type in QUANTIZED_OPS and node.domain != DOMAIN:
                t.note(node.name, f"{node.op_type} {LEFT}")
