"""No layer is missing from the report, wherever its weight comes from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.errors import ModelError
from octavo.onnx import inspect
from tests.graphs import INT8, assert_close, convert, rng, run, sizes, text, values, weight

V = weight(64, 24)
SCALE = np.linspace(0.5, 2, 24, dtype=np.float32)
X = "float[b, 64] x"

# How a weight `w` is made of what is stored, beside `v`, and its numbers.
MADE: dict[str, tuple[str, dict[str, Any], Any]] = {
    "weight norm": (
        """length = ReduceL2 <axes = [0], keepdims = 1> (v)
        unit = Div (v, length)
        w = Mul (unit, scale)""",
        {"scale": SCALE},
        V / np.sqrt((V**2).sum(0)) * SCALE,
    ),
    "clipped": (
        "w = Clip (v, least, most)",
        {"least": np.float32(-0.1), "most": np.float32(0.1)},
        V.clip(-0.1, 0.1),
    ),
    "pruned": (
        "w = Where (kept, v, nothing)",
        {"kept": V > 0, "nothing": np.float32(0)},
        np.where(V > 0, V, 0),
    ),
    "an adapter": (
        "ab = MatMul (a, b) w = Add (v, ab)",
        {"a": weight(64, 4, seed=3), "b": weight(4, 24, seed=4)},
        V + weight(64, 4, seed=3) @ weight(4, 24, seed=4),
    ),
    "a table of angles": ("w = Tanh (v)", {}, np.tanh(V)),
}


@pytest.mark.parametrize("how", MADE)
def test_weights_that_are_made_of_stored_ones(how: str, tmp_path: Path) -> None:
    body, stored, w = MADE[how]
    model = text(f"{body} [layer] y = MatMul (x, w)", X, weights={"v": V, **stored})
    done = convert(model, tmp_path)
    assert [o.layer.name for o in done.report.layers] == ["layer"]
    assert done.outcome("layer").quantized and done.ops.count("MatMul") == 0
    feed = {"x": values(5, 64)}
    assert_close(run(done.path, feed)[0], run(model, feed)[0], INT8, sizes(np.asarray(w)))


def left(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(d.layer.name, d.reason) for d in inspect(model).decisions if d.scheme.is_float]


# A reader of `w`, the shape of its x, and of its weights.
READERS: dict[str, tuple[str, str, dict[str, tuple[int, ...]]]] = {
    "MatMul": ("MatMul (x, w)", "b, 64", {"w": (64, 24)}),
    "Gemm": ("Gemm (x, w)", "b, 64", {"w": (64, 24)}),
    "Conv": ("Conv (x, w)", "1, 4, 9, 9", {"w": (8, 4, 3, 3)}),
    "LSTM": (
        "LSTM <hidden_size = 8> (x, w, r)", "steps, 1, 16", {"w": (1, 32, 16), "r": (1, 32, 8)},
    ),
    "GRU": (
        "GRU <hidden_size = 8> (x, w, r)", "steps, 1, 16", {"w": (1, 24, 16), "r": (1, 24, 8)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", READERS)
def test_a_weight_that_is_computed_otherwise_is_named(op: str) -> None:
    reader, shape, shapes = READERS[op]
    stored = {("v" if name == "w" else name): weight(*shapes[name]) for name in shapes}
    body = f"w = CumSum (v, first) [layer] y = {reader}"
    model = text(body, f"float[{shape}] x", weights=stored | {"first": np.array(0)})
    ((name, reason),) = left(model)
    assert name == "layer"
    if op in ("LSTM", "GRU"):  # of which the other weight is stored
        assert "its W is computed" in reason or "no int8 GRU" in reason
    else:
        assert "computed by CumSum in every run" in reason and "fold constants" in reason


@pytest.mark.parametrize("op", READERS)
def test_double_weights_are_named(op: str) -> None:
    reader, shape, shapes = READERS[op]
    stored = {name: weight(*shapes[name]).astype(np.float64) for name in shapes}
    model = text(f"[layer] y = {reader}", f"double[{shape}] x", "double[] y", stored)
    ((name, reason),) = left(model)
    assert name == "layer" and reason.startswith("its weights are float64")
    found = inspect(model).decisions[0].layer
    assert found.dtype == "float64" and found.bytes == sum(a.nbytes for a in stored.values())


@pytest.mark.parametrize(
    "made", ["Identity (v)", "Transpose <perm = [0, 1, 3, 2]> (v)", "Neg (v)", "CumSum (v, first)"]
)
def test_operators_without_a_rule_are_named_behind_any_chain(made: str) -> None:
    weights = {"v": weight(4, 32, 5, 5), "first": np.array(0)}
    body = f"w = {made} [layer] y = ConvTranspose (x, w)"
    assert left(text(body, "float[1, 4, 8, 8] x", weights=weights)) == [
        ("layer", "no rule for ConvTranspose")
    ]


def test_what_is_quantized_already_is_named(tmp_path: Path) -> None:
    body = "w = DequantizeLinear (q, s) [done] h = MatMul (x, w) [layer] y = MatMul (h, v)"
    q = np.clip(np.rint(V * 100), -127, 127).astype(np.int8)
    weights = {"q": q, "s": np.float32(0.01), "v": weight(24, 48)}
    done = convert(text(body, X, weights=weights), tmp_path, allow_quantized=True)
    assert done.outcome("done").reason == "its weight is quantized already"
    assert done.outcome("layer").quantized


@pytest.mark.parametrize("excluded", ["first", "second"])
def test_bytes_of_a_weight_that_one_layer_keeps_in_float(excluded: str, tmp_path: Path) -> None:
    w = weight(64, 64)
    body = "[first] h = MatMul (x, w) [second] y = Gemm <transB = 1> (h, w)"
    report = convert(text(body, X, weights={"w": w}), tmp_path, nodes_to_exclude=[excluded]).report
    (kept,), (held,) = report.left_float, report.quantized
    assert (kept.bytes_before, kept.bytes_after) == (w.nbytes, w.nbytes)
    assert held.bytes_before == w.nbytes and w.size < held.bytes_after < w.size * 1.2


def test_weights_that_are_stored_in_16_bits(tmp_path: Path) -> None:
    body = """w0 = Cast <to = 1> (half)
        w = Transpose <perm = [1, 0]> (w0)
        [layer] y = MatMul (x, w)"""
    half = weight(96, 64).astype(np.float16)
    model = text(body, X, weights={"half": half})
    done = convert(model, tmp_path).outcome("layer")
    assert (done.quantized, done.bytes_before, done.layer.bytes) == (True, half.nbytes, half.nbytes)
    again = convert(model, tmp_path, recipe="float16", allow_nothing=True).outcome("layer")
    assert (again.quantized, again.reason) == (False, "its weights are stored as float16 already")


@pytest.mark.parametrize("recipe", ["int8", "int8-block", "int8-per-tensor"])
def test_a_weight_with_nan_is_named_as_it_is(recipe: str, tmp_path: Path) -> None:
    w = V.copy()
    w[3, 4] = np.nan
    model = text("[layer] y = MatMul (x, w)", X, weights={"w": w})
    with pytest.raises(ModelError, match=r"layer 'layer' .*weight 'w' \(64, 24\).* NaN") as error:
        convert(model, tmp_path, recipe=recipe)
    places = "4 of its 24", "4 along axis 1"
    assert recipe == "int8-per-tensor" or any(place in str(error.value) for place in places)


@pytest.mark.parametrize("opset", [12, 17])
def test_softmax_of_a_weight_means_what_its_opset_says(opset: int) -> None:
    body, weights = "w = Softmax <axis = 1> (v) [layer] y = MatMul (x, w)", weight(2, 64, 32)
    model = text(body, "float[2, n, 64] x", weights={"v": weights}, opset=opset)
    ((name, reason),) = left(model)
    assert name == "layer" and "computed by Softmax" in reason


@pytest.mark.parametrize("size", [1e-4, 1e-3, 5.0])
def test_weight_norm_in_float16_is_computed_in_float32(size: float, tmp_path: Path) -> None:
    """As ONNX Runtime does: the squares of these leave float16's range below or above."""
    v = (rng().standard_normal((2048, 24)) * size).astype(np.float16)
    body = """length = ReduceL2 <axes = [0], keepdims = 1> (v)
        w = Div (v, length)
        y = MatMul (x, w)"""
    done = convert(text(body, "float16[b, 2048] x", "float16[] y", {"v": v}), tmp_path)
    feed = {"x": values(5, 2048).astype(np.float16)}
    wide = v.astype(np.float64)
    exact = feed["x"].astype(np.float64) @ (wide / np.sqrt((wide**2).sum(0)))
    found = run(done.path, feed)[0].astype(np.float64)
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


