"""Every preset and option on one model with most kinds of layers, and what each is for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, numpy_helper

from octavo.onnx import session
from octavo.recipe import PRESETS as ALL
from octavo.recipe import Recipe, preset
from tests.graphs import (
    INT8,
    Array,
    Converted,
    assert_close,
    convert,
    error,
    integer_tensors,
    run,
    text,
    values,
    weight,
)

V, H, W, T, B = 260, 64, 1056, 7, 3


@cache
def network() -> onnx.ModelProto:
    """Embedding, normalization, a narrow and a wide linear layer, Gemm, LSTM, tied output layer."""
    # Columns of one size: what one scale a tensor may cost is told apart in its own test.
    weights = {
        "table": weight(V, H, spread=False, seed=1),
        "gamma": np.ones(H, np.float32),
        "up": weight(H, W, spread=False, seed=2),
        "down": weight(H, W, spread=False, seed=3) * np.float32(np.sqrt(H / W)),
        "bias": 0.1 * values(H, seed=4),
        "w": weight(1, 4 * H, H, spread=False, seed=5) * np.float32(2),
        "r": weight(1, 4 * H, H, spread=False, seed=6),
        "batched": weight(B, H, H, spread=False, seed=7),
        "flat": np.array([-1, W]),
        "deep": np.array([T, B, H]),
        "back": np.array([B, -1, H]),
    }
    body = f"""e = Gather (table, ids)
        n = LayerNormalization (e, gamma)
        [u_node] u = MatMul (n, up)
        a = Relu (u)
        f = Reshape (a, flat)
        [g_node] g = Gemm <transB = 1, alpha = 0.5> (f, down, bias)
        d = Reshape (g, deep)
        lstm, h = LSTM <hidden_size = {H}> (d, w, r)
        hb = Reshape (h, back)
        [m_node] m = MatMul (hb, batched)
        t = Transpose (table)
        y = MatMul (m, t)"""
    return text(body, f"int64[{T}, {B}] ids", "float[] u, float[] y", weights)


@cache
def expected() -> tuple[Array, ...]:
    return tuple(run(network(), feeds()))


def feeds() -> dict[str, Array]:
    return {"ids": np.arange(T * B).reshape(T, B) * 11 % V}


def errors(done: Converted, precise: bool = True) -> list[float]:
    """Of the first linear layer and of the whole."""
    outputs = session(done.path).run(None, feeds()) if precise else run(done.path, feeds())
    return [error(a, e) for a, e in zip(outputs, expected(), strict=True)]


# The bounds on `u`, one linear layer behind a quantized table, and on `y`, five layers later.
PRESETS = {
    "int8": (INT8, 4 * INT8),
    "int8-per-tensor": (2 * INT8, 8 * INT8),
    "int8-accurate": (INT8, 4 * INT8),
    "int8-block": (INT8, 4 * INT8),
    "float16": (5e-4, 2e-3),
}


@pytest.mark.parametrize("quant_format", ["qoperator", "qdq"])
@pytest.mark.parametrize("cpu", ["vnni", "any"])
@pytest.mark.parametrize("recipe", PRESETS)
def test_presets(tmp_path: Path, recipe: str, cpu: str, quant_format: str) -> None:
    done = convert(network(), tmp_path, recipe=recipe, cpu=cpu, quant_format=quant_format)
    bounds = PRESETS[recipe] if quant_format == "qoperator" else (2 * INT8, 8 * INT8)
    for found, bound in zip(errors(done), bounds, strict=True):
        assert 0 < found <= bound
    assert done.report.recipe["name"] == recipe
    if recipe != "float16":
        assert integer_tensors(done)
    else:
        assert not integer_tensors(done)
        assert all(o.quantized for o in done.report.layers)


@pytest.mark.parametrize("cpu", ["vnni", "any"])
def test_files_for_any_cpu_hold_no_int8_products(tmp_path: Path, cpu: str) -> None:
    """uint8 times int8 saturates on x86 without VNNI; uint8 times uint8 nowhere."""
    done = convert(network(), tmp_path, cpu=cpu)
    graph = done.proto.graph
    kinds = {i.name: i.data_type for i in graph.initializer}
    made_by = {o: n for n in graph.node for o in n.output}
    products = {"MatMulIntegerToFloat": 1, "DynamicQuantizeLSTM": 1}
    found = set()
    for n in graph.node:
        if n.op_type in products:
            name = n.input[products[n.op_type]]
            while name not in kinds:
                name = made_by[name].input[0]
            found.add(kinds[name])
    assert found == {TensorProto.INT8 if cpu == "vnni" else TensorProto.UINT8}


def test_both_kinds_of_file_give_the_same_bits(tmp_path: Path) -> None:
    """The same integers around another zero point; sums of integers are exact."""
    vnni = session(convert(network(), tmp_path, cpu="vnni").path).run(None, feeds())
    anywhere = session(convert(network(), tmp_path, cpu="any").path).run(None, feeds())
    for a, b in zip(vnni, anywhere, strict=True):
        assert np.array_equal(a, b)


# Type, channels, reduced range, symmetry, recipe: each pair of them somewhere.
WEIGHT_OPTIONS: list[tuple[str, bool, bool, bool | None, str]] = [
    ("QInt8", True, False, None, "int8"),
    ("QInt8", True, True, True, "int8-per-tensor"),
    ("QInt8", False, False, False, "int8"),
    ("QInt8", False, True, None, "int8-accurate"),
    ("QInt8", False, False, True, "int8-per-tensor"),
    ("QInt8", True, True, False, "int8-accurate"),
    ("QUInt8", True, True, None, "int8-per-tensor"),
    ("QUInt8", True, False, False, "int8-accurate"),
    ("QUInt8", False, True, False, "int8-per-tensor"),
    ("QUInt8", False, False, None, "int8"),
    ("QUInt8", True, True, True, "int8"),
    ("QUInt8", False, False, True, "int8-accurate"),
]


@pytest.mark.parametrize(("kind", "channels", "reduced", "symmetric", "recipe"), WEIGHT_OPTIONS)
def test_weight_options(
    tmp_path: Path, kind: str, channels: bool, reduced: bool, symmetric: bool | None, recipe: str
) -> None:
    options: dict[str, Any] = {"per_channel": channels, "reduce_range": reduced}
    if symmetric is not None:
        options["extra_options"] = {"WeightSymmetric": symmetric}
    done = convert(network(), tmp_path, recipe=recipe, weight_type=kind, **options)
    coarse = (2 if reduced else 1) * (2 if recipe == "int8-per-tensor" else 1)
    first, last = errors(done)
    assert 0 < first <= 1.5 * coarse * INT8
    assert 0 < last <= 4 * coarse * INT8
    stored = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    up, zero, scale = (stored[f"up_{part}"] for part in ("quantized", "zero_point", "scale"))
    assert up.dtype == (np.int8 if kind == "QInt8" else np.uint8)
    assert scale.shape == ((W,) if channels else ())
    held = (up.astype(np.int32) - zero.astype(np.int32)) * scale.astype(np.float64)
    floats = {i.name: numpy_helper.to_array(i) for i in network().graph.initializer}["up"]
    half = scale.astype(np.float64) / 2
    assert (np.abs(held - floats) <= half * (1 + 1e-4) + np.abs(floats) * 1e-6 + half * 0.02).all()
    if reduced:  # two products fit into int16
        assert int(up.max()) - int(up.min()) <= 128
        assert np.abs(up.astype(int)).max() <= 128


@pytest.mark.parametrize(
    ("kind", "channels", "opset"),
    [
        ("QInt8", True, 13),
        ("QInt8", False, 11),
        ("QInt8", True, 21),
        ("QUInt8", False, 13),
        ("QUInt8", False, 21),
    ],
)
def test_qdq_options(tmp_path: Path, kind: str, channels: bool, opset: int) -> None:
    weights = {"w": weight(H, 40, spread=False), "c": values(40)}
    body = "y = Gemm <alpha = 2.0, beta = 0.5> (x, w, c)"
    model = text(body, f"float[5, {H}] x", weights=weights, opset=opset)
    done = convert(model, tmp_path, quant_format="qdq", weight_type=kind, per_channel=channels)
    assert done.ops.count("DequantizeLinear") == 2
    assert done.ops.count("DynamicQuantizeLinear") == 1
    assert set(done.ops) <= {"DynamicQuantizeLinear", "DequantizeLinear", "MatMul", "Mul", "Add"}
    assert not {n.domain for n in done.proto.graph.node} - {""}  # other runtimes know them all
    x = values(5, H)
    assert error(run(done.path, {"x": x})[0], run(model, {"x": x})[0]) <= 2 * INT8
    # As the operators are defined, not only as ONNX Runtime fuses them.
    if opset >= 21:
        by_definition = onnx.reference.ReferenceEvaluator(done.proto).run(None, {"x": x})[0]
    else:
        by_definition = run(done.path, {"x": x}, plain=True)[0]
    assert error(run(done.path, {"x": x})[0], by_definition) <= 0.5 * INT8


def linear(w: Array) -> onnx.ModelProto:
    return text("y = MatMul (x, w)", f"float[64, {w.shape[0]}] x", weights={"w": w})


def linear_error(tmp_path: Path, w: Array, x: Array, **options: Any) -> float:
    """Every output channel counts alike."""
    size = np.linalg.norm(w.astype(np.float64), axis=0)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    return error(
        run(convert(linear(w), tmp_path, **options).path, {"x": x})[0] / size, exact / size
    )


def test_a_scale_a_channel_keeps_small_channels(tmp_path: Path) -> None:
    w, x = weight(256, 64), values(64, 256)
    assert linear_error(tmp_path, w, x) <= INT8
    assert linear_error(tmp_path, w, x, recipe="int8-per-tensor") > 4 * INT8


def test_a_scale_a_row_keeps_small_rows(tmp_path: Path) -> None:
    w = weight(256, 64, spread=False)
    x = values(64, 256) * np.geomspace(0.01, 1, 64, dtype=np.float32)[:, None]
    exact = x.astype(np.float64) @ w
    size = np.linalg.norm(x, axis=1, keepdims=True)
    rows = run(convert(linear(w), tmp_path).path, {"x": x})[0]
    tensor = run(convert(linear(w), tmp_path, recipe="int8-per-tensor").path, {"x": x})[0]
    assert error(rows / size, exact / size) <= INT8
    assert error(tensor / size, exact / size) > 4 * INT8


def test_affine_weights_fit_one_sided_channels(tmp_path: Path) -> None:
    """int8-accurate: weights of one sign use all integers, symmetric ones half."""
    w, x = np.abs(weight(256, 64)), values(64, 256)
    affine, symmetric = (weight_noise(tmp_path, w, r) for r in ("int8-accurate", "int8"))
    assert affine < 0.3 * symmetric
    assert linear_error(tmp_path, w, x, recipe="int8-accurate") <= INT8


def weight_noise(tmp_path: Path, w: Array, recipe: str | Recipe) -> float:
    """Squared error of the stored weight."""
    done = convert(linear(w), tmp_path, recipe=recipe)
    found = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    q = found["w_quantized"].astype(np.float64) - found["w_zero_point"].astype(np.float64)
    return float(np.square(q * found["w_scale"] - w).sum())


def test_blocks_keep_large_activations_apart(tmp_path: Path) -> None:
    """int8-block: an input a hundred times larger than others costs only its block."""
    w, x = weight(256, 64, spread=False), values(64, 256)
    x[:, 5] *= 100
    w[5] /= 100
    assert linear_error(tmp_path, w, x, recipe="int8-block") < 0.5 * linear_error(tmp_path, w, x)


@pytest.mark.parametrize("large", [1e5, -1e5])
def test_float16_range(tmp_path: Path, large: float) -> None:
    """A weight beyond 65504 does not fit into float16: it is left float and the report says so."""
    w = weight(64, 32, spread=False)
    w[3, 4] = large
    body, weights = "[large] h = MatMul (x, w) [fits] y = MatMul (h, v)", {"v": weight(32, 40)}
    model = text(body, "float[4, 64] x", weights=weights | {"w": w})
    done = convert(model, tmp_path, recipe="float16")
    assert not done.outcome("large").quantized
    assert "65504" in done.outcome("large").reason
    assert done.outcome("fits").quantized
    feeds = {"x": values(4, 64)}
    assert error(run(done.path, feeds)[0], run(model, feeds)[0]) <= 1e-3


def test_a_histogram_clips_what_few_weights_need(tmp_path: Path) -> None:
    w = weight(512, 256, spread=False)
    w[3, 4] = 8 * w.std()
    plain = preset("int8-per-tensor")
    assert plain.default.weight is not None
    clipping = replace(plain.default.weight, observer="histogram")
    clipped = replace(plain, default=replace(plain.default, weight=clipping))
    assert weight_noise(tmp_path, w, clipped) < 0.8 * weight_noise(tmp_path, w, plain)


IN_BLOCKS = [n for n, r in ALL.items() if r.default.weight and r.default.weight.block]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("opset", range(13, 26))
@pytest.mark.parametrize("recipe", IN_BLOCKS)
def test_blocks_in_qdq_run_in_every_opset(tmp_path: Path, recipe: str, opset: int) -> None:
    body = "[a] a = MatMul (x, w) r = Relu (a) [g] y = Gemm <transB = 1> (r, v, b)"
    for k in (96, 70):  # whole blocks, and a last one that is not
        stored = {"w": weight(k, 80, spread=False), "v": weight(48, 80), "b": values(48)}
        model = text(body, f"float[n, {k}] x", weights=stored, opset=opset)
        done = convert(model, tmp_path, recipe=recipe, quant_format="qdq")
        x = {"x": values(5, k)}
        assert_close(session(done.path).run(None, x)[0], run(model, x)[0], 0.15)
