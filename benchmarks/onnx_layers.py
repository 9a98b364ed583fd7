"""ONNX models of one layer each, as bytes: input `x`, output `y`, sizes in front left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Float32 = NDArray[np.float32]
MICROSOFT = "com.microsoft"


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, NDArray[Any]],
    given: Sequence[str | int],
    made: Sequence[str | int],
) -> bytes:
    """A model of `nodes` from `x`, of shape `given`, to `y`, of shape `made`."""
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(whole.SerializeToString())


def gemm(w: Float32, bias: Float32) -> bytes:
    """`y = x @ w.T + bias` in float."""
    node = helper.make_node("Gemm", ["x", "w", "bias"], ["y"], transB=1)
    return model([node], {"w": w, "bias": bias}, ["rows", w.shape[1]], ["rows", w.shape[0]])


def dynamic_quantize_matmul(w: Float32, bias: Float32) -> bytes:
    """The same with int8 weights of one scale a channel, in the one node that does it all."""
    scale = np.maximum(np.abs(w).max(axis=1), np.float32(1e-30)) / np.float32(127)
    q = np.rint(w / scale[:, None]).astype(np.int8)
    node = helper.make_node(
        "DynamicQuantizeMatMul", ["x", "q", "scale", "", "bias"], ["y"], domain=MICROSOFT
    )
    weights = {"q": np.ascontiguousarray(q.T), "scale": scale, "bias": bias}
    return model([node], weights, ["rows", w.shape[1]], ["rows", w.shape[0]])


def conv(w: Float32, bias: Float32, padding: int, groups: int) -> bytes:
    """A float Conv of stride 1 with equal padding on all sides."""
    node = helper.make_node("Conv", ["x", "w", "bias"], ["y"], pads=[padding] * 4, group=groups)
    given: list[str | int] = ["batch", w.shape[1] * groups, "height", "width"]
    return model([node], {"w": w, "bias": bias}, given, ["batch", w.shape[0], "rows", "columns"])


def recurrent(op: str, weights: Sequence[Float32], hidden: int, layers: int, ways: int) -> bytes:
    """Stacked LSTM or GRU nodes from PyTorch's flat list of weights, `x` and `y` time first.

    The list holds w_ih, w_hh, b_ih, b_hh for each layer and each of its `ways` (1 or 2).
    """
    order = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}[op]  # i f g o to i o f g; r z n to z r n

    def reordered(parts: Sequence[Float32]) -> Float32:
        blocks = [np.split(part, len(order)) for part in parts]
        return np.stack([np.concatenate([block[i] for i in order]) for block in blocks])

    extra: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    held: dict[str, NDArray[Any]] = {}
    nodes, last = [], "x"
    for layer in range(layers):
        flat = weights[4 * ways * layer : 4 * ways * (layer + 1)]
        w, r, wb, rb = (reordered(flat[i::4]) for i in range(4))
        held |= {f"w{layer}": w, f"r{layer}": r, f"b{layer}": np.concatenate([wb, rb], axis=1)}
        names = [last, f"w{layer}", f"r{layer}", f"b{layer}"]
        direction = "bidirectional" if ways == 2 else "forward"
        nodes.append(
            helper.make_node(
                op, names, [f"ways{layer}"], hidden_size=hidden, direction=direction, **extra
            )
        )
        last = "y" if layer == layers - 1 else f"y{layer}"
        if ways == 1:
            nodes.append(helper.make_node("Squeeze", [f"ways{layer}", "one"], [last]))
        else:
            nodes.append(
                helper.make_node("Transpose", [f"ways{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3])
            )
            nodes.append(helper.make_node("Reshape", [f"t{layer}", "flat"], [last]))
    held |= {"one": np.array([1])} if ways == 1 else {"flat": np.array([0, 0, -1])}
    inputs = weights[0].shape[1]
    return model(nodes, held, ["steps", "batch", inputs], ["steps", "batch", ways * hidden])
