"""Defects of `onnxruntime.quantization.quantize_dynamic`, each of which was seen, as tests of ours.

Those that have a place by their subject are there: shared weights, chains, bodies and taken names
in test_coverage_*, attributes of Gemm and LSTM in rules/, files in write/.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.errors import ModelError
from octavo.onnx import quantize_dynamic
from tests.graphs import (
    FLOAT,
    PER_TENSOR,
    assert_close,
    build,
    convert,
    node,
    run,
    text,
    values,
    weight,
)

K, N, M = 64, 48, 16


@pytest.mark.parametrize(
    "attributes",
    [{"beta": -3.0}, {"transA": 1, "transB": 1, "alpha": 2.5, "beta": 0.5}],
    ids=str,
)
def test_gemm_attributes_per_tensor(tmp_path: Path, attributes: dict[str, Any]) -> None:
    w, x = weight(K, N, spread=False), values(M, K)
    x = np.ascontiguousarray(x.T) if attributes.get("transA") else x
    nodes = [node("Gemm", ["x", "w", "b"], ["y"], **attributes)]
    stored = {"w": w.T if attributes.get("transB") else w, "b": values(N, seed=6)}
    model = build(nodes, {"x": (FLOAT, x.shape)}, ["y"], stored)
    done = convert(model, tmp_path, recipe="int8-per-tensor")
    assert done.outcome("y_node").quantized
    assert_close(run(done.path, {"x": x})[0], run(model, {"x": x})[0], PER_TENSOR)


@pytest.mark.parametrize(
    "options", [{}, {"recipe": "int8-per-tensor"}, {"quant_format": "qdq"}], ids=str
)
def test_what_a_model_says_of_its_values_stays_true(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """As PyTorch's exporter states types of values that conversion takes away or changes."""
    body = "h = Gemm <transB = 1> (x, w, b) a = Relu (h) y = Gemm <transB = 1> (a, v, c)"
    stored = {"w": weight(N, K, spread=False), "v": weight(16, N, spread=False)}
    stored |= {"b": values(N), "c": values(16)}
    model = onnx.shape_inference.infer_shapes(text(body, f"float[{M}, {K}] x", weights=stored))
    assert {v.name for v in model.graph.value_info} >= {"h", "a"}
    done = convert(model, tmp_path, **options)
    assert len(done.report.quantized) == 2 and "Gemm" not in done.ops
    contributed = "MatMulIntegerToFloat" in done.ops
    onnx.checker.check_model(str(done.path), full_check=not contributed)
    x = {"x": values(M, K)}
    assert_close(run(done.path, x)[0], run(model, x)[0], PER_TENSOR)


def test_lstm_weights_that_are_not_finite(tmp_path: Path) -> None:
    stored = {"w": weight(1, 64, K, spread=False), "r": weight(1, 64, 16, spread=False)}
    stored["r"][0, 0, 0] = np.nan
    body = "[lstm] y = LSTM <hidden_size = 16> (x, w, r)"
    with pytest.raises(ModelError, match=r"'lstm'.*'r'"):
        convert(text(body, f"float[5, 2, {K}] x", weights=stored), tmp_path)


def chain_of(count: int, w: Any) -> onnx.ModelProto:
    body = "".join(f"h{i + 1} = MatMul (h{i}, w{i}) " for i in range(count))
    weights = {f"w{i}": w * np.float32(1 + i / count) for i in range(count)}
    return text(body, f"float[4, {len(w)}] h0", f"float[4, {len(w)}] h{count}", weights)


def seconds(path: Path, out: Path) -> float:
    """Of this thread's own work, so that the machine's other work does not count."""
    gc.collect()
    gc.freeze()  # or the collector walks through what other tests left, again and again
    try:
        started = time.thread_time()
        quantize_dynamic(path, out, verify=False)
        return time.thread_time() - started
    finally:
        gc.unfreeze()


@pytest.mark.real_time
def test_conversion_is_linear_in_nodes(tmp_path: Path) -> None:
    few, many = 100, 800
    for count in (few, many):
        onnx.save(chain_of(count, np.eye(16, dtype=np.float32)), tmp_path / f"{count}.onnx")
    out = tmp_path / "out.onnx"
    seconds(tmp_path / f"{few}.onnx", out)
    each = {count: seconds(tmp_path / f"{count}.onnx", out) / count for count in (few, many)}
    assert each[many] <= 2 * each[few], each  # a quadratic step makes it 8 times


MEASURE = textwrap.dedent(
    """
    import sys
    import octavo.onnx
    source, out, small = sys.argv[1:]
    octavo.onnx.quantize_dynamic(small, out, verify=False)  # imports count for nothing
    def peak():
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) * 1024
    before = peak()
    octavo.onnx.quantize_dynamic(source, out, verify=False)
    print(before, peak())
    """
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="VmHWM is Linux's")
def test_peak_memory(tmp_path: Path) -> None:
    """Below twice the model, which is 40 MB in one file. (ours: 0.3 times; theirs: 3.4)"""
    path, out, small = (tmp_path / f"{name}.onnx" for name in ("model", "out", "small"))
    onnx.save(chain_of(10, np.ones((1024, 1024), np.float32)), path)
    onnx.save(chain_of(1, np.ones((128, 128), np.float32)), small)
    size = path.stat().st_size
    command = [sys.executable, "-c", MEASURE, str(path), str(out), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    path.unlink()
    assert after - before < 2 * size, f"{(after - before) / size:.2f} times the model"
    assert out.stat().st_size < 0.3 * size
