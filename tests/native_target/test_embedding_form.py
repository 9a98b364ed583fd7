"""Lookups in the native target: tables of their own, and those of output layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.core.kernels import unpack
from octavo.onnx.operators.gather import reference_native as reference
from tests.graphs import FLOAT, FLOAT16, INT32, INT64, Array, Converted, assert_close, error, weight
from tests.graphs import run as run_float
from tests.native_target.forms import attributes, constant, convert, ours, run, spelt
from tests.onnx.rules.test_embed_layer_normalization import embed

V, H = 200, 48


def gather(w: Array, *, dtype: int = FLOAT, indices: int = INT64) -> Any:
    return spelt("y=Gather(t,i)", {"i": (indices, None)}, {"t": w}, {"y": (dtype, None)})


def picks(*shape: int, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(3).integers(-V, V, shape, dtype=dtype)


def referred(done: Converted, indices: Array) -> Array:
    """What the reference makes of the node's constants."""
    (layer,) = (n for n in ours(done) if n.op_type == "Embedding")
    q, scale, zero = (constant(done, name) for name in layer.input[1:])
    found = attributes(layer)
    if found["packed"]:
        q = unpack(q.view(np.uint8).reshape(-1), found["V"], found["D"])
    rows = reference(q.reshape(found["V"], *found["shape"]), scale, zero, indices)
    return np.asarray(rows, np.float32)


@pytest.mark.parametrize(
    ("indices", "recipe"), [(INT32, "int8"), (INT64, "int8"), (INT64, "int8-accurate")]
)
def test_it_computes_its_reference(tmp_path: Path, indices: int, recipe: str) -> None:
    w, i = weight(V, H, axis=0), picks(4, 9, dtype=np.int32 if indices == INT32 else np.int64)
    done = convert(gather(w, indices=indices), tmp_path, recipe=recipe)
    assert done.ops == ["Embedding"]
    (y,) = run(done, {"i": i})
    assert np.array_equal(y, referred(done, i))
    largest = np.abs(w).max(axis=1)[i][..., None]
    assert (np.abs(y - w[i]) <= largest / 254 * 1.02).all()


def test_tables_of_a_higher_rank(tmp_path: Path) -> None:
    done = convert(gather(weight(V, 4, 12, axis=0)), tmp_path)
    (y,) = run(done, {"i": picks(2, 3)})
    assert y.shape == (2, 3, 4, 12)
    assert np.array_equal(y, referred(done, picks(2, 3)))


def test_float16_tables(tmp_path: Path) -> None:
    w = weight(V, H, axis=0).astype(np.float16)
    (y,) = run(convert(gather(w, dtype=FLOAT16), tmp_path), {"i": picks(7)})
    assert y.dtype == np.float16
    assert error(y, w[picks(7)]) < 0.01


def test_a_table_behind_a_transpose(tmp_path: Path) -> None:
    stored = {"t": weight(V, H, axis=0).T}
    model = spelt("tt=Transpose(t,perm:1/0); y=Gather(tt,i)", {"i": (INT64, None)}, stored)
    done = convert(model, tmp_path)
    assert done.ops == ["Embedding"]
    assert np.array_equal(run(done, {"i": picks(5)})[0], referred(done, picks(5)))


TABLE = {"t": weight(V, H, axis=0), "u": weight(H, V, seed=7)}


SAME = "tt=Transpose(t,perm:1/0); y=MatMul(h,tt)"


def tied(last: str = SAME) -> Any:
    """A language model's ends: rows of `t` in, products with all of them out."""
    text = f"e=Gather(t,i); h=Relu(e); {last}"
    return spelt(text, {"i": (INT64, None)}, TABLE, ["y", "e"])


@pytest.mark.parametrize("recipe", ["int8", "int8-accurate"])
def test_a_table_that_is_an_output_layers_weight_is_stored_once(
    tmp_path: Path, recipe: str
) -> None:
    i = picks(3, 5)
    done = convert(tied(), tmp_path, recipe=recipe)
    lookup, linear = ours(done)
    assert (lookup.op_type, linear.op_type) == ("Embedding", "Linear")
    assert lookup.input[1:4] == linear.input[1:4]
    assert attributes(lookup)["packed"] == 1
    stored = [t for t in done.proto.graph.initializer if t.name.endswith("_quantized")]
    assert len(stored) == 1
    y, e = run(done, {"i": i})
    assert np.array_equal(e, referred(done, i))
    assert_close(y, run_float(tied(), {"i": i})[0], 0.025, np.linalg.norm(TABLE["t"], axis=1))
    assert sum("stored once" in note for o in done.report.layers for note in o.notes) == 1


@pytest.mark.parametrize(
    ("last", "options"),
    [
        ("y=MatMul(h,u)", {}),
        ("tt=Transpose(t,perm:1/0); y=MatMul(h,tt)", {"nodes_to_exclude": ["y_node"]}),
    ],
    ids=["another output layer", "an output layer that stays float"],
)
def test_a_table_beside_another_layer_keeps_its_rows(
    tmp_path: Path, last: str, options: dict[str, Any]
) -> None:
    done = convert(tied(last), tmp_path, **options)
    (lookup,) = (n for n in ours(done) if n.op_type == "Embedding")
    assert attributes(lookup)["packed"] == 0


@pytest.mark.parametrize(("opset", "recipe"), [(11, "int8"), (17, "int8-accurate")])
def test_tables_inside_embed_layer_normalization(tmp_path: Path, opset: int, recipe: str) -> None:
    model, feeds = embed(opset=opset)
    done = convert(model, tmp_path, recipe=recipe)
    assert done.ops.count("Embedding") == 3
    assert "EmbedLayerNormalization" not in done.ops
    actual, expected = run(done, feeds), run_float(model, feeds)
    assert_close(actual[0], expected[0], 0.025)
    assert np.array_equal(actual[1], expected[1])


def test_tables_that_have_no_operator_of_ours(tmp_path: Path) -> None:
    """Small ones stay float; one scale for all keeps the portable form."""
    done = convert(gather(weight(8, 8)), tmp_path, allow_nothing=True)
    assert "below 16384" in done.report.layers[0].reason
    done = convert(gather(weight(V, H)), tmp_path, per_channel=False)
    assert not ours(done) and done.report.layers[0].quantized
