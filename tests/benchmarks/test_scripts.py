"""The parts of the benchmark scripts that can be wrong without anybody noticing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from benchmarks import convert, large, variants

pytestmark = pytest.mark.slow

CPU = ["CPUExecutionProvider"]


def test_a_chain_runs_and_every_node_is_quantized(tmp_path: Path) -> None:
    model = convert.write_chain(tmp_path, 12)
    onnx.checker.check_model(str(model), full_check=True)
    report = variants.octavo_quantize(model, tmp_path / "int8.onnx")
    assert [o.layer.op for o in report.quantized] == ["MatMul"] * 12
    y = onnxruntime.InferenceSession(str(model), providers=CPU).run(
        None, {"x0": np.ones((3, 8), np.float32)}
    )[0]
    assert np.isfinite(y).all()
    assert 0.01 < np.abs(y).mean() < 100  # neither dies out nor explodes


def test_a_large_model_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "WIDTH", 64)
    monkeypatch.setattr(large, "WEIGHT_BYTES", 64 * 64 * 4)
    model = large.write_model(tmp_path, 3)
    onnx.checker.check_model(str(model), full_check=True)
    weights = [numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer]
    assert [w.shape for w in weights] == [(64, 64)] * 3
    assert np.abs(weights[0]).max() > 0
    assert not np.array_equal(weights[0], weights[1])
    assert (tmp_path / "large.data").stat().st_size == 3 * 64 * 64 * 4


def test_a_full_disk_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "WEIGHT_BYTES", 2**60)
    with pytest.raises(OSError, match="set TMPDIR to a folder with more"):
        large.write_model(tmp_path, 64)
    assert not list(tmp_path.iterdir())


def test_peak_of_a_conversion_counts_its_layers(tmp_path: Path) -> None:
    found = large.child("convert", convert.write_chain(tmp_path, 5), tmp_path / "int8.onnx")
    assert found["quantized"] == 5
    assert found["bytes"] > 30e6
    assert found["seconds"] > 0
