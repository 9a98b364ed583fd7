"""A layer that is broken on purpose, and nothing else, comes first in a comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import octavo.onnx
from benchmarks.zoo import minilm
from octavo.core.kernels import checksum
from octavo.recipe import Layer
from tests import graphs
from tests.graphs import Array, save

SHUFFLED, DOUBLED = "outputs change places", "scales doubled"


def damaged(source: Path, layer: Layer, damage: str, seed: int) -> onnx.ModelProto:
    """The quantized model with one broken layer; its weight has the float weight's name."""
    model = onnx.load(source)
    ((weight, _),) = layer.weights
    wanted = f"{weight}_scale" if damage == DOUBLED else f"{weight}_quantized"
    (stored,) = [i for i in model.graph.initializer if i.name == wanted]
    array = numpy_helper.to_array(stored)
    if damage == DOUBLED:
        array = array * np.float32(2)
    else:  # rows of a table, columns of a matrix [K, N], or blocks of 16 outputs of a packed one
        axis = 1 if array.ndim == 2 and layer.op == "MatMul" else 0
        count = array.shape[axis]
        turns = 1 + np.random.default_rng(seed).integers(count - 1)
        array = np.take(array, np.roll(np.arange(count), turns), axis)
        sign(model, wanted, array)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), wanted))
    return model


def sign(model: onnx.ModelProto, weight: str, array: Array) -> None:
    """Gives operators of target native the checksum of their new weight."""
    for node in model.graph.node:
        digests = [a for a in node.attribute if a.name == "checksum"]
        if weight not in node.input or not digests:
            continue
        digest = checksum(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        if digests[0].ints:
            digests[0].ints[(list(node.input).index(weight) - 1) // 4] = digest
        else:
            digests[0].i = digest


@pytest.mark.parametrize("damage", [SHUFFLED, DOUBLED])
@pytest.mark.parametrize("target", ["portable", "native"])
def test_one_stored_tensor_changes_and_its_layer_comes_first(
    target: str, damage: str, tmp_path: Path
) -> None:
    model, feed = graphs.grouped()
    floating, quantized = save(model, tmp_path / "float.onnx"), tmp_path / "int8.onnx"
    report = octavo.onnx.quantize_dynamic(floating, quantized, target=target, verify=False)
    layer = report.quantized[-1].layer
    broken = damaged(quantized, layer, damage, seed=0)
    pairs = zip(broken.graph.initializer, onnx.load(quantized).graph.initializer, strict=True)
    changed = [a.name for a, b in pairs if a.SerializeToString() != b.SerializeToString()]
    assert changed == [layer.weights[0][0] + ("_scale" if damage == DOUBLED else "_quantized")]
    path = save(broken, tmp_path / "broken.onnx")
    assert octavo.onnx.compare(floating, path, feed).layers[0].name == layer.name


@pytest.mark.slow
@pytest.mark.models
def test_any_broken_layer_of_minilm_comes_first(tmp_path: Path) -> None:
    """But those whose weights are one tensor with others'; by decibels, on 32 tokens."""
    whole, broken = tmp_path / "minilm.onnx", tmp_path / "broken.onnx"
    layers = [o.layer for o in octavo.onnx.quantize_dynamic(minilm.onnx_path(), whole).quantized]
    stored = {tensor.name for tensor in onnx.load(whole).graph.initializer}
    layers = [layer for layer in layers if f"{layer.weights[0][0]}_scale" in stored]
    assert len(layers) == 20
    random = np.random.RandomState(0)
    feed = {
        "input_ids": random.randint(1000, 30000, (1, 32)),
        "attention_mask": np.ones((1, 32), np.int64),
        "token_type_ids": np.zeros((1, 32), np.int64),
    }
    for i, layer in enumerate(layers):
        save(damaged(whole, layer, (SHUFFLED, DOUBLED)[i % 2], i), broken)
        first, following = octavo.onnx.compare(minilm.onnx_path(), broken, feed).layers[:2]
        assert first.name == layer.name
        assert first.alone is not None and following.alone is not None
        assert following.alone.sqnr_db - first.alone.sqnr_db > 3
