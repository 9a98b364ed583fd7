"""The parts of the benchmark scripts that can be wrong without anybody noticing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from benchmarks import convert, demo, large, latency, variants
from benchmarks.latency import Setting
from benchmarks.results import REPOSITORY
from benchmarks.zoo import minilm
from octavo.measure.timing import Comparison, Timing

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


def test_peak_memory_sees_what_was_freed_again() -> None:
    code = (
        "from benchmarks.large import high_water\n"
        "before = high_water()\n"
        "block = b'x' * (200 << 20)\n"
        "del block\n"
        "print(high_water() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    assert int(done.stdout) == pytest.approx(200 << 20, rel=0.05)


def test_peak_of_a_conversion_counts_its_layers(tmp_path: Path) -> None:
    found = large.child("convert", convert.write_chain(tmp_path, 5), tmp_path / "int8.onnx")
    assert found["quantized"] == 5
    assert found["bytes"] > 30e6
    assert found["seconds"] > 0


def test_the_peer_is_silent_and_logging_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import logging

    variants.onnxruntime_quantize(convert.write_chain(tmp_path, 2), tmp_path / "qd.onnx", True)
    assert not caplog.records
    logging.getLogger("benchmarks").warning("heard")
    assert [record.getMessage() for record in caplog.records] == ["heard"]


def test_the_demo_says_what_was_measured() -> None:
    def comparison(**seconds: float) -> Comparison:
        names = (
            *(variants.FLOAT, variants.QD, variants.QD_CHANNEL),
            *(variants.OCTAVO, variants.NATIVE),
        )
        times = zip(names, seconds.values(), strict=True)
        return Comparison({name: Timing((t,) * 3, (1.0,) * 3) for name, t in times})

    found = {
        demo.SHORT: comparison(exact=10.0, qd=4.0, channel=5.0, ours=2.0, native=1.0),
        demo.LONG: comparison(exact=90.0, qd=30.0, channel=27.0, ours=30.0, native=20.0),
    }
    exact = minilm.Scores(0.656, 0.729, 0.805)
    outcomes = {
        variants.FLOAT: demo.Outcome(90_000_000, 0.0, exact),
        variants.QD: demo.Outcome(23_000_000, 0.05, exact),
        variants.QD_CHANNEL: demo.Outcome(23_000_000, 0.011, exact),
        variants.OCTAVO: demo.Outcome(22_500_000, 0.002, minilm.Scores(0.655, 0.73, 0.802)),
        variants.NATIVE: demo.Outcome(22_600_000, 0.0012, minilm.Scores(0.655, 0.73, 0.802)),
    }
    said = demo.conclusion(outcomes, found)
    assert "4.0 times smaller than the float model and 5.0 (1x32) and 3.0 (8x128)" in said
    assert "2.50 and 0.90 times the speed of quantize_dynamic per channel" in said
    assert "25 times smaller than quantize_dynamic's and 5.5 times smaller" in said
    assert "no score is further than 0.0030" in said
    assert "(target native) it is 10.0 and 4.5 times as fast as the float model" in said
    assert said.endswith("its error is 0.0012.")
    assert demo.table(outcomes, found).row_count == 5


@pytest.mark.models
@pytest.mark.parametrize("amx", [True, False])
def test_latency_is_measured_in_a_child(amx: bool) -> None:
    path = minilm.onnx_path()
    feeds = latency.tokens([(1, 4)])
    setting = Setting(amx=amx, processes=2, rounds=3)
    (found,) = latency.compare({"a": path, "b": path}, feeds, setting).values()
    assert len(found["a"].seconds) == 2 * 3
    assert 1e-4 < found["a"].median < 1
