"""Files that cannot be compared."""

from __future__ import annotations

from pathlib import Path

import onnx

from benchmarks.error_cases.case import Case
from benchmarks.relu_chain import mlp

TITLE = "Comparing"


def _other(path: Path) -> None:
    """A model with four layers more."""
    onnx.save(mlp(6, 32), path)


def _outputs(path: Path) -> None:
    model = mlp(2, 32)
    model.graph.output[0].name = model.graph.node[-1].output[0] = "scores"
    onnx.save(model, path)


_ORDER = "octavo compare FLOAT INT8"
CASES = (
    Case(
        *("octavo compare gone.onnx portable.onnx", 3),
        *("gone.onnx", "does not exist", ".onnx", "give the path of an .onnx file"),
    ),
    Case(
        *("octavo compare native.onnx m.onnx", 3),
        *("native.onnx", "holds quantized layers", "the float model comes first", _ORDER),
    ),
    Case(
        *("octavo compare m.onnx m.onnx --json", 3),
        *("m.onnx", "holds no quantized layers", _ORDER, "quantize the model first"),
    ),
    Case(
        *("octavo compare other.onnx portable.onnx", 3),
        *("portable.onnx lacks", "'layer2'", "made from", "Give the float model"),
        files={"other.onnx": _other},
    ),
    Case(
        *("octavo compare outputs.onnx portable.onnx", 3),
        *("portable.onnx has no output", "'scores'", "made from", "Give the float model"),
        files={"outputs.onnx": _outputs},
    ),
    Case(
        *("octavo compare m.onnx native.onnx --inputs gone.npz", 2),
        *("inputs gone.npz", "no such file", ".npz or .jsonl", "give"),
    ),
    Case(
        *("octavo compare m.onnx q.safetensors", 2),
        *("q.safetensors is a PyTorch model", "m.onnx", "module:factory", "name the float one by"),
    ),
    Case(
        *("octavo compare models:make native.onnx", 2),
        *("models:make", "native.onnx an ONNX file", ".safetensors", "give the"),
    ),
    Case(
        *("octavo compare models:wide q.safetensors", 3),
        *("query", "out_features 32", "16 in the file", "Give the factory"),
    ),
    Case(
        *("octavo compare models:make gone.safetensors", 3),
        *("gone.safetensors", "no such file", "octavo quantize", "give"),
    ),
    Case(
        *("octavo compare models:make q.safetensors --inputs data.npz", 2),
        *("the float model (Net)", "4x32", "8x16", "give inputs that its forward takes"),
    ),
)
