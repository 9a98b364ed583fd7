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
from tests.graphs import (
    FLOAT,
    FLOAT16,
    INT8,
    assert_close,
    build,
    convert,
    node,
    rng,
    run,
    sizes,
    values,
    weight,
)

DOUBLE = onnx.TensorProto.DOUBLE
V = weight(64, 24)
SCALE = np.linspace(0.5, 2, 24, dtype=np.float32)

# How a weight `w` is made of what is stored, and its numbers.
MADE: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], Any]] = {
    "weight norm": (
        [
            node("ReduceL2", ["v"], ["length"], axes=[0], keepdims=1),
            node("Div", ["v", "length"], ["unit"]),
            node("Mul", ["unit", "scale"], ["w"]),
        ],
        {"v": V, "scale": SCALE},
        V / np.sqrt((V**2).sum(0)) * SCALE,
    ),
    "clipped": (
        [node("Clip", ["v", "least", "most"], ["w"])],
        {"v": V, "least": np.float32(-0.1), "most": np.float32(0.1)},
        V.clip(-0.1, 0.1),
    ),
    "pruned": (
        [node("Where", ["kept", "v", "nothing"], ["w"])],
        {"v": V, "kept": V > 0, "nothing": np.float32(0)},
        np.where(V > 0, V, 0),
    ),
    "an adapter": (
        [node("MatMul", ["a", "b"], ["ab"]), node("Add", ["v", "ab"], ["w"])],
        {"v": V, "a": weight(64, 4, seed=3), "b": weight(4, 24, seed=4)},
        V + weight(64, 4, seed=3) @ weight(4, 24, seed=4),
    ),
    "a table of angles": ([node("Tanh", ["v"], ["w"])], {"v": V}, np.tanh(V)),
}


@pytest.mark.parametrize("how", MADE)
def test_weights_that_are_made_of_stored_ones(how: str, tmp_path: Path) -> None:
    nodes, stored, w = MADE[how]
    model = build(
        [*nodes, node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ("b", 64))}, ["y"], stored
    )
    done = convert(model, tmp_path)
    assert [o.layer.name for o in done.report.layers] == ["y_node"]
    assert done.outcome("y_node").quantized and done.ops.count("MatMul") == 0
    feed = {"x": values(5, 64)}
    assert_close(run(done.path, feed)[0], run(model, feed)[0], INT8, sizes(np.asarray(w)))


def left(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """Each layer that stays float, and why."""
    return [(d.layer.name, d.reason) for d in inspect(model).decisions if d.scheme.is_float]


def recurrent(op: str, gates: int) -> tuple[list[onnx.NodeProto], dict[str, Any], tuple[Any, ...]]:
    weights = {"v": weight(1, gates * 8, 16), "r": weight(1, gates * 8, 8, seed=2)}
    return [node(op, ["x", "w", "r"], ["y"], hidden_size=8)], weights, ("steps", 1, 16)


READERS: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], tuple[Any, ...]]] = {
    "MatMul": ([node("MatMul", ["x", "w"], ["y"])], {"v": V}, ("b", 64)),
    "Gemm": ([node("Gemm", ["x", "w"], ["y"])], {"v": V}, ("b", 64)),
    "Conv": ([node("Conv", ["x", "w"], ["y"])], {"v": weight(8, 4, 3, 3)}, (1, 4, 9, 9)),
    "LSTM": recurrent("LSTM", 4),
    "GRU": recurrent("GRU", 3),
}


@pytest.mark.parametrize("op", READERS)
def test_a_weight_that_is_computed_otherwise_is_named(op: str) -> None:
    nodes, stored, shape = READERS[op]
    along = {"axis": np.array(0)}
    model = build(
        [node("CumSum", ["v", "axis"], ["w"]), *nodes], {"x": (FLOAT, shape)}, ["y"], stored | along
    )
    ((name, reason),) = left(model)
    assert name == "y_node"
    if op in ("LSTM", "GRU"):  # of which the other weight is stored
        assert "its W is computed" in reason or "no int8 GRU" in reason
    else:
        assert "computed by CumSum in every run" in reason and "fold constants" in reason


