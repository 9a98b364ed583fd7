"""Large models, and what a process that does nothing else takes to convert or to open one.

Peak memory is the kernel's VmHWM: resident pages at their most, those of mapped files included.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks import runner
from benchmarks.runner import Job

WIDTH = 4096
WEIGHT_BYTES = WIDTH * WIDTH * 4


def child(call: str, *files: Path) -> dict[str, Any]:
    """What a child says that calls the function `call` of this module with `files`."""
    options = {"files": [str(file) for file in files]}
    found: dict[str, Any] = runner.value(
        Job(f"large:{call}", threads=0, torch=False, options=options)
    )
    return found


def convert(job: Job) -> dict[str, Any]:
    """Bytes at the most, seconds and layers of converting IN to OUT; without them, of importing."""
    from octavo.onnx import quantize_dynamic

    start, layers = time.perf_counter(), 0
    if job.options["files"]:
        layers = len(quantize_dynamic(*job.options["files"], verify=False).quantized)
    return {"bytes": high_water(), "seconds": time.perf_counter() - start, "quantized": layers}


def opened(job: Job) -> dict[str, Any]:
    """Seconds to open a model and to run one row first; `peak` is before the first run."""
    import onnxruntime  # noqa: F401  # what a first import takes is no part of the cost

    from benchmarks.zoo.sessions import open_session

    start = time.perf_counter()
    session = open_session(job.options["files"][0])
    seconds, peak = time.perf_counter() - start, high_water()
    x = np.ones((1, WIDTH), np.float32)
    start = time.perf_counter()
    session.run(None, {"x0": x})
    return {"seconds": seconds, "first": time.perf_counter() - start, "peak": peak}


def high_water() -> int:
    """Bytes: VmHWM of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM; this needs Linux")


def write_model(folder: Path, weights: int) -> Path:
    """A chain of `weights` MatMuls of 4096 x 4096 float32 in `folder`, 64 MiB each, in a data file.

    Raises OSError unless the folder's disk has room for it and for the int8 model.
    """
    need, free = weights * WEIGHT_BYTES * 3 // 2, shutil.disk_usage(folder).free
    if free < need:
        raise OSError(
            f"{folder} has {free / 1e9:.1f} GB free and the model needs {need / 1e9:.1f} GB; "
            "set TMPDIR to a folder with more"
        )
    nodes, initializers = [], []
    for i in range(weights):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"m{i}"))
        tensor = TensorProto(
            name=f"w{i}",
            data_type=TensorProto.FLOAT,
            dims=(WIDTH, WIDTH),
            data_location=TensorProto.EXTERNAL,
        )
        place = {"location": "large.data", "offset": i * WEIGHT_BYTES, "length": WEIGHT_BYTES}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        initializers.append(tensor)
    path = save(nodes, initializers, WIDTH, WIDTH, folder / "large.onnx")
    block = np.random.RandomState(0).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 64
    with (folder / "large.data").open("wb") as file:
        for i in range(weights):
            np.roll(block, i * 65537).tofile(file)  # each weight is another one
    return path


def save(
    nodes: list[onnx.NodeProto],
    initializers: list[TensorProto],
    inputs: int,
    outputs: int,
    path: Path,
) -> Path:
    """A chain from `x0` [rows, inputs] to the last `x` [rows, outputs]."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width])
        for name, width in (("x0", inputs), (f"x{len(nodes)}", outputs))
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], initializers)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path
