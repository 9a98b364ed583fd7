"""From target portable to native: the forms that Octavo writes, and quantize_dynamic's, as
operators of ours over the same integers. One kind of layer, one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of
from octavo.graph.emit.packed import pack_operators
from octavo.graph.rewrite.passes import rewrite
from octavo.ir import DOMAIN
from octavo.onnx.from_portable import conv, embedding, linear, recurrent
from octavo.onnx.from_portable import split_qkv as apart
from octavo.onnx.from_portable.context import RecognitionContext
from octavo.onnx.read.normalize import QUANTIZED_OPS

RECOGNIZERS: Mapping[str, Callable[[ir.Node, RecognitionContext], bool]] = {
    "MatMulIntegerToFloat": linear.recognize,
    "MatMulInteger": linear.recognize,
    "Gather": embedding.recognize,
    "ConvInteger": conv.recognize,
    "DynamicQuantizeLSTM": recurrent.recognize,
    "GRU": recurrent.recognize,
    "RNN": recurrent.recognize,
}
"""By the node that holds a layer's integers. Tables come last: a linear layer may share one."""

LEFT = "as it was: target native has no operator for it in this form"


def recognize(t: RecognitionContext) -> None:
    """Draws every layer of a known form anew, and takes in what stands around linear ones."""
    for graph in graphs_of(t.model):
        apart.split_qkv(graph, t)
        nodes = [node for node in graph if node.op_type in RECOGNIZERS]
        for node in sorted(nodes, key=lambda n: n.op_type == "Gather"):
            if node.graph is not None:
                RECOGNIZERS[node.op_type](node, t)
    rewrite(t)
    pack_operators(t)
    for graph in graphs_of(t.model):
        for node in graph:
            if node.op_type in QUANTIZED_OPS and node.domain != DOMAIN:
                t.note(node.name, f"{node.op_type} {LEFT}")