@pytest.mark.parametrize("op", READERS)
def test_double_weights_are_named(op: str) -> None:
    nodes, stored, shape = READERS[op]
    stored = {("w" if n == "v" else n): np.asarray(a, np.float64) for n, a in stored.items()}
    model = build(nodes, {"x": (DOUBLE, shape)}, {"y": (DOUBLE, None)}, stored)
    assert left(model) == [
        ("y_node", "its weights are float64: Octavo quantizes float32 and 16 bits")
    ]
    found = inspect(model).decisions[0].layer
    assert found.dtype == "float64" and found.bytes == sum(a.nbytes for a in stored.values())


@pytest.mark.parametrize("how", ["Identity", "Transpose", "Neg", "CumSum"])
def test_operators_without_a_rule_are_named_behind_any_chain(how: str) -> None:
    reads = ["v", "axis"] if how == "CumSum" else ["v"]
    more = {"axis": np.array(0)} if how == "CumSum" else {}
    chain = node(how, reads, ["w"], **({"perm": [0, 1, 3, 2]} if how == "Transpose" else {}))
    nodes = [chain, node("ConvTranspose", ["x", "w"], ["y"])]
    model = build(nodes, {"x": (FLOAT, (1, 4, 8, 8))}, ["y"], {"v": weight(4, 32, 5, 5), **more})
    assert left(model) == [("y_node", "no rule for ConvTranspose")]


def test_what_is_quantized_already_is_named(tmp_path: Path) -> None:
    nodes = [
        node("DequantizeLinear", ["q", "s"], ["w"]),
        node("MatMul", ["x", "w"], ["h"]),
        node("MatMul", ["h", "v"], ["y"]),
    ]
    q = np.clip(np.rint(V * 100), -127, 127).astype(np.int8)
    weights = {"q": q, "s": np.float32(0.01), "v": weight(24, 40)}
    model = build(nodes, {"x": (FLOAT, ("b", 64))}, ["y"], weights)
    done = convert(model, tmp_path, allow_quantized=True)
    assert done.outcome("h_node").reason == "its weight is quantized already"
    assert done.outcome("y_node").quantized


@pytest.mark.parametrize("excluded", ["h_node", "y_node"])
def test_bytes_of_a_weight_that_one_layer_keeps_in_float(excluded: str, tmp_path: Path) -> None:
    w = weight(64, 64)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Gemm", ["h", "w"], ["y"], transB=1)]
    model = build(nodes, {"x": (FLOAT, ("b", 64))}, ["y"], {"w": w})
    report = convert(model, tmp_path, nodes_to_exclude=[excluded]).report
    (kept,), (held,) = report.left_float, report.quantized
    assert (kept.bytes_before, kept.bytes_after) == (w.nbytes, w.nbytes)
    assert held.bytes_before == w.nbytes and w.size < held.bytes_after < w.size * 1.2


def test_weights_that_are_stored_in_16_bits(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["half"], ["w0"], to=FLOAT),
        node("Transpose", ["w0"], ["w"], perm=[1, 0]),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    half = weight(96, 64).astype(np.float16)
    model = build(nodes, {"x": (FLOAT, ("b", 64))}, ["y"], {"half": half})
    done = convert(model, tmp_path).outcome("y_node")
    assert (done.quantized, done.bytes_before, done.layer.bytes) == (True, half.nbytes, half.nbytes)
    again = convert(model, tmp_path, recipe="float16", allow_nothing=True).outcome("y_node")
    assert (again.quantized, again.reason) == (False, "its weights are stored as float16 already")


@pytest.mark.parametrize("recipe", ["int8", "int8-block", "int8-per-tensor"])
def test_a_weight_with_nan_is_named_as_it_is(recipe: str, tmp_path: Path) -> None:
    w = V.copy()
    w[3, 4] = np.nan
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ("b", 64))}, ["y"], {"w": w})
    with pytest.raises(ModelError, match=r"layer 'y_node' .*weight 'w' \(64, 24\).* NaN") as error:
        convert(model, tmp_path, recipe=recipe)
    assert (
        "4 of its 24" in str(error.value)
        or "4 along axis 1" in str(error.value)
        or (recipe == "int8-per-tensor")
    )


