"""Small files as other quantizers write them, each with an input and its float model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime.quantization as ortq

from octavo.onnx import convert_target
from octavo.results.report import Conversion
from tests.graphs import Case, normal, save, text

Make = Callable[[], Case]


def linear() -> Case:
    body = """[up] h = MatMul (x, w)
        r = Add (h, b)
        s = Relu (r)
        [down] y = MatMul (s, v)"""
    weights = {"w": normal(32, 48, seed=1), "b": normal(48, seed=2), "v": normal(48, 16, seed=3)}
    return text(body, "float[m, 32] x", "float[m, 16] y", weights), {"x": normal(5, 32)}


def conv() -> Case:
    """64 channels and a bias, so that integers win; a filter is far from symmetric."""
    w = normal(64, 64, 3, 3, seed=1)
    w[3] += 4
    weights, shape = {"w": w, "b": normal(64, seed=2)}, "float[n, 64, 6, 6]"
    body = "[conv] y = Conv <pads = [1, 1, 1, 1]> (x, w, b)"
    return text(body, f"{shape} x", f"{shape} y", weights), {"x": normal(2, 64, 6, 6)}


def lstm() -> Case:
    body = '[rec] y = LSTM <hidden_size = 16, direction = "bidirectional"> (x, w, r, b)'
    weights = {"w": normal(2, 64, 24, seed=1) / 4, "r": normal(2, 64, 16, seed=2) / 4}
    weights |= {"b": normal(2, 128, seed=3)}
    return text(body, "float[4, 2, 24] x", "float[4, 2, 2, 16] y", weights), {"x": normal(4, 2, 24)}


def table() -> Case:
    """Rows of a table that are moved about before a layer reads them."""
    body = """[lookup] rows = Gather (table, ids)
        turned = Transpose <perm = [1, 0]> (rows)
        other = Neg (turned)
        [fc] y = MatMul (other, w)"""
    weights = {"table": normal(400, 32, seed=1), "w": normal(6, 24, seed=2)}
    model = text(body, "int64[6] ids", "float[32, 24] y", weights)
    return model, {"ids": np.array([1, 7, 399, 0, 3, 8])}


def rows() -> Case:
    """Rows of a table that a layer multiplies as they are."""
    body = "[lookup] rows = Gather (table, ids) [fc] y = MatMul (rows, w)"
    weights = {"table": normal(400, 32, seed=1), "w": normal(32, 24, seed=2)}
    model = text(body, "int64[6] ids", "float[6, 24] y", weights)
    return model, {"ids": np.array([1, 7, 399, 0, 3, 8])}


def branch() -> Case:
    body = """[if] y = If (flag) <
        then_branch = yes () => (float[m, 48] yes_y) { [yes] yes_y = MatMul (x, yes_w) },
        else_branch = no () => (float[m, 48] no_y) { [no] no_y = MatMul (x, no_w) }>"""
    model = text(body, "bool flag, float[m, 32] x", "float[m, 48] y")
    for attribute in model.graph.node[0].attribute:
        name = attribute.g.name
        stored = onnx.numpy_helper.from_array(normal(32, 48, seed=len(name)), f"{name}_w")
        attribute.g.initializer.append(stored)
    return model, {"flag": np.array(True), "x": normal(5, 32)}


KINDS: dict[str, Make] = {make.__name__: make for make in (linear, conv, lstm, table, rows, branch)}


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


def converted(path: Path) -> tuple[Path, Conversion]:
    """Its native file, and what was done."""
    out = path.with_name("native.onnx")
    return out, convert_target(path, out, to="native")


def by_hand(body: str, weights: dict[str, np.ndarray], y: str, more: str = "") -> onnx.ModelProto:
    """A model of float x [2, 5, 32] with its integers `x_q`, `x_s` and `x_z` before `body`."""
    first = "[quantize] x_q, x_s, x_z = DynamicQuantizeLinear (x)"
    return text(f"{first} {body}", f"float[2, 5, 32] x{more}", f"float[{y}] y", weights)


def integers(rows: int, columns: int, *, unsigned: bool = False) -> dict[str, np.ndarray]:
    """A matrix with a scale and a zero point for all of it: w, w_s, w_z."""
    random = np.random.default_rng(rows)
    q = random.integers(-100, 100, (rows, columns)).astype(np.int8)
    if unsigned:
        q, zero = (q.astype(np.int16) + 110).astype(np.uint8), np.array(110, np.uint8)
    else:
        zero = np.array(0, np.int8)
    return {"w": q, "w_s": np.array(0.013, np.float32), "w_z": zero}
