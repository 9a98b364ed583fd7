"""A small ONNX model with one layer that int8 ruins, and what evaluates it; for command lines."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.graphs import mlp, normal, save

WIDTH = 32
ROWS = 4000


def model(layers: int = 3, bad: int | None = 1) -> onnx.ModelProto:
    """`mlp`; one input of layer `bad` is 1000 times larger, and its weights as much smaller.

    Relu lets the factor through, so that the float model computes the same.
    """
    made = mlp(layers, WIDTH)
    if bad is not None:
        arrays = {t.name: t for t in made.graph.initializer}
        for name, axis, factor in ((f"w{bad - 1}", 1, 1000.0), (f"w{bad}", 0, 0.001)):
            array = onnx.numpy_helper.to_array(arrays[name]).copy()
            at = (slice(None), 3) if axis == 1 else (3, slice(None))
            array[at] *= np.float32(factor)
            arrays[name].CopyFrom(onnx.numpy_helper.from_array(array, name))
    return made


def write(folder: Path, **options: Any) -> Path:
    """The model, and data.npz with its inputs and the classes that it gives them."""
    path = save(model(**options), folder / "model.onnx")
    x = normal(ROWS, WIDTH, seed=5)
    np.savez(folder / "data.npz", x=x, label=np.argmax(_outputs(path, x), axis=1))
    return path


def _outputs(path: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def evaluate(session: Any) -> float:
    """The accuracy on data.npz; a line in the file CALLS names, and a rest of SECONDS."""
    if os.environ.get("OCTAVO_TEST_CALLS"):
        with Path(os.environ["OCTAVO_TEST_CALLS"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
    print("evaluating")
    time.sleep(float(os.environ.get("OCTAVO_TEST_SECONDS", "0")))
    with np.load("data.npz") as data:
        found = np.argmax(session.run(None, {"x": data["x"]})[0], axis=1)
        return float(np.mean(found == data["label"]))


def float_only(session: Any) -> float:
    """1 for the float model, 0 for any other: nothing meets a criterion."""
    with np.load("data.npz") as data:
        got = session.run(None, {"x": data["x"][:8]})[0]
        return float(np.allclose(got, _outputs(Path("model.onnx"), data["x"][:8]), rtol=1e-5))
