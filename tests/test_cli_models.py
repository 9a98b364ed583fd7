"""The command line over files: `quantize`, `inspect` and `doctor` with the real front end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from octavo.recipe import (
    Report,
)
from tests.cli_support import int8_model, run


@pytest.fixture
def float_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An embedding, two products with weights and one of two activations."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    weights = {"table": (100, 64), "w1": (64, 128), "w2": (128, 64)}
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["e"], "/emb/Gather"),
            helper.make_node("MatMul", ["e", "w1"], ["a"], "/fc1/MatMul"),
            helper.make_node("Relu", ["a"], ["b"], "/relu"),
            helper.make_node("MatMul", ["b", "w2"], ["c"], "/fc2/MatMul"),
            helper.make_node("Transpose", ["c"], ["t"], "/transpose", perm=[0, 2, 1]),
            helper.make_node("MatMul", ["c", "t"], ["y"], "/qk"),
        ],
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", "length"])],
        [
            numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def quantized_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Report:
    assert run("quantize", "m.onnx", "--json", *arguments) == 0
    return Report.from_dict(json.loads(capsys.readouterr().out))


def test_a_model_is_quantized_checked_and_runs(
    float_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = quantized_json(capsys)
    done = {o.layer.name for o in report.quantized}
    assert done == {"/emb/Gather", "/fc1/MatMul", "/fc2/MatMul"}
    assert report.verification.status == "passed"
    ids = np.arange(12).reshape(2, 6)
    y, float_y = (
        InferenceSession(name, providers=["CPUExecutionProvider"]).run(None, {"ids": ids})[0]
        for name in ("m.int8.onnx", "m.onnx")
    )
    assert np.abs(y - float_y).max() < 0.03 * np.abs(float_y).max()
    assert run("doctor", "m.int8.onnx") == 0
    out = capsys.readouterr().out
    assert "recipe int8, target portable" in out and "octavo." not in out


def test_only_exclude_and_inputs(float_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("data.npz", ids=np.arange(8).reshape(1, 8))
    report = quantized_json(capsys, "--only", "/fc*", "--exclude", "/fc2/*", "--inputs", "data.npz")
    assert [o.layer.name for o in report.quantized] == ["/fc1/MatMul"]
    assert report.verification.inputs == "given"


def test_inspect_a_model(float_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "m.onnx") == 0
    out = capsys.readouterr().out
    assert re.search(r"^    /fc1/MatMul  64x128 +32\.8 kB  \d\d\.\d%$", out, re.MULTILINE)
    assert "Leave float: a product of two activations" in out
    assert run("inspect", "m.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["opset"] == 17


def test_failures_leave_nothing(
    float_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    (tmp_path / "strict.yaml").write_text("base: int8\nmax_error: 1.0e-12\n")
    before = sorted(tmp_path.iterdir())
    assert run("quantize", "text.onnx") == 3
    assert run("quantize", "none.onnx") == 3
    assert run("quantize", "m.onnx", "--only", "/nothing*") == 2
    assert run("quantize", "m.onnx", "--exclude", "/*") == 4
    assert run("quantize", "m.onnx", "--inputs", "none.npz") == 2
    assert run("quantize", "m.onnx", "--recipe", "strict.yaml") == 5
    assert run("quantize", "m.onnx", "-o", "no/such/folder/out.onnx") == 6
    assert sorted(tmp_path.iterdir()) == before
    assert capsys.readouterr().err.count("error: ") == 7


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    out = capsys.readouterr().out
    assert re.search(r"^onnxruntime  \d+\.\d+\.\d+ \(needs >=", out, re.MULTILINE)
    assert "ONNX Runtime's int8" in out and "in use" in out
    assert run("doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_doctor_on_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.core.kernels.cpu_features", lambda: ["sse2", "fma", "avx2"])
    path = int8_model(tmp_path / "m.onnx", cpu="vnni", min_onnxruntime="1.17")
    assert run("doctor", str(path)) == 0
    out = capsys.readouterr().out
    assert "warning: " in out
    assert "to mend it: open it with octavo.onnx.session" in out
    int8_model(path, cpu="any", min_onnxruntime="99.0")
    assert run("doctor", str(path)) == 7
    assert "needs ONNX Runtime 99.0 or newer" in capsys.readouterr().out
    assert run("doctor", str(tmp_path / "none.onnx")) == 3
    assert run("doctor", str(tmp_path)) == 3
