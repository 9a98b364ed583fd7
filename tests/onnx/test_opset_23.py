"""Files of opset 23 in ONNX Runtime 1.23, the first that runs it: it has no QuantizeLinear for it.

The other interpreter is $OCTAVO_ORT123_PYTHON, or .venv-ort123/bin/python as `make setup` makes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from octavo.onnx import convert_target
from tests.graphs import FLOAT, MS, build, convert, error, node, values, weight
from tests.onnx.test_oldest_runtime import CASES, SAME, OldRuntime, converted_case, newest

VARIABLE = "OCTAVO_ORT123_PYTHON"
DEFAULT = Path(__file__).parents[2] / ".venv-ort123" / "bin" / "python"
WAYS: dict[str, dict[str, Any]] = {
    "portable": {},
    "native": {"target": "native"},
    "per-tensor": {"recipe": "int8-per-tensor"},
}


@pytest.fixture(scope="module")
def release_123(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldRuntime]:
    stated = os.environ.get(VARIABLE)
    python = Path(stated) if stated else DEFAULT
    if not python.exists():
        assert not stated, f"{VARIABLE} names {stated}, which does not exist"
        pytest.skip(
            f"NOT TESTED with ONNX Runtime 1.23: there is no {python}. `make setup` makes it; "
            f"{VARIABLE} names another interpreter"
        )
    runtime = OldRuntime(python, tmp_path_factory.mktemp("release_123"))
    assert runtime.version.startswith("1.23."), runtime.version
    yield runtime
    runtime.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_what_runs_in_float_runs_quantized(
    release_123: OldRuntime, tmp_path: Path, name: str, way: str
) -> None:
    converted, feeds = converted_case(name, 23, tmp_path, **WAYS[way])
    assert converted.report.min_onnxruntime == "1.23"
    new, old = newest(converted.path, feeds), release_123.run(converted.path, feeds)
    for a, b in zip(new, old, strict=True):
        assert a.dtype == b.dtype
        assert error(b, a) <= (1e-3 if a.dtype == "float16" else SAME)


def quantizing(model: onnx.ModelProto) -> set[str]:
    """The domains of the nodes that quantize."""
    return {n.domain for n in model.graph.node if n.op_type == "QuantizeLinear"}


@pytest.mark.parametrize("opset", [22, 23, 24])
def test_only_opset_23_has_onnx_runtimes_own(tmp_path: Path, opset: int) -> None:
    model, _ = CASES["matmul-2d-narrow"](opset)
    assert quantizing(convert(model, tmp_path).proto) == {MS if opset == 23 else ""}


def test_a_node_of_the_standard_needs_more(tmp_path: Path) -> None:
    """One that was there before the conversion."""
    zero = helper.make_tensor("zero", onnx.TensorProto.UINT8, [], [128])
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("QuantizeLinear", ["h", "step", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "step", "zero"], ["y"]),
    ]
    stored = {"w": weight(48, 16, spread=False), "step": values(1)[0] ** 2, "zero": zero}
    given = build(nodes, {"x": (FLOAT, ["n", 48])}, ["y"], stored, opset=23)
    assert convert(given, tmp_path, allow_quantized=True).report.min_onnxruntime == "1.24"


def test_such_a_file_becomes_native(tmp_path: Path) -> None:
    model, feeds = CASES["matmul-3d-narrow"](23)
    portable = convert(model, tmp_path)
    native = tmp_path / "native.onnx"
    done = convert_target(portable.path, native, to="native")
    assert "Linear" in {n.op_type for n in onnx.load(native).graph.node}
    assert done.min_onnxruntime == "1.23"
    assert error(newest(native, feeds)[0], newest(portable.path, feeds)[0]) < 0.02
