"""Gather from an embedding table: int8 with a scale a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from octavo.core.layer import SMALL_TABLE
from octavo.errors import NothingQuantizedError
from octavo.onnx import inspect, session
from octavo.onnx.operators.gather import reference
from tests.graphs import (
    EXACT,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    Array,
    Converted,
    assert_close,
    assert_near_float,
    build,
    convert,
    error,
    integer_tensors,
    node,
    run,
    text,
    weight,
)

V, H = 200, 48


def table(*shape: int) -> Array:
    """Rows differ in size a hundredfold."""
    return weight(*shape, axis=0)


def gather(
    w: Array, *, dtype: int = FLOAT, indices: int = INT64, opset: int = 17, **attributes: Any
) -> Any:
    return build(
        [node("Gather", ["t", "i"], ["y"], **attributes)],
        {"i": (indices, None)},
        {"y": (dtype, None)},
        {"t": w},
        opset=opset,
    )


def row_bound(w: Array) -> Array:
    """Half a step of each row: what rounding may cost, and nothing else."""
    axes = tuple(range(1, w.ndim))
    largest = np.abs(w.astype(np.float64)).max(axis=axes, keepdims=True)
    return np.asarray(largest / 254 * (1 + 1e-5))


def stored(done: Converted) -> tuple[Array, Array]:
    found = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    return found["t_quantized"], found["t_scale"]


INDICES = {
    "a vector": np.array([3, 0, 3]),
    "a matrix": np.array([[1, 2], [3, 23]]),
    "one": np.array(7),
    "none": np.zeros((0, 3), int),
    "from the end": np.array([-1, -24, 5, -2]),
    "32 bits": np.array([4, 2], np.int32),
}
ROWS: list[tuple[str, tuple[int, ...], int]] = [
    ("a vector", (V, H), 10),
    ("a matrix", (40, 12, 10), 13),
    ("one", (24, 6, 8, 5), 21),
    ("none", (V, H), 13),
    ("none", (24, 6, 8, 5), 10),
    ("one", (V, H), 10),
    ("a matrix", (24, 6, 8, 5), 10),
    ("from the end", (V, H), 11),
    ("from the end", (40, 12, 10), 17),
    ("32 bits", (V, H), 17),
]


@pytest.mark.parametrize(("name", "shape", "opset"), ROWS)
def test_ranks_and_indices(tmp_path: Path, name: str, shape: tuple[int, ...], opset: int) -> None:
    w, indices = table(*shape), INDICES[name]
    kind = INT32 if indices.dtype == np.int32 else INT64
    done = convert(gather(w, opset=opset, indices=kind), tmp_path)
    assert done.outcome("y_node").quantized
    actual, expected = run(done.path, {"i": indices})[0], w[indices]
    assert actual.shape == expected.shape
    assert (np.abs(actual - expected) <= row_bound(w)[indices]).all()
    assert error(actual, reference(*stored(done), indices)) <= EXACT


def test_indices_out_of_range_are_refused_as_before(tmp_path: Path) -> None:
    done = convert(gather(table(V, H)), tmp_path)
    with pytest.raises(Exception, match="out of data bounds"):
        run(done.path, {"i": np.array([V])})


def test_float16(tmp_path: Path) -> None:
    w = table(2 * V, H).astype(np.float16)
    model, feeds = gather(w, dtype=FLOAT16), {"i": np.array([[4, 2], [399, 0]])}
    actual = run(convert(model, tmp_path).path, feeds)[0]
    assert actual.dtype == np.float16
    exact = w[feeds["i"]].astype(np.float64)
    rounding = np.abs(exact) * 2.0**-11
    assert (np.abs(actual - exact) <= row_bound(w)[feeds["i"]] + rounding).all()


@pytest.mark.parametrize("axis", [0, -2])
def test_the_first_axis_by_any_name(tmp_path: Path, axis: int) -> None:
    w = table(V, H)
    actual = run(convert(gather(w, axis=axis), tmp_path).path, {"i": np.array([1, 9])})[0]
    assert (np.abs(actual - w[[1, 9]]) <= row_bound(w)[[1, 9]]).all()


@pytest.mark.parametrize("axis", [1, -1])
def test_another_axis_stays_float(tmp_path: Path, axis: int) -> None:
    with pytest.raises(NothingQuantizedError, match="not a table of rows"):
        convert(gather(table(V, H), axis=axis), tmp_path)


def test_vectors_and_small_tables_stay_float(tmp_path: Path) -> None:
    with pytest.raises(NothingQuantizedError, match="not a table of rows"):
        convert(gather(weight(5000)), tmp_path)
    rows = SMALL_TABLE // 4 // H
    with pytest.raises(NothingQuantizedError, match="nothing to win"):
        convert(gather(table(rows, H)), tmp_path)
    assert convert(gather(table(rows + 1, H)), tmp_path).outcome("y_node").quantized


@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_small_table_that_a_layer_holds_in_integers_is_not_kept_in_float(
    target: str, tmp_path: Path
) -> None:
    w = table(50, 64)
    body = "[e_node] e = Gather (w, i) [y_node] y = Gemm <transB = 1> (e, w)"
    model = text(body, "int64[b] i", weights={"w": w})
    done = convert(model, tmp_path, target=target)
    assert len(done.report.quantized) == 2
    kept = [t.dims for t in done.proto.graph.initializer if t.data_type == FLOAT]
    assert not [dims for dims in kept if len(dims) > 1 and dims[-1] > 1]
    feeds = {"i": np.array([3, 7, 49])}
    found = session(done.path).run(None, feeds)[0]
    assert_close(found, run(model, feeds)[0], INT8, np.abs(w).max(1))
    alone = convert(model, tmp_path, target=target, nodes_to_exclude=["y_node"], allow_nothing=True)
    assert "nothing to win" in alone.outcome("e_node").reason
    assert [d.scheme.is_float for d in inspect(model, target=target).decisions] == [False, False]


def test_integer_tables_are_no_layers(tmp_path: Path) -> None:
    body = "j = Gather (t, i) [y_node] y = Gather (w, j)"
    model = text(body, "int64[2] i", weights={"t": np.arange(8000), "w": table(8000, 4)})
    done = convert(model, tmp_path)
    assert [o.layer.name for o in done.report.layers] == ["y_node"]
    assert_near_float(done, model, {"i": np.array([3, 7000])}, INT8)


OPTIONS: dict[str, tuple[dict[str, Any], type[Any], bool]] = {
    "int8": ({}, np.int8, True),
    "QInt8": ({"weight_type": "QInt8"}, np.int8, True),
    "QUInt8": ({"weight_type": "QUInt8"}, np.uint8, True),
    "QUInt8-reduce_range": ({"weight_type": "QUInt8", "reduce_range": True}, np.uint8, True),
    "reduce_range": ({"reduce_range": True}, np.int8, True),
    # One scale for a table: as in quantize_dynamic, which takes it for an activation.
    "per_channel=False": ({"per_channel": False}, np.uint8, False),
    "QUInt8-per_channel=False": (
        {"weight_type": "QUInt8", "per_channel": False}, np.uint8, False,
    ),
    "WeightSymmetric=False": ({"extra_options": {"WeightSymmetric": False}}, np.int8, True),
    "any-cpu": ({"cpu": "any"}, np.int8, True),
    "int8-accurate": ({"recipe": "int8-accurate"}, np.int8, True),
    "int8-block": ({"recipe": "int8-block"}, np.int8, True),
    "int8-per-tensor": ({"recipe": "int8-per-tensor"}, np.uint8, False),
    "qdq": ({"quant_format": "qdq"}, np.int8, True),
}  # fmt: skip


@pytest.mark.parametrize(("options", "dtype", "rows"), OPTIONS.values(), ids=OPTIONS.keys())
def test_weight_types(
    tmp_path: Path, options: dict[str, Any], dtype: type[Any], rows: bool
) -> None:
    w = table(V, H)
    model, feeds = gather(w), {"i": np.arange(V)}
    done = convert(model, tmp_path, **options)
    (held,) = integer_tensors(done).values()
    assert held.dtype == dtype
    actual = run(done.path, feeds)[0]
    coarse = 2.0 if "reduce_range" in options else 1.0
    if rows:
        assert (np.abs(actual - w) <= coarse * row_bound(w)).all()
    else:
        assert (np.abs(actual - w) <= coarse * np.abs(w).max() / 254 * 1.00001).all()
    assert done.outcome("y_node").bytes_after < 0.3 * done.outcome("y_node").bytes_before


def test_recipe_float16(tmp_path: Path) -> None:
    w = table(V, H)
    done = convert(gather(w), tmp_path, recipe="float16")
    actual = run(done.path, {"i": np.arange(V)})[0]
    assert np.array_equal(actual, w.astype(np.float16).astype(np.float32))


def test_rows_of_zeros_are_zeros(tmp_path: Path) -> None:
    w = table(V, H)
    w[3] = 0
    actual = run(convert(gather(w), tmp_path).path, {"i": np.array([3, 4])})[0]
    assert not actual[0].any()
    assert actual[1].any()


def test_two_lookups_of_one_table_store_it_once(tmp_path: Path) -> None:
    w = table(V, H)
    body = "a = Gather (t, i) b = Gather (t, j)"
    model = text(body, "int64[2] i, int64[3] j", "float[] a, float[] b", {"t": w})
    done = convert(model, tmp_path)
    assert len(integer_tensors(done)) == 1
    assert done.report.layers[1].bytes_before == done.report.layers[1].bytes_after == 0
    feeds = {"i": np.array([5, 6]), "j": np.array([7, 8, 9])}
    for actual, picked in zip(run(done.path, feeds), ([5, 6], [7, 8, 9]), strict=True):
        assert (np.abs(actual - w[picked]) <= row_bound(w)[picked]).all()


# The output layer, what is asked, and a width: 48 is no multiple of a block of 32.
TURNED, GEMM = "tt = Transpose (t) y = MatMul (x, tt)", "y = Gemm <transB = 1> (x, t)"
TIED: list[tuple[str, dict[str, Any], int]] = [
    (TURNED, {}, H),
    (GEMM, {}, 64),
    (TURNED, {"cpu": "any"}, 64),
    (GEMM, {"weight_type": "QUInt8"}, H),
    (TURNED, {"recipe": "int8-accurate"}, H),
    (GEMM, {"recipe": "int8-per-tensor"}, 64),
    (TURNED, {"recipe": "int8-per-tensor"}, H),
    (TURNED, {"recipe": "int8-block"}, 64),
    (GEMM, {"recipe": "int8-block"}, H),
    (TURNED, {"per_channel": False}, H),
    (GEMM, {"quant_format": "qdq"}, 64),
    (TURNED, {"quant_format": "qdq"}, H),
    (GEMM, {"recipe": "float16"}, H),
]


@pytest.mark.parametrize(("head", "options", "width"), TIED)
def test_tied_tables_are_stored_once(
    tmp_path: Path, head: str, options: dict[str, Any], width: int
) -> None:
    """The table is also the output layer's matrix."""
    w = weight(V, width, spread=False)
    body = f"x = Gather (t, i) {head}"
    model = text(body, "int64[6] i", "float[] x, float[] y", {"t": w})
    done = convert(model, tmp_path, **options)
    assert all(o.quantized for o in done.report.layers)
    large = [i for i in done.proto.graph.initializer if int(np.prod(i.dims)) >= w.size]
    assert len(large) == 1, [i.name for i in large]
    assert_near_float(done, model, {"i": np.array([5, 199, 0, 7, 7, -1])}, 1.5 * INT8)


def test_a_table_used_along_both_axes_gets_one_scale(tmp_path: Path) -> None:
    """Rows for the lookup are inputs of the product: no scale a row serves both."""
    w = weight(V, H, spread=False)
    body, inputs = "a = Gather (t, i) b = MatMul (x, t)", f"int64[6] i, float[4, {V}] x"
    model = text(body, inputs, "float[] a, float[] b", {"t": w})
    done = convert(model, tmp_path)
    assert len(integer_tensors(done)) == 1
    assert all("different axes" in o.notes[0] for o in done.report.layers)
    feeds = {"i": np.arange(6), "x": weight(4, V, spread=False)}
    assert_near_float(done, model, feeds, 2 * INT8)
