"""Chains of MatMul and Relu, for scripts that need a model whose layers are known."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def mlp(layers: int, width: int) -> onnx.ModelProto:
    """x [m, width] -> (MatMul `layer0` -> Relu) -> ... -> y."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(layers):
        w = rng.standard_normal((width, width), np.float32) * np.float32((2 / width) ** 0.5)
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"h{i}"], name=f"layer{i}"))
        x = "y" if i == layers - 1 else f"r{i}"
        nodes.append(helper.make_node("Relu", [f"h{i}"], [x], name=f"relu{i}"))
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", width]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
