"""Small files as other quantizers write them, each with an input and its float model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime.quantization as ortq
from onnx import TensorProto, helper

from tests.graphs import F32, build, normal, save

U8, I64 = TensorProto.UINT8, TensorProto.INT64
Case = tuple[onnx.ModelProto, Mapping[str, np.ndarray]]
Make = Callable[[], Case]


def linear() -> Case:
    """MatMul and bias, GELU-free."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="up"),
        helper.make_node("Add", ["h", "b"], ["r"]),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("MatMul", ["s", "v"], ["y"], name="down"),
    ]
    weights = {"w": normal(32, 48, seed=1), "b": normal(48, seed=2), "v": normal(48, 16, seed=3)}
    model = build(nodes, [("x", F32, ["m", 32])], [("y", F32, ["m", 16])], weights)
    return model, {"x": normal(5, 32)}


def conv() -> Case:
    """64 channels and a bias, so that integers win; a filter is far from symmetric."""
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1])]
    w = normal(64, 64, 3, 3, seed=1)
    w[3] += 4
    weights = {"w": w, "b": normal(64, seed=2)}
    shape = ["n", 64, 6, 6]
    return build(nodes, [("x", F32, shape)], [("y", F32, shape)], weights), {
        "x": normal(2, 64, 6, 6)
    }


def lstm() -> Case:
    """Both directions."""
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y"], name="rec", hidden_size=16, direction="bidirectional"
    )
    weights = {
        "w": normal(2, 64, 24, seed=1) / 4,
        "r": normal(2, 64, 16, seed=2) / 4,
        "b": normal(2, 128, seed=3),
    }
    model = build([node], [("x", F32, [4, 2, 24])], [("y", F32, [4, 2, 2, 16])], weights)
    return model, {"x": normal(4, 2, 24)}


def table() -> Case:
    """Rows of a table that are moved about before a layer reads them."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="lookup"),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("Neg", ["turned"], ["other"]),
        helper.make_node("MatMul", ["other", "w"], ["y"], name="fc"),
    ]
    weights = {"table": normal(400, 32, seed=1), "w": normal(6, 24, seed=2)}
    model = build(nodes, [("ids", I64, [6])], [("y", F32, [32, 24])], weights)
    return model, {"ids": np.array([1, 7, 399, 0, 3, 8])}


def rows() -> Case:
    """Rows of a table that a layer multiplies as they are."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="lookup"),
        helper.make_node("MatMul", ["rows", "w"], ["y"], name="fc"),
    ]
    weights = {"table": normal(400, 32, seed=1), "w": normal(32, 24, seed=2)}
    model = build(nodes, [("ids", I64, [6])], [("y", F32, [6, 24])], weights)
    return model, {"ids": np.array([1, 7, 399, 0, 3, 8])}


def branch() -> Case:
    """A layer in each branch of an If."""

    def body(name: str) -> onnx.GraphProto:
        node = helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_y"], name=name)
        weight = onnx.numpy_helper.from_array(normal(32, 48, seed=len(name)), f"{name}_w")
        out = helper.make_tensor_value_info(f"{name}_y", F32, ["m", 48])
        return helper.make_graph([node], name, [], [out], [weight])

    node = helper.make_node(
        "If", ["flag"], ["y"], name="if", then_branch=body("yes"), else_branch=body("no")
    )
    inputs = [("flag", TensorProto.BOOL, []), ("x", F32, ["m", 32])]
    model = build([node], inputs, [("y", F32, ["m", 48])], {})
    return model, {"flag": np.array(True), "x": normal(5, 32)}


KINDS: dict[str, Make] = {
    "linear": linear,
    "conv": conv,
    "lstm": lstm,
    "table": table,
    "rows": rows,
    "branch": branch,
}


def dynamic(make: Make, folder: Path, **options: Any) -> tuple[Path, Path]:
    """The float file, and what ONNX Runtime's `quantize_dynamic` makes of it."""
    source, out = save(make()[0], folder / "float.onnx"), folder / "model_quantized.onnx"
    more = {"extra_options": {"EnableSubgraph": True}} | options
    ortq.quantize_dynamic(source, out, **more)
    return source, out


def static(make: Make, folder: Path, **options: Any) -> tuple[Path, Path]:
    """The same of `quantize_static`, calibrated with the case's input."""
    model, feed = make()
    source, out = save(model, folder / "float.onnx"), folder / "model_static.onnx"

    left = [dict(feed)]

    class Reader(ortq.CalibrationDataReader):
        def get_next(self) -> Any:
            return left.pop() if left else None

    ortq.quantize_static(source, out, Reader(), **options)
    return source, out


def by_hand(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], y: Any) -> onnx.ModelProto:
    """A model of float x [2, 5, 32] with its integers `x_q`, `x_s` and `x_z` before `nodes`."""
    first = helper.make_node("DynamicQuantizeLinear", ["x"], ["x_q", "x_s", "x_z"], name="quantize")
    return build([first, *nodes], [("x", F32, [2, 5, 32])], [("y", F32, y)], weights)


def integers(rows: int, columns: int, *, unsigned: bool = False) -> dict[str, np.ndarray]:
    """A matrix with a scale and a zero point for all of it: w, w_s, w_z."""
    random = np.random.default_rng(rows)
    q = random.integers(-100, 100, (rows, columns)).astype(np.int8)
    if unsigned:
        q, zero = (q.astype(np.int16) + 110).astype(np.uint8), np.array(110, np.uint8)
    else:
        zero = np.array(0, np.int8)
    return {"w": q, "w_s": np.array(0.013, np.float32), "w_z": zero}
