"""What a file or folder is that was given as an ONNX model and is none, and what to do with it.

The first bytes decide, then the name. Each answer names a way that exists.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import listed
from octavo.files.checkpoints import CONFIG, PARTS

HEAD = 512  # bytes that tell a format
SHOWN = 3  # files of a folder that are named

_MODULE = (
    "name a function that builds the module and loads these weights, such as mymodule:build, in "
    "place of the file (in Python: octavo.torch.quantize_dynamic); or write an .onnx file with "
    "torch.onnx.export"
)
_KERAS = (
    "in TensorFlow call model.export(folder), octavo.onnx.from_tensorflow makes an .onnx file of "
    "that folder"
)
_SOURCE = "give the .onnx file that it was made from"


@dataclass(frozen=True)
class Found:
    """`what` it is, with its article, and what to `do`."""

    what: str
    do: str


_TORCH = Found("a PyTorch checkpoint", _MODULE)
_TENSORS = Found("a file of tensors, without the model that reads them", _MODULE)
_WEIGHTS = Found("PyTorch weights", _MODULE)
_OWN_FOLDER = Found(
    "a checkpoint that Octavo quantized",
    "from_pretrained of transformers opens it, after import octavo.torch",
)
_OWN_TENSORS = Found(
    "a file of tensors that octavo.torch.save wrote, quantized already",
    "octavo.torch.load reads it",
)
_PROGRAM = Found(
    "a PyTorch program (torch.export)",
    "write an .onnx file of the module with torch.onnx.export",
)
_SCRIPT = Found(
    "a TorchScript file", "write an .onnx file of the module it was made from: torch.onnx.export"
)
_TENSORFLOW = Found("a TensorFlow graph", "octavo.onnx.from_tensorflow makes an .onnx file of it")
_SAVED_MODEL = Found(
    "a TensorFlow SavedModel", "octavo.onnx.from_tensorflow makes an .onnx file of the folder"
)
_KERAS_FILE = Found("a Keras model", _KERAS)
_LITE = Found(
    "a TensorFlow Lite model",
    "convert the TensorFlow model it was made from, with octavo.onnx.from_tensorflow",
)
_GGUF = Found(
    "a GGUF file of llama.cpp, mostly quantized already",
    "octavo quantize makes a folder of it that from_pretrained opens, with the file's integers",
)
_PICKLE = Found(
    "a Python pickle",
    "write an .onnx file of what it holds (torch.onnx.export for PyTorch, skl2onnx for "
    "scikit-learn)",
)
_OPENVINO = Found("a part of an OpenVINO model", _SOURCE)
_ORT = Found("a model in ONNX Runtime's own .ort format", _SOURCE)
_CORE_ML = Found("a Core ML model", _SOURCE)
_ENGINE = Found("a TensorRT engine, which runs on GPUs only", _SOURCE)
_DATA = Found("the weights of an .onnx file without the file", "give the .onnx file beside it")
_NUMPY = Found("a file of NumPy arrays", "give the .onnx file")
_JSON = Found("a JSON file", "give the .onnx file")
_ZIP = Found("a zip archive", "unpack it and give the .onnx file in it")
_GZIP = Found("a compressed file", "unpack it and give the .onnx file in it")
_POINTER = Found(
    "a pointer of Git LFS, in place of the file itself", "fetch the file with git lfs pull"
)
_PAGE = Found("a web page, perhaps of a failed download", "get the file again")
_EMPTY = Found("an empty file", "get the file again")

_HEADS: Sequence[tuple[int, bytes, Found]] = (
    (0, b"GGUF", _GGUF),
    (4, b"TFL3", _LITE),
    (4, b"ORTM", _ORT),
    (0, b"\x89HDF\r\n\x1a\n", _KERAS_FILE),
    (0, b"\x93NUMPY", _NUMPY),
    (0, b"version https://git-lfs", _POINTER),
    (0, b"\x1f\x8b", _GZIP),
    (0, b"\x80\x02", _TORCH),  # PyTorch before 1.6 pickles with protocol 2
    (0, b"\x80\x03", _PICKLE),
    (0, b"\x80\x04", _PICKLE),
    (0, b"\x80\x05", _PICKLE),
)
_SUFFIXES = {
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".ckpt": _TORCH,
    ".pt2": _PROGRAM,
    ".safetensors": _TENSORS,
    ".gguf": _GGUF,
    ".tflite": _LITE,
    ".pb": _TENSORFLOW,
    ".h5": _KERAS_FILE,
    ".keras": _KERAS_FILE,
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".joblib": _PICKLE,
    ".ort": _ORT,
    ".xml": _OPENVINO,
    ".mlmodel": _CORE_ML,
    ".mlpackage": _CORE_ML,
    ".engine": _ENGINE,
    ".plan": _ENGINE,
    ".trt": _ENGINE,
    ".npz": _NUMPY,
    ".json": _JSON,
    ".data": _DATA,
    ".onnx_data": _DATA,
}


def misread(path: Path, reason: object) -> str:
    """Say why `path` is no ONNX model, and what to do.

    `path` could not be read for this `reason`. Raises OSError where not even its first bytes can be
    read.
    """
    if path.is_dir():
        return _folder(path)
    with path.open("rb") as file:
        found = _file(path, file.read(HEAD))
    size = path.stat().st_size
    if found is not None:
        return f"{path} is not an ONNX model but {found.what} ({size} bytes): {found.do}"
    return (
        f"{path} is not an ONNX model, or it is truncated ({size} bytes): {reason}; get the file "
        "again"
    )


def _file(path: Path, head: bytes) -> Found | None:
    if not head:
        return _EMPTY
    for at, mark, found in _HEADS:
        if head[at : at + len(mark)] == mark:
            return found
    if zipfile.is_zipfile(path):
        return _archive(path)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return _OWN_TENSORS if _is_own(path, head) else _TENSORS
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return _PAGE
    if path.name == "saved_model.pb":
        return _SAVED_MODEL
    if path.suffix.lower() == ".bin":
        return _bin(path)
    return _SUFFIXES.get(path.suffix.lower())


def _bin(path: Path) -> Found | None:
    """Tell PyTorch files of Hugging Face and weights of OpenVINO apart, or return None."""
    if path.with_suffix(".xml").is_file():
        return _OPENVINO
    return _TORCH if "pytorch" in path.name else None


_NO_JSON = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def _is_own(path: Path, head: bytes) -> bool:
    """Tell whether the header of a safetensors file has the entry that octavo.torch.save writes."""
    with contextlib.suppress(*_NO_JSON), path.open("rb") as file:
        header = json.loads(file.read(8 + int.from_bytes(head[:8], "little"))[8:])
        return "octavo" in header.get("__metadata__", {})
    return False


def _archive(path: Path) -> Found:
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        names = [name.rpartition("/")[2] for name in archive.namelist()]
        whole = archive.namelist()
        if path.suffix == ".pt2" or "serialized_exported_program.json" in names:
            return _PROGRAM
        if "constants.pkl" in names:
            return _SCRIPT
        if "data.pkl" in names:
            return _TORCH
        if "model.weights.h5" in names:
            return _KERAS_FILE
        if whole and all(name.endswith(".npy") for name in whole):
            return _NUMPY
    return _ZIP


def _held(folder: Path) -> str:
    return listed(sorted(path.name for path in folder.iterdir()), SHOWN) or "nothing"


def _is_own_folder(folder: Path) -> bool:
    """Tell whether config.json says that Octavo quantized the checkpoint."""
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        return bool(config["quantization_config"]["quant_method"] == "octavo")
    except (OSError, *_NO_JSON):
        return False


def _folder(path: Path) -> str:
    """Say what the directory `path` is, and what to give in its place."""
    # Hubs put the models in a folder of their own, too.
    models = sorted(str(p) for p in [*path.glob("*.onnx"), *path.glob("*/*.onnx")])
    if models:
        return f"{path} is a directory; give the .onnx file in it: {listed(models, SHOWN)}"
    found = None
    if (path / "saved_model.pb").is_file():
        found = _SAVED_MODEL
    elif path.suffix == ".mlpackage":
        found = _CORE_ML
    elif _is_own_folder(path):
        found = _OWN_FOLDER
    elif any(p.suffix in (".safetensors", ".bin", ".pt", ".pth") for p in path.iterdir()):
        found = _WEIGHTS
    if found is None:
        return (
            f"{path} is a directory without an .onnx file, and no checkpoint of transformers: it "
            f"holds {_held(path)}. Give the path of an .onnx file, or a checkpoint's folder, with "
            f"{PARTS}"
        )
    return f"{path} is a directory, of {found.what}, and not an ONNX model: {found.do}"
