"""Small models, and what the tests of bad input check each time."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

F32 = TensorProto.FLOAT
Spec = tuple[str, int, Sequence[int | str | None] | None]


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    weights: Mapping[str, np.ndarray],
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    """A model of nodes, (name, type, shape) of inputs and outputs, and named arrays."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*spec) for spec in inputs],
        [helper.make_tensor_value_info(*spec) for spec in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, **{"ir_version": 8, **more})


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mlp(layers: int = 2, width: int = 32, seed: int = 0) -> onnx.ModelProto:
    """x [m, width] -> (MatMul `layer0` with `w0` -> Relu) -> ... -> y."""
    rng = np.random.default_rng(seed)
    nodes, weights, x = [], {}, "x"
    for i in range(layers):
        scale = np.float32((2 / width) ** 0.5)
        weights[f"w{i}"] = rng.standard_normal((width, width), np.float32) * scale
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"h{i}"], name=f"layer{i}"))
        x = "y" if i == layers - 1 else f"r{i}"
        nodes.append(helper.make_node("Relu", [f"h{i}"], [x], name=f"relu{i}"))
    return build(nodes, [("x", F32, ["m", width])], [("y", F32, ["m", width])], weights)


def save(model: onnx.ModelProto, path: Path, **options: Any) -> Path:
    """Saves and returns the path; `external="name"` puts the weights there."""
    external = options.pop("external", None)
    if external is not None:
        options |= {"save_as_external_data": True, "location": external, "size_threshold": 0}
        model = onnx.load_from_string(model.SerializeToString())  # onnx.save changes it
    onnx.save(model, path, **options)
    return path


def run(path: Path, feed: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of the model at `path` in ONNX Runtime."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feed)))


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """What is in a folder, hidden files included: hash and time of change of every file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and status.st_size < 1 << 28 else b""
        found[str(path.relative_to(folder))] = (
            hashlib.sha256(content).hexdigest(),
            0 if path.is_dir() else status.st_mtime_ns,
        )
    return found


@contextlib.contextmanager
def refused(folder: Path, kind: type[Exception], *substance: str) -> Iterator[None]:
    """The body raises exactly `kind`, says all of `substance`, and leaves `folder` as it was."""
    before = snapshot(folder)
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    for text in substance:
        assert text in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    assert snapshot(folder) == before