@pytest.mark.parametrize("opset", [12, 17])
def test_softmax_of_a_weight_means_what_its_opset_says(opset: int, tmp_path: Path) -> None:
    nodes = [node("Softmax", ["v"], ["w"], axis=1), node("MatMul", ["x", "w"], ["y"])]
    stored = {"v": weight(2, 64, 32)}
    model = build(nodes, {"x": (FLOAT, (2, "n", 64))}, ["y"], stored, opset=opset)
    ((name, reason),) = left(model)
    assert name == "y_node" and "computed by Softmax" in reason


@pytest.mark.parametrize("size", [1e-4, 1e-3, 5.0])
def test_weight_norm_in_float16_is_computed_in_float32(size: float, tmp_path: Path) -> None:
    """As ONNX Runtime does: the squares of these leave float16's range below or above."""
    v = (rng().standard_normal((2048, 24)) * size).astype(np.float16)
    nodes = [
        node("ReduceL2", ["v"], ["length"], axes=[0], keepdims=1),
        node("Div", ["v", "length"], ["w"]),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    model = build(nodes, {"x": (FLOAT16, ("b", 2048))}, {"y": (FLOAT16, None)}, {"v": v})
    done = convert(model, tmp_path)
    feed = {"x": values(5, 2048).astype(np.float16)}
    wide = v.astype(np.float64)
    exact = feed["x"].astype(np.float64) @ (wide / np.sqrt((wide**2).sum(0)))
    found = run(done.path, feed)[0].astype(np.float64)
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


def test_products_of_stored_16_bit_matrices_take_no_minute(tmp_path: Path) -> None:
    a, b = (weight(1024, 1024, seed=i).astype(np.float16) for i in (1, 2))
    nodes = [node("MatMul", ["a", "b"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    model = build(nodes, {"x": (FLOAT16, ("m", 1024))}, {"y": (FLOAT16, None)}, {"a": a, "b": b})
    started = time.perf_counter()
    assert convert(model, tmp_path).outcome("y_node").quantized
    assert time.perf_counter() - started < 3


def test_a_weight_of_low_rank_stays_as_small_as_it_is(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["a", "b"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    stored = {"a": weight(512, 4), "b": weight(4, 512, seed=2)}
    model = build(nodes, {"x": (FLOAT, ("m", 512))}, ["y"], stored)
    for recipe in ("int8", "float16"):
        done = convert(model, tmp_path, recipe=recipe, allow_nothing=True)
        reason = done.outcome("y_node").reason
        assert reason == "its weight is computed from 16384 bytes, and would take 262144 or more"


def test_what_a_layer_makes_of_stored_queries_is_no_weight(tmp_path: Path) -> None:
    """Queries that are learned: their projection is a layer, what is added to it is none."""
    nodes = [
        node("LayerNormalization", ["queries", "gain", "shift"], ["q1"], axis=-1),
        node("MatMul", ["q1", "wq"], ["q"]),
        node("Add", ["q", "x"], ["h"]),
        node("MatMul", ["h", "wk"], ["y"]),
    ]
    stored = {
        "queries": values(1, 32, 64),
        "gain": np.ones(64, np.float32),
        "shift": np.zeros(64, np.float32),
        "wq": weight(64, 64),
        "wk": weight(64, 64, seed=3),
    }
    model = build(nodes, {"x": (FLOAT, ("b", 32, 64))}, ["y"], stored)
    done = convert(model, tmp_path)
    assert [o.layer.name for o in done.report.quantized] == ["q_node", "y_node"]
    assert [(o.layer.name, o.reason) for o in done.report.left_float] == [
        ("q1_node", "no rule for LayerNormalization")
    ]
    feed = {"x": values(2, 32, 64, seed=5)}
    assert_close(run(done.path, feed)[0], run(model, feed)[0], 2 * INT8, sizes(stored["wk"]))
