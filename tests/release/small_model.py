"""What a fresh installation has to do: quantize a small model for each target, and run both files.

    python small_model.py [FOLDER] [--no-compiler]

Writes into FOLDER, by default a temporary one, `model.portable.onnx`, `model.native.onnx` and what
the second one gives, `native.npz`. With --no-compiler it fails where a compiler is on the path.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import octavo
from octavo.onnx import quantize_dynamic, session

LARGEST_ERROR = 0.02
"""Of the largest output. A layer of 64 inputs with eight bits is off by about 0.01."""
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "cmake", "ninja", "make")


def model(weight: np.ndarray) -> onnx.ModelProto:
    inputs, outputs = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "one_layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", outputs])],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def main(folder: pathlib.Path) -> None:
    home = pathlib.Path(octavo.__file__)
    assert any(home.is_relative_to(path) for path in map(pathlib.Path, sys.path)), home
    random = np.random.default_rng(0)
    weight = random.normal(size=(64, 96)).astype(np.float32)
    x = random.normal(size=(5, 64)).astype(np.float32)
    onnx.save(model(weight), folder / "model.onnx")
    exact = x @ weight
    for target in ("portable", "native"):
        path = folder / f"model.{target}.onnx"
        report = quantize_dynamic(folder / "model.onnx", path, target=target)
        assert len(report.quantized) == 1, report
        (y,) = session(path).run(None, {"x": x})
        error = np.abs(y - exact).max() / np.abs(exact).max()
        assert error < LARGEST_ERROR, f"target {target} is off by {error}"
    np.savez(folder / "native.npz", x=x, y=y)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--no-compiler" in arguments:
        arguments.remove("--no-compiler")
        found = [name for name in COMPILERS if shutil.which(name)]
        assert not found, f"compilers are on the path: {found}"
    with tempfile.TemporaryDirectory() as temporary:
        main(pathlib.Path(*arguments or [temporary]))
