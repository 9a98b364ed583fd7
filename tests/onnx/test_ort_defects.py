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
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from octavo.errors import ModelError
from octavo.onnx import quantize_dynamic
from tests.graphs import (
    FLOAT,
    PER_TENSOR,
    assert_close,
    build,
    convert,
    mlp,
    node,
    run,
    sizes,
    text,
    values,
    weight,
)

K, N, M = 64, 48, 16
X = f"float[{M}, {K}] x"


def test_weight_of_rank_3_per_channel(tmp_path: Path) -> None:
    w, x = weight(3, K, N), values(3, M, K)
    model = text("y = MatMul (x, w)", f"float[3, {M}, {K}] x", weights={"w": w})
    done = convert(model, tmp_path, recipe="int8-per-tensor", per_channel=True)
    assert len(done.report.quantized) == 1
    assert_close(run(done.path, {"x": x})[0], run(model, {"x": x})[0], PER_TENSOR, sizes(w))


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
    ("module", "shape", "op", "options"),
    [
        (lambda: nn.LSTM(64, 32, bidirectional=True), (5, 2, 64), "LSTM", [{}]),
        (  # its value_info speaks of values that conversion takes away or changes
            lambda: nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 16)),
            (8, 64),
            "Gemm",
            [{}, {"recipe": "int8-per-tensor"}, {"quant_format": "qdq"}],
        ),
    ],
    ids=["LSTM", "Gemm"],
)
def test_torch_dynamo_exports(
    tmp_path: Path, module: Any, shape: tuple[int, ...], op: str, options: list[dict[str, Any]]
) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = (torch.zeros(shape),)
        program = torch.onnx.export(module().eval(), given, dynamo=True, verbose=False)
    proto = program.model_proto
    assert op in [n.op_type for n in proto.graph.node] and proto.graph.value_info
    feeds = {proto.graph.input[0].name: values(*shape)}
    for more in options:
        done = convert(proto, tmp_path, **more)
        assert all(o.quantized for o in done.report.layers) and op not in done.ops
        contributed = {"MatMulIntegerToFloat", "DynamicQuantizeLSTM"} & set(done.ops)
        onnx.checker.check_model(str(done.path), full_check=not contributed)
        for y, exact in zip(run(done.path, feeds), run(proto, feeds), strict=True):
            assert_close(y, exact, PER_TENSOR)


@pytest.mark.parametrize(
    ("recipe", "bad"),
    [("int8", np.nan), ("int8-per-tensor", np.inf), ("int8-accurate", -np.inf),
     ("int8-block", np.inf)],
)  # fmt: skip
def test_weights_that_are_not_finite(tmp_path: Path, recipe: str, bad: float) -> None:
    broken = weight(N, N, spread=False)
    broken[3, 7] = bad
    body = "[first] h = MatMul (x, w) [second] y = MatMul (h, broken)"
    model = text(body, X, weights={"w": weight(K, N, spread=False), "broken": broken})
    with pytest.raises(ModelError, match=r"'second'.*'broken'"):
        quantize_dynamic(model, tmp_path / "out.onnx", recipe=recipe)
    assert list(tmp_path.iterdir()) == []


def test_lstm_weights_that_are_not_finite(tmp_path: Path) -> None:
    stored = {"w": weight(1, 64, K, spread=False), "r": weight(1, 64, 16, spread=False)}
    stored["r"][0, 0, 0] = np.nan
    body = "[lstm] y = LSTM <hidden_size = 16> (x, w, r)"
    with pytest.raises(ModelError, match=r"'lstm'.*'r'"):
        convert(text(body, f"float[5, 2, {K}] x", weights=stored), tmp_path)


def test_a_model_that_is_given_is_let_be(tmp_path: Path) -> None:
    model = mlp()
    before = model.SerializeToString(deterministic=True)
    convert(model, tmp_path)
    assert model.SerializeToString(deterministic=True) == before


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
    def peak():
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) * 1024
    before = peak()
    octavo.onnx.quantize_dynamic(sys.argv[1], sys.argv[2], verify=False)
    print(before, peak())
    """
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="VmHWM is Linux's")
def test_peak_memory(tmp_path: Path) -> None:
    """Below twice the model, which is 100 MB in one file. (ours: 0.3 times; theirs: 3.4)"""
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(chain_of(25, np.ones((1024, 1024), np.float32)), path)
    size = path.stat().st_size
    assert size > 100e6
    command = [sys.executable, "-c", MEASURE, str(path), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    path.unlink()
    assert after - before < 2 * size, f"{(after - before) / size:.2f} times the model"
    assert out.stat().st_size < 0.3 * size
