"""Files that are no model, or not one that can be handled."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.error_cases.case import Case
from benchmarks.relu_chain import mlp

TITLE = "Models that cannot be read or handled"


def _external(path: Path, data: str = "weights.bin", keep: int | None = None) -> None:
    """A model whose weights lie in another file, of which `keep` bytes are there (None: all)."""
    onnx.save(mlp(2, 64), path, save_as_external_data=True, location=data, size_threshold=0)
    beside = path.with_name(data)
    if keep is not None:
        beside.write_bytes(beside.read_bytes()[:keep])
    if keep == 0:
        beside.unlink()


def _opset(path: Path, version: int) -> None:
    model = mlp(2, 32)
    model.opset_import[0].version = version
    onnx.save(model, path)


def _lost_weight(path: Path) -> None:
    model = mlp(2, 32)
    del model.graph.initializer[1]
    onnx.save(model, path)


def _no_nodes(path: Path) -> None:
    model = mlp(2, 32)
    del model.graph.node[:]
    onnx.save(model, path)


def _no_opset(path: Path) -> None:
    model = mlp(2, 32)
    del model.opset_import[:]
    onnx.save(model, path)


def _nan(path: Path) -> None:
    model = mlp(2, 32)
    weight = np.full((32, 32), np.nan, np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w0"))
    onnx.save(model, path)


def _sparse(path: Path) -> None:
    model = mlp(2, 32)
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "s"))
    onnx.save(model, path)


def _outside(path: Path) -> None:
    _external(path)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../weights.bin"
    path.write_bytes(model.SerializeToString())


_AN_ONNX_FILE = "give the path of an .onnx file"
_NO_MODEL = "is not an ONNX model, or it is truncated"
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
CASES = (
    Case(
        "octavo quantize mm.onnx", 3, "mm.onnx", "does not exist", ".onnx", "Did you mean 'm.onnx'"
    ),
    Case(
        "octavo inspect none/n.onnx --json",
        3,
        "none/n.onnx",
        "does not exist",
        ".onnx",
        _AN_ONNX_FILE,
    ),
    Case("octavo inspect .", 3, ".", "is a directory", ".onnx file", "give the .onnx file in it"),
    Case("octavo inspect /dev/null", 3, "/dev/null", "not a regular file", ".onnx", _AN_ONNX_FILE),
    Case(
        *("octavo quantize text.onnx --json", 3),
        *("text.onnx", "(420 bytes)", _NO_MODEL, "get the file again"),
    ),
    Case(
        *("octavo quantize cut.onnx", 3),
        *("cut.onnx", "(5000 bytes)", "truncated", "get the file again"),
    ),
    Case(
        *("octavo quantize lfs.onnx", 3),
        *("lfs.onnx", "bytes)", "a pointer of Git LFS", "fetch the file with git lfs pull"),
        files={"lfs.onnx": _LFS},
    ),
    Case(
        *("octavo quantize e.onnx", 3),
        *("tensor 'w1'", "weights.bin", "is missing", "put it beside the model"),
        files={"e.onnx": partial(_external, keep=0)},
    ),
    Case(
        *("octavo quantize e.onnx", 3),
        *("tensor 'w1'", "has 20000", "ends at byte", "get the file again"),
        files={"e.onnx": partial(_external, keep=20000)},
    ),
    Case(
        *("octavo quantize sub/e.onnx", 3),
        *("tensor 'w0'", "'../weights.bin'", "beside the model", "must lie"),
        files={"sub/e.onnx": _outside},
    ),
    Case(
        *("octavo quantize old.onnx", 3),
        *("old.onnx", "opset 6", "7 to 26", "Export it again"),
        files={"old.onnx": partial(_opset, version=6)},
    ),
    Case(
        *("octavo quantize new.onnx", 3),
        *("new.onnx", "opset 99", "7 to 26", "Export it again"),
        files={"new.onnx": partial(_opset, version=99)},
    ),
    Case(
        *("octavo quantize d.onnx", 3),
        *("MatMul 'layer1'", "'w1'", "which no node, input or initializer gives"),
        "export the model again",
        files={"d.onnx": _lost_weight},
    ),
    Case(
        *("octavo quantize d.onnx", 3),
        *("d.onnx", "has no nodes", "has one at least", "export the model again"),
        files={"d.onnx": _no_nodes},
    ),
    Case(
        *("octavo quantize d.onnx", 3),
        *("d.onnx", "does not say which opset", "opset (version of the standard operators)"),
        "export it again",
        files={"d.onnx": _no_opset},
    ),
    Case(
        *("octavo quantize d.onnx", 3),
        *("layer 'layer0' (MatMul)", "'w0'", "NaN or infinity", "exclude the layers that use it"),
        files={"d.onnx": _nan},
    ),
    Case(
        *("octavo quantize d.onnx", 3),
        *("d.onnx", "sparse initializer 's'", "dense ones", "export the model"),
        files={"d.onnx": _sparse},
    ),
    Case(
        *("octavo quantize portable.onnx", 3),
        *("portable.onnx is quantized already", "QuantizeLinear", "the float model"),
        "--allow-quantized",
    ),
    Case(
        *("octavo quantize bare.onnx", 4),
        *("bare.onnx", "no layer that holds weights", "--allow-nothing"),
        "Change the recipe or the selection",
    ),
    Case(
        *("octavo convert-target m.onnx --to native --json", 3),
        *("m.onnx", "holds no quantized layers", "quantize it first"),
        "octavo quantize --target native",
    ),
    Case(
        *("octavo convert-target native.onnx --to native", 3),
        *("native.onnx", "of target native already", "--to portable", "nothing to convert"),
    ),
    Case(
        "octavo convert-target gone.onnx --to native",
        3,
        "gone.onnx",
        "does not exist",
        ".onnx",
        _AN_ONNX_FILE,
    ),
    Case("octavo doctor gone.onnx", 3, "gone.onnx", "does not exist", ".onnx", _AN_ONNX_FILE),
    Case("octavo doctor .", 3, ".", "is a directory", ".onnx file", "give the .onnx file in it"),
    Case(
        *("octavo doctor text.onnx --json", 3),
        *("text.onnx", "is not an ONNX model", "or it is truncated"),
        "get the file again",
    ),
    Case("octavo bench m.onnx gone.onnx", 3, "gone.onnx", "does not exist", ".onnx", _AN_ONNX_FILE),
    Case(
        *("octavo bench text.onnx --json", 3),
        *("text.onnx", "(420 bytes)", _NO_MODEL),
        "get the file again",
    ),
)
