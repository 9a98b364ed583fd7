"""Peak memory of converting a large model, seen by a process that does nothing else.

`python -m benchmarks.memory` prints as JSON what importing the front end takes, and with IN and OUT
what converting IN takes. The figure is the kernel's VmHWM: resident pages at their most, those of
mapped files included.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import REPOSITORY

WIDTH = 4096
WEIGHT_BYTES = WIDTH * WIDTH * 4


@dataclass(frozen=True)
class Peak:
    """What a child process saw: bytes at the most, seconds, layers quantized."""

    bytes: int
    seconds: float
    quantized: int


def peak(*files: Path) -> Peak:
    """Of a child that imports the front end and, given (IN, OUT), converts IN without verifying."""
    command = [sys.executable, "-m", "benchmarks.memory", *map(str, files)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    return Peak(**json.loads(done.stdout))


def write_model(folder: Path, weights: int) -> Path:
    """A chain of `weights` MatMuls of 4096 x 4096 float32 in `folder`, 64 MiB each, in a data file.

    Raises OSError unless the folder's disk has room for it and for the int8 model.
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

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
    ends = [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, ["rows", WIDTH])
        for i in (0, weights)
    ]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], initializers)
    path = folder / "large.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    block = np.random.RandomState(0).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 64
    with (folder / "large.data").open("wb") as file:
        for i in range(weights):
            np.roll(block, i * 65537).tofile(file)  # each weight is another one
    return path


def main(argv: Sequence[str]) -> int:
    """Prints a `Peak` as JSON."""
    from octavo.onnx.quantize import quantize_dynamic

    start = time.perf_counter()
    quantized = 0
    if argv:
        source, out = argv
        quantized = len(quantize_dynamic(source, out, verify=False).quantized)
    seconds = time.perf_counter() - start
    print(json.dumps({"bytes": high_water(), "seconds": seconds, "quantized": quantized}))
    return 0


def high_water() -> int:
    """Bytes: VmHWM of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM; this needs Linux")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
