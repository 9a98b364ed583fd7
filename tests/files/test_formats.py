"""What is no ONNX model: said what it is, and what to do with it instead."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import octavo.torch
from octavo.errors import ModelError
from octavo.files.metadata import metadata
from octavo.files.wrong_file import misread
from octavo.onnx.read.load import load
from tests.cli_support import run

LINEAR = torch.nn.Linear(8, 8)


def _archive(*names: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "")

    return write


def _exported(path: Path) -> None:
    torch.export.save(torch.export.export(LINEAR, (torch.ones(1, 8),)), path)


def _old_checkpoint(path: Path) -> None:
    torch.save(LINEAR.state_dict(), path, _use_new_zipfile_serialization=False)


def _written(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def _frozen_graph(path: Path) -> None:
    path.write_bytes(b"\x0a\x10\x0a\x01x\x12\x0bPlaceholder")  # GraphDef: node {name, op}


def _checkpoint(path: Path) -> None:
    torch.save(LINEAR.state_dict(), path)


def _of_octavo(path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 64))
    octavo.torch.save(octavo.torch.quantize_dynamic(module), path)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
EXPORT = "torch.onnx.export"
FILES: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "checkpoint": ("model.pt", _checkpoint, "a PyTorch checkpoint", EXPORT),
    "another name": ("model.onnx", _checkpoint, "a PyTorch checkpoint", "mymodule:build"),
    "old checkpoint": ("m.bin", _old_checkpoint, "a PyTorch checkpoint", EXPORT),
    "by its name": ("m.pth", _written(b"hello"), "a PyTorch checkpoint", EXPORT),
    "TorchScript": ("m.pt", _archive("m/data.pkl", "m/constants.pkl"), "a TorchScript", EXPORT),
    "exported": ("m.pt2", _exported, "a PyTorch program", EXPORT),
    "safetensors": (
        "m.safetensors",
        lambda path: save_file(LINEAR.state_dict(), path),
        "a file of tensors",
        "octavo.torch.quantize_dynamic",
    ),
    "our own": ("m.safetensors", _of_octavo, "octavo.torch.save wrote", "octavo.torch.load"),
    "GGUF": ("m.gguf", _written(b"GGUF\x03\0\0\0" * 9), "a GGUF file", "octavo quantize"),
    "TensorFlow Lite": (
        "m.tflite",
        _written(b"\x1c\0\0\0TFL3" + bytes(99)),
        "a TensorFlow Lite model",
        "from_tensorflow",
    ),
    "frozen graph": ("m.pb", _frozen_graph, "a TensorFlow graph", "octavo.onnx.from_tensorflow"),
    "Keras": ("m.keras", _archive("model.weights.h5"), "a Keras model", "model.export(folder)"),
    "HDF5": ("m.h5", _written(b"\x89HDF\r\n\x1a\n" + bytes(99)), "a Keras model", "from_tensor"),
    "pickle": ("m.pkl", _written(pickle.dumps({"a": 1})), "a Python pickle", "skl2onnx"),
    "ORT": ("m.ort", _written(b"\x1c\0\0\0ORTM" + bytes(99)), ".ort format", "made from"),
    "OpenVINO": ("m.xml", _written(b"<net/>"), "an OpenVINO model", "made from"),
    "Core ML": ("m.mlmodel", _written(b"\x08\x05"), "a Core ML model", "made from"),
    "TensorRT": ("m.engine", _written(b"ptrt"), "a TensorRT engine", "made from"),
    "weights": ("m.onnx.data", _written(bytes(100)), "the weights of an .onnx file", "beside it"),
    "arrays": ("m.npz", lambda p: np.savez(p, x=np.ones(3)), "NumPy arrays", "the .onnx file"),
    "JSON": ("config.json", _written(json.dumps({"a": 1}).encode()), "a JSON file", ".onnx"),
    "zip": ("model.zip", _archive("model.onnx"), "a zip archive", "unpack it"),
    "gzip": ("m.onnx.gz", _written(gzip.compress(b"x" * 99)), "a compressed file", "unpack it"),
    "Git LFS": ("model.onnx", _written(LFS), "a pointer of Git LFS", "git lfs pull"),
    "web page": ("m.onnx", _written(b"\n<!DOCTYPE html><html></html>"), "a web page", "again"),
    "empty": ("model.onnx", _written(b""), "an empty file (0 bytes)", "again"),
}


@pytest.mark.parametrize(("name", "write", "what", "do"), FILES.values(), ids=FILES)
def test_a_file_of_another_format_is_called_what_it_is(
    tmp_path: Path, name: str, write: Callable[[Path], object], what: str, do: str
) -> None:
    path = tmp_path / name
    write(path)
    for read in (load, metadata):
        with pytest.raises(ModelError) as caught:
            read(path)
        said = str(caught.value)
        assert said.startswith(f"{path} is not an ONNX model but ")
        assert what in said and do in said


def _saved_model(path: Path) -> None:
    (path / "variables").mkdir()
    (path / "saved_model.pb").write_bytes(b"\x08\x01")


def _hub(path: Path) -> None:
    (path / "config.json").write_text("{}")
    save_file(LINEAR.state_dict(), path / "model.safetensors")


def _hub_with_models(path: Path) -> None:
    _hub(path)
    (path / "onnx").mkdir()
    for name in ("model", "model_fp16", "model_q4", "model_int8"):
        (path / "onnx" / f"{name}.onnx").write_bytes(b"")


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (
            lambda path: None,
            "holds nothing. Give the path of an .onnx file",
        ),
        (_saved_model, "a TensorFlow SavedModel"),
        (_hub, "of PyTorch weights, and not an ONNX model: name a function"),
        (_hub_with_models, "give the .onnx file in it: "),
    ],
    ids=["empty", "SavedModel", "weights", "models"],
)
def test_a_directory_is_called_what_it_is(
    tmp_path: Path, fill: Callable[[Path], None], words: str
) -> None:
    fill(tmp_path)
    for read in (load, metadata):
        with pytest.raises(ModelError, match=r"is a (directory|TensorFlow SavedModel)") as caught:
            read(tmp_path)
        assert words in str(caught.value)
    if fill is _hub_with_models:
        assert str(caught.value).endswith("model_int8.onnx and 1 more")


def test_what_is_of_no_known_format_keeps_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x0f\x01\x02\x03")
    said = misread(path, "because")
    assert said == (
        f"{path} is not an ONNX model, or it is truncated (4 bytes): because; get the file again"
    )


def test_commands_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _checkpoint(tmp_path / "model.pt")
    for command in ("quantize", "inspect", "doctor", "bench"):
        assert run(command, str(tmp_path / "model.pt")) == 3
        assert "is not an ONNX model but a PyTorch checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('{"quantization_config": {"quant_method": "octavo"}}', "after import octavo.torch"),
        ('{"quantization_config": {"quant_method": "gptq"}}', "PyTorch weights"),
        ('{"quantization_config": null}', "PyTorch weights"),
        ("[]", "PyTorch weights"),
    ],
)
def test_a_folder_that_octavo_quantized_says_who_opens_it(
    tmp_path: Path, config: str, said: str
) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert said in misread(tmp_path, "")
