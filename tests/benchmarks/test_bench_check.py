"""The check of `octavo bench`: what it plants, and what it counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks import bench_check


def test_three_percent_more_work_are_planted(tmp_path: Path) -> None:
    plain = bench_check.write_model(tmp_path / "a.onnx", bench_check.LAYERS)
    more = bench_check.write_model(tmp_path / "b.onnx", bench_check.LAYERS + bench_check.PLANTED)
    products = [
        sum(node.op_type == "MatMul" for node in onnx.load(path).graph.node)
        for path in (plain, more)
    ]
    assert products[1] / products[0] == pytest.approx(1.03, abs=0.002)
    session = onnxruntime.InferenceSession(str(more), providers=["CPUExecutionProvider"])
    y = session.run(None, {"x": np.ones((bench_check.ROWS, bench_check.WIDTH), np.float32)})[0]
    assert np.isfinite(y).all()
    assert np.abs(y).max() > 0.01


def test_verdicts_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"same": "same same noisy slower".split(), "planted": "slower same slower noisy".split()}

    def bench(a: Path, b: Path, threads: int | None) -> dict[str, Any]:
        verdict = said["same" if a == b else "planted"].pop(0)
        return {"verdict": verdict, "ratio": 1.0, "low": 0.99, "high": 1.01, "took": 20.0}

    monkeypatch.setattr(bench_check, "bench", bench)
    quiet, found = bench_check.rows(tmp_path, 1, 4, "section")
    assert (quiet.measured, quiet.at_least, quiet.unit) == (3, 3.6, "of 4")
    assert found.measured == 2
    assert "too noisy to tell: 1; up to 20 s a run" in found.note
