"""One ai.octavo operator in a model of its own, run by ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from octavo.core.kernels import isas
from octavo.onnx.session import register

REFUSALS = (
    ort.capi.onnxruntime_pybind11_state.Fail,
    ort.capi.onnxruntime_pybind11_state.InvalidArgument,
    ort.capi.onnxruntime_pybind11_state.RuntimeException,
)
"""What ONNX Runtime raises with the message of an operator."""

Shapes = Mapping[str, Sequence[int | str]]


def session(
    op: str,
    inputs: Mapping[str, np.dtype[Any]],
    shapes: Shapes,
    constants: Mapping[str, np.ndarray],
    threads: int = 1,
    **attributes: Any,
) -> ort.InferenceSession:
    """A session on one node "layer" whose inputs are `inputs` and then `constants`."""
    node = helper.make_node(
        op, [*inputs, *constants], ["y"], name="layer", domain="ai.octavo", **attributes
    )
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(t), shapes[n])
            for n, t in inputs.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.octavo", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # refusals are raised; they need not be printed too
    register(options)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(
    op: str,
    feeds: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    threads: int = 1,
    **attributes: Any,
) -> np.ndarray:
    """What the node makes of `feeds`; only their ranks are known beforehand."""
    dtypes = {name: array.dtype for name, array in feeds.items()}
    shapes = {n: [f"{n}{i}" for i in range(a.ndim)] for n, a in feeds.items()}
    s = session(op, dtypes, shapes, constants, threads, **attributes)
    y: np.ndarray = s.run(None, dict(feeds))[0]
    return y


def assert_same_on_every_isa(module: str) -> None:
    """That `module` prints the same digest on each; a process keeps the set that it began with."""
    digests = {}
    for isa in isas():
        done = subprocess.run(
            [sys.executable, "-m", module],
            env={**os.environ, "OCTAVO_ISA": isa},
            capture_output=True,
            text=True,
            check=True,
        )
        digests[isa] = done.stdout.strip()
    assert len(set(digests.values())) == 1, digests


def inferred(
    op: str,
    dtypes: Mapping[str, np.dtype[Any]],
    shapes: Shapes,
    constants: Mapping[str, np.ndarray],
    **attributes: Any,
) -> list[Any]:
    """The output's shape as ONNX Runtime knows it before a run; sizes nobody knows are None."""
    found = session(op, dtypes, shapes, constants, **attributes).get_outputs()[0].shape
    return [None if str(d).startswith("octavo_") else d for d in found]
