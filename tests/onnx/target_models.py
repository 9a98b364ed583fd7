"""One small float model for each kind of layer, with an input for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.native_target.test_attention_fusion import SPELLINGS, feeds, model
from tests.onnx.helpers import F32, build, mlp, normal
from tests.onnx.test_merge_qkv import biased

Case = tuple[onnx.ModelProto, Mapping[str, np.ndarray]]
I64 = TensorProto.INT64


def linear() -> Case:
    """Layers in a row, with ReLU between them."""
    return mlp(3, 64), {"x": normal(5, 64)}


def wide() -> Case:
    """Rows long enough for the form that quantizes along an axis; GELU before the second layer."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="up"),
        helper.make_node("Add", ["a", "b0"], ["b"]),
        helper.make_node("Div", ["b", "root"], ["c"]),
        helper.make_node("Erf", ["c"], ["d"]),
        helper.make_node("Add", ["d", "one"], ["e"]),
        helper.make_node("Mul", ["b", "e"], ["f"]),
        helper.make_node("Mul", ["f", "half"], ["g"]),
        helper.make_node("MatMul", ["g", "w1"], ["h"], name="down"),
        helper.make_node("Add", ["h", "x"], ["y"]),
    ]
    weights = {
        "w0": normal(48, 1024, seed=1),
        "b0": normal(1024, seed=2),
        "w1": normal(1024, 48, seed=3),
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
    }
    shape = ["b", "s", 48]
    return build(nodes, [("x", F32, shape)], [("y", F32, shape)], weights), {"x": normal(2, 3, 48)}


def gemm() -> Case:
    """Every attribute of Gemm."""
    nodes = [
        helper.make_node(
            "Gemm", ["x", "w", "b"], ["y"], name="fc", alpha=0.3, beta=0.7, transA=1, transB=1
        )
    ]
    weights = {"w": normal(24, 40, seed=1), "b": normal(24, seed=2)}
    model = build(nodes, [("x", F32, [40, "m"])], [("y", F32, ["m", 24])], weights)
    return model, {"x": normal(40, 6)}


def grouped(op: str = "Sub") -> Case:
    """Two layers over one input; of which native files make one node with Mul."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="q"),
        helper.make_node("MatMul", ["x", "w1"], ["b"], name="k"),
        helper.make_node("Sigmoid", ["b"], ["c"]),
        helper.make_node(op, ["a", "c"], ["y"]),
    ]
    weights = {"w0": normal(32, 48, seed=1), "w1": normal(32, 48, seed=2)}
    model = build(nodes, [("x", F32, ["m", 32])], [("y", F32, ["m", 48])], weights)
    return model, {"x": normal(4, 32)}


def attention() -> Case:
    """Q, K and V of one input, with biases: one product in portable files, one node in native."""
    proto = biased(model(**SPELLINGS["mask"]))
    return proto, feeds()


def joint() -> Case:
    """A layer that is taken apart into heads, as one layer in the float model too."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="qkv"),
        helper.make_node("Add", ["a", "bias"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3]),
        helper.make_node("Split", ["d", "heads"], ["q", "k", "v"], axis=1),
        helper.make_node("Mul", ["q", "k"], ["e"]),
        helper.make_node("Add", ["e", "v"], ["y"]),
    ]
    weights = {"w": normal(32, 96, seed=1), "bias": normal(96, seed=2)}
    weights |= {"shape": np.array([0, 0, 12, 8]), "heads": np.array([4, 4, 4])}
    shapes = [("x", F32, ["b", "s", 32])], [("y", F32, ["b", 4, "s", 8])]
    return build(nodes, *shapes, weights), {"x": normal(2, 5, 32)}


def tied() -> Case:
    """A table that is the output layer's weight too."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"], name="lookup"),
        helper.make_node("Tanh", ["e"], ["t"]),
        helper.make_node("Transpose", ["table"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "wt"], ["y"], name="head"),
    ]
    weights = {"table": normal(96, 64, seed=1)}
    model = build(nodes, [("i", I64, ["b", "s"])], [("y", F32, ["b", "s", 96])], weights)
    return model, {"i": np.arange(10).reshape(2, 5)}


def table() -> Case:
    """A lookup alone."""
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"], name="lookup")]
    weights = {"table": normal(96, 64, seed=1)}
    model = build(nodes, [("i", I64, ["b", "s"])], [("y", F32, ["b", "s", 64])], weights)
    return model, {"i": np.arange(10).reshape(2, 5)}


def conv() -> Case:
    """A convolution with padding, strides and bias."""
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1], strides=[2, 1]
        )
    ]
    weights = {"w": normal(32, 16, 3, 3, seed=1), "b": normal(32, seed=2)}
    shapes: Any = [("x", F32, ["b", 16, 12, 10])], [("y", F32, None)]
    return build(nodes, *shapes, weights), {"x": normal(2, 16, 12, 10)}


def pooled() -> Case:
    """A convolution, Relu and pools of two by three."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["y"], kernel_shape=[2, 3], strides=[2, 3]),
    ]
    shapes: Any = [("x", F32, ["b", 16, 12, 10])], [("y", F32, None)]
    return build(nodes, *shapes, {"w": normal(32, 16, 3, 3, seed=1)}), {"x": normal(2, 16, 12, 10)}


def products() -> Case:
    """A product of two activations."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"], name="scores")]
    model = build(
        nodes,
        [("a", F32, ["n", 8, 32]), ("b", F32, ["n", 32, 16])],
        [("y", F32, ["n", 8, 16])],
        {},
    )
    return model, {"a": normal(2, 8, 32), "b": normal(2, 32, 16, seed=1)}


def recurrent(op: str, **attributes: Any) -> Case:
    """A bidirectional layer with lengths and initial states."""
    gates, hidden, inputs = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 20, 24
    states = ["h0", "c0"] if op == "LSTM" else ["h0"]
    outs = ["y", "yh", "yc"] if op == "LSTM" else ["y", "yh"]
    node = helper.make_node(
        op,
        ["x", "w", "r", "b", "n", *states],
        outs,
        name="rec",
        hidden_size=hidden,
        direction="bidirectional",
        **attributes,
    )
    weights = {
        "w": normal(2, gates * hidden, inputs, seed=1) / 5,
        "r": normal(2, gates * hidden, hidden, seed=2) / 5,
        "b": normal(2, 2 * gates * hidden, seed=3) / 5,
    }
    inputs_of = [("x", F32, ["t", "b", inputs]), ("n", TensorProto.INT32, ["b"])]
    given = [*inputs_of, *((s, F32, [2, "b", hidden]) for s in states)]
    model = build([node], given, [(o, F32, None) for o in outs], weights)
    feed = {"x": normal(7, 3, inputs), "n": np.array([7, 3, 5], np.int32)}
    feed |= {s: normal(2, 3, hidden, seed=i) for i, s in enumerate(states)}
    return model, feed
