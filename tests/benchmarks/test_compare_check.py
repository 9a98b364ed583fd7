"""The damage that benchmarks/compare_check.py plants is in one layer, and found there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import octavo.onnx
from benchmarks.compare_check import DOUBLED, SHUFFLED, damaged
from tests.onnx import target_models
from tests.onnx.helpers import save


@pytest.mark.parametrize("damage", [SHUFFLED, DOUBLED])
@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("case", [target_models.grouped, target_models.linear])
def test_one_stored_tensor_changes_and_its_layer_comes_first(
    case: object, target: str, damage: str, tmp_path: Path
) -> None:
    model, feed = case()  # type: ignore[operator]
    floating, quantized = save(model, tmp_path / "float.onnx"), tmp_path / "int8.onnx"
    report = octavo.onnx.quantize_dynamic(floating, quantized, target=target)
    layer = report.quantized[-1].layer
    broken = damaged(quantized, layer, damage, seed=0)
    pairs = zip(broken.graph.initializer, onnx.load(quantized).graph.initializer, strict=True)
    changed = [
        a.name
        for a, b in pairs
        if not np.array_equal(numpy_helper.to_array(a), numpy_helper.to_array(b))
    ]
    assert changed == [layer.weights[0][0] + ("_scale" if damage == DOUBLED else "_quantized")]
    path = save(broken, tmp_path / "broken.onnx")
    assert octavo.onnx.compare(floating, path, feed).layers[0].name == layer.name
