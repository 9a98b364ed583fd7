"""ai.octavo.MatMul, the product of two activations: in float.

MatMul(a, b)  ->  MatMul(a, b) of ONNX, or FusedMatMul where it transposes b
"""

from __future__ import annotations

import onnx_ir as ir

from octavo.graph.emitter import MS
from octavo.onnx.targets.turning import Outputs, Turning

NOTE = "a product of two activations, computed in float: target portable has one scale for columns"


def draw(node: ir.Node, t: Turning) -> Outputs:
    """The product, float32."""
    name, out = node.name, f"{node.outputs[0].name}_product"
    t.note(name, NOTE)
    t.names.nodes.free(name)
    inputs = list(node.inputs)
    if node.attributes["transpose_b"].as_int():
        e = t.emitter
        return [e.op("FusedMatMul", inputs, out=out, name=name, domain=MS, transB=1)]
    return [t.emitter.op("MatMul", inputs, out=out, name=name)]