PRODUCT = "w = MatMul (a, b) [layer] y = MatMul (x, w)"


@pytest.mark.real_time
def test_products_of_stored_16_bit_matrices_take_no_minute(tmp_path: Path) -> None:
    a, b = (weight(1024, 1024, seed=i).astype(np.float16) for i in (1, 2))
    model = text(PRODUCT, "float16[m, 1024] x", "float16[] y", {"a": a, "b": b})
    started = time.perf_counter()
    assert convert(model, tmp_path).outcome("layer").quantized
    assert time.perf_counter() - started < 3


def test_a_weight_of_low_rank_stays_as_small_as_it_is(tmp_path: Path) -> None:
    stored = {"a": weight(512, 4), "b": weight(4, 512, seed=2)}
    model = text(PRODUCT, "float[m, 512] x", weights=stored)
    for recipe in ("int8", "float16"):
        done = convert(model, tmp_path, recipe=recipe, allow_nothing=True)
        reason = done.outcome("layer").reason
        assert reason == "its weight is computed from 16384 bytes, and would take 262144 or more"


def test_what_a_layer_makes_of_stored_queries_is_no_weight(tmp_path: Path) -> None:
    """Queries that are learned: their projection is a layer, what is added to it is none."""
    body = """[norm] q1 = LayerNormalization <axis = -1> (queries, gain, shift)
        [q] q = MatMul (q1, wq)
        h = Add (q, x)
        [k] y = MatMul (h, wk)"""
    stored = {"queries": values(1, 32, 64), "wq": weight(64, 64), "wk": weight(64, 64, seed=3)}
    stored |= {"gain": np.ones(64, np.float32), "shift": np.zeros(64, np.float32)}
    model = text(body, "float[b, 32, 64] x", weights=stored)
    done = convert(model, tmp_path)
    assert [o.layer.name for o in done.report.quantized] == ["q", "k"]
    floating = [(o.layer.name, o.reason) for o in done.report.left_float]
    assert floating == [("norm", "no rule for LayerNormalization")]
    feed = {"x": values(2, 32, 64, seed=5)}
    assert_close(run(done.path, feed)[0], run(model, feed)[0], 2 * INT8, sizes(stored["wk"]))
