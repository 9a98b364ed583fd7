"""`octavo.onnx.compare`: the ranges of what each float layer multiplies, and outliers in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import octavo.onnx
from octavo.recipe import Kind, Recipe, Rule, Scheme
from octavo.results.comparison import OUTLIERS, Comparison, Range
from tests import graphs
from tests.graphs import Array, Case, normal, save, text
from tests.onnx.test_comparing import by_name

TARGETS = pytest.mark.parametrize("target", ["portable", "native"])
WIDE = 64
SPIKE = 1e4


def of_numbers(*arrays: Array) -> Range:
    """The range by hand, in float64."""
    whole = np.concatenate([array.ravel() for array in arrays]).astype(np.float64)
    rms = float(np.sqrt((whole**2).mean()))
    outliers = int((np.abs(whole) > OUTLIERS * rms).sum())
    return Range(float(whole.min()), float(whole.max()), rms, whole.size, outliers)


def same(found: Range | None, *arrays: Array, rel: float = 1e-12) -> bool:
    """`rel` is for activations that ONNX Runtime has computed in float32."""
    expected = of_numbers(*arrays)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=rel)
    assert found.rms == pytest.approx(expected.rms, rel=rel)
    assert (found.values, found.outliers) == (expected.values, expected.outliers)
    return True


def stored(model: onnx.ModelProto) -> dict[str, Array]:
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def compared(folder: Path, case: Case, target: str, feed: Any = None, **options: Any) -> Comparison:
    model, given = case
    external = options.pop("external", None)
    floating = save(model, folder / "float.onnx", external=external)
    quantized = folder / "int8.onnx"
    octavo.onnx.quantize_dynamic(floating, quantized, target=target, verify=False, **options)
    return octavo.onnx.compare(floating, quantized, feed or given)


def planted() -> Case:
    """Layers in a row, with one huge activation before the second and one huge weight in the last.

    Input 0 is 1 in row 3 alone, and goes nowhere but to output 7 of the first layer.
    """
    model, _ = graphs.linear()
    arrays = {name: array.copy() for name, array in stored(model).items()}
    arrays["w0"][0] = 0
    arrays["w0"][0, 7] = SPIKE / 10
    arrays["w2"][5, 6] = -SPIKE
    del model.graph.initializer[:]
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    x = normal(WIDE, WIDE)
    x[:, 0] = 0
    x[3, 0] = 10
    return model, {"x": x}


@TARGETS
def test_planted_outliers_are_found_where_they_are(target: str, tmp_path: Path) -> None:
    """In target native the activation lies inside of the layer before it."""
    model, feed = planted()
    found = compared(tmp_path, (model, feed), target)
    layers, arrays = by_name(found), stored(model)
    x = [feed["x"].astype(np.float64)]
    for i in range(3):
        x.append(np.maximum(x[i] @ arrays[f"w{i}"].astype(np.float64), 0))
    for i in range(3):
        layer = layers[f"layer{i}"]
        assert same(layer.inputs, x[i], rel=1e-5 if i else 1e-12)
        assert same(layer.weights, arrays[f"w{i}"])
    # layer2 reads what the huge activation makes of all its row.
    assert [layers[f"layer{i}"].inputs.stretched for i in range(3)] == [False, True, False]
    assert [layers[f"layer{i}"].weights.stretched for i in range(3)] == [True, False, True]
    assert layers["layer1"].inputs.outliers == layers["layer2"].weights.outliers == 1
    assert layers["layer1"].inputs.peak == pytest.approx(WIDE, rel=1e-3)
    data = json.loads(found.to_json())
    assert Comparison.from_dict(data) == found
    one = next(one for one in data["layers"] if one["name"] == "layer1")
    assert one["inputs"]["high"] == pytest.approx(SPIKE, rel=1e-3)
    assert sorted(one["weights"]) == ["high", "low", "outliers", "rms", "values"]


def sliced() -> Case:
    weights = {"all": normal(64, 32, seed=1), "from": np.array([16]), "to": np.array([48])}
    body = "half = Slice (all, from, to) [sliced] y = MatMul (x, half)"
    return text(body, "float[m, 32] x", "float[m, 32] y", weights), {"x": normal(3, 32)}


Expected = Mapping[str, tuple[list[str], list[str]]]
"""By layer: the inputs or initializers that are its activations, and its weights."""
CONVOLUTIONS = Recipe("convolutions", Scheme(), (Rule(Scheme(), kind=Kind.CONV),))
PRODUCTS = Recipe("products", Scheme(), (Rule(Scheme(), kind=Kind.ACTIVATION_MATMUL),))
KINDS: dict[str, tuple[Callable[[], Case], Expected, dict[str, Any]]] = {
    "gemm": (graphs.gemm, {"fc": (["x"], ["w"])}, {}),
    "grouped": (graphs.grouped, {"q": (["x"], ["w0"]), "k": (["x"], ["w1"])}, {}),
    "table": (graphs.table, {"lookup": ([], ["table"])}, {}),
    "lstm": (lambda: graphs.recurrent("LSTM"), {"rec": (["x"], ["w", "r"])}, {}),
    "conv": (graphs.conv, {"conv": (["x"], ["w"])}, {"recipe": CONVOLUTIONS}),
    "in a data file": (graphs.gemm, {"fc": (["x"], ["w"])}, {"external": "float.data"}),
}


@pytest.mark.parametrize(
    ("kind", "target"),
    [("gemm", "portable"), ("grouped", "portable"), ("grouped", "native"), ("table", "native"),
     ("lstm", "portable"), ("lstm", "native"), ("conv", "native"), ("in a data file", "portable")],
)  # fmt: skip
def test_each_kind_of_layer(kind: str, target: str, tmp_path: Path) -> None:
    make, expected, options = KINDS[kind]
    model, feed = make()
    layers = by_name(compared(tmp_path, (model, feed), target, **options))
    arrays = {**stored(model), **feed}
    assert sorted(layers) == sorted(expected)
    for name, (inputs, weights) in expected.items():
        assert same(layers[name].weights, *(arrays[w] for w in weights))
        if inputs:
            assert same(layers[name].inputs, *(arrays[x] for x in inputs))
        else:
            assert layers[name].inputs is None


def test_a_weight_behind_nodes_and_shared_with_a_table(tmp_path: Path) -> None:
    model, feed = graphs.tied()
    layers = by_name(compared(tmp_path, (model, feed), "portable"))
    table = stored(model)["table"]
    assert same(layers["head"].weights, table)
    assert layers["head"].weights == layers["lookup"].weights
    looked_up = np.tanh(table[feed["i"]].astype(np.float64))
    assert same(layers["head"].inputs, looked_up, rel=1e-5)


def test_of_two_activations_the_one_that_is_stretched_more(tmp_path: Path) -> None:
    spiked = normal(5, 32, 16, seed=1)
    spiked[1, 2, 3] = -SPIKE
    feed = {"a": normal(5, 8, 32), "b": spiked}
    case = graphs.products()[0], feed
    (layer,) = compared(tmp_path, case, "native", recipe=PRODUCTS).layers
    assert same(layer.inputs, spiked)
    assert layer.inputs.stretched and layer.weights is None
    feed["a"], feed["b"] = spiked.reshape(5, 16, 32)[:, :8], normal(5, 32, 16)
    (layer,) = octavo.onnx.compare(tmp_path / "float.onnx", tmp_path / "int8.onnx", feed).layers
    assert same(layer.inputs, feed["a"])


@TARGETS
def test_the_activations_of_layers_in_a_subgraph_are_not_seen(target: str, tmp_path: Path) -> None:
    body = """[first] h = MatMul (x, w0) y = If (c) <
        then_branch = then () => (float[] inner) { [inside] inner = MatMul (h, w1) },
        else_branch = other () => (float[] same) { same = Identity (h) }>"""
    weights = {"w0": normal(32, 32), "w1": normal(32, 32, seed=1)}
    model = text(body, "float[m, 32] x, bool c", "float[m, 32] y", weights)
    feed = {"x": normal(5, 32), "c": np.array(True)}
    layers = by_name(compared(tmp_path, (model, feed), target))
    assert same(layers["first"].inputs, feed["x"])
    assert layers["inside"].inputs is None
    assert same(layers["inside"].weights, weights["w1"])


def test_several_runs_are_counted_as_one_and_only_finite_numbers(tmp_path: Path) -> None:
    feeds = [{"x": normal(m, 64, seed=m)} for m in (2, 40, 5)]
    feeds[0]["x"][0, 0] = SPIKE
    feeds[1]["x"][1] = np.nan
    layers = by_name(compared(tmp_path, graphs.linear(), "portable", feeds))
    whole = np.concatenate([feed["x"] for feed in feeds])
    assert same(layers["layer0"].inputs, whole[np.isfinite(whole)])
    assert layers["layer0"].inputs.outliers == 1
    assert layers["layer1"].inputs.values == 46 * 64
