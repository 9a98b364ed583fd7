"""The command line over files: `quantize`, `inspect` and `doctor` with the real front end."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from octavo.results.report import Report
from tests import graphs
from tests.cli_support import printed, run
from tests.graphs import normal, save, text


@pytest.fixture
def float_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An embedding, two products with weights and one of two activations."""
    monkeypatch.chdir(tmp_path)
    body = """[emb] e = Gather (table, ids) [fc1] a = MatMul (e, w1)
        b = Relu (a) [fc2] c = MatMul (b, w2)
        t = Transpose <perm = [0, 2, 1]> (c) [qk] y = MatMul (c, t)"""
    weights = {"table": normal(100, 64), "w1": normal(64, 128), "w2": normal(128, 64, seed=1)}
    ids, y = "int64[batch, length] ids", "float[batch, length, length] y"
    return save(text(body, ids, y, weights), tmp_path / "m.onnx")


def quantized_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Report:
    return Report.from_dict(printed(capsys, "quantize", "m.onnx", *arguments))


def test_a_model_is_quantized_checked_and_runs(
    float_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = quantized_json(capsys)
    done = {o.layer.name for o in report.quantized}
    assert done == {"emb", "fc1", "fc2"}
    assert report.verification.status == "passed"
    ids = np.arange(12).reshape(2, 6)
    y, float_y = (graphs.run(Path(n), {"ids": ids})[0] for n in ("m.int8.onnx", "m.onnx"))
    assert np.abs(y - float_y).max() < 0.03 * np.abs(float_y).max()
    assert run("doctor", "m.int8.onnx") == 0
    out = capsys.readouterr().out
    assert "recipe int8, target portable" in out and "octavo.recipe" not in out


def test_only_exclude_and_inputs(float_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("data.npz", ids=np.arange(8).reshape(1, 8))
    report = quantized_json(capsys, "--only", "fc*", "--exclude", "*2", "--inputs", "data.npz")
    assert [o.layer.name for o in report.quantized] == ["fc1"]
    assert report.verification.inputs == "given"


def test_inspect_a_model(float_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "m.onnx") == 0
    out = capsys.readouterr().out
    assert re.search(r"^    fc1 +64x128 +32\.8 kB  \d\d\.\d%$", out, re.MULTILINE)
    assert "Leave float: a product of two activations" in out
    assert printed(capsys, "inspect", "m.onnx")["opset"] == 17


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    out = capsys.readouterr().out
    assert re.search(r"^onnxruntime  \d+\.\d+\.\d+ \(needs >=", out, re.MULTILINE)
    assert "ONNX Runtime's int8" in out and "in use" in out
    assert printed(capsys, "doctor")["ok"] is True


def test_doctor_on_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.core.kernels.cpu_features", lambda: ["sse2", "fma", "avx2"])
    model = text("y = MatMulInteger (x, w)", "uint8[m, 4] x", "int32[m, 2] y")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 2), np.int8), "w"))
    said = {"octavo.cpu": "vnni", "octavo.min_onnxruntime": "1.17"}
    onnx.helper.set_model_props(model, said)
    assert run("doctor", str(save(model, tmp_path / "m.onnx"))) == 0
    out = capsys.readouterr().out
    assert "warning: " in out
    assert "to mend it: open it with octavo.onnx.session" in out
