"""The folder in which cases run: small models, data, modules and configurations."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import octavo.onnx
from benchmarks.error_cases import torch_files
from benchmarks.error_cases.case import Case
from benchmarks.relu_chain import mlp

MODULE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.query = nn.Linear(8, width)
        self.value = nn.Linear(width, 4)

    def forward(self, x):
        return self.value(self.query(x).relu())


def make(): return Net()
def wide(): return Net(32)
def broken(): raise RuntimeError("no weights here")
def three(): return 3
def bare(): return nn.Sequential(nn.ReLU())

def nan():
    model = Net()
    model.query.weight.data[0, 0] = float("nan")
    return model

number, ready = 3, Net()
"""
EVALUATE = """\
def accuracy(session): return 0.9
def fails(session): raise ValueError("the labels are gone")
def not_finite(session): return float("nan")
def no_number(session): return "high"
def unnamed(session): return {"f1": 0.9}
def slow(session):
    import pathlib, time
    pathlib.Path("begun").touch()
    time.sleep(1)
    return 0.9

def float_only(session):
    said = session.get_modelmeta().custom_metadata_map
    return float("octavo.version" not in said)

number = 3
"""
CONF = """\
model:
  name: m
  framework: onnxrt_integerops
quantization:
  approach: post_training_dynamic_quant
tuning:
  accuracy_criterion:
    relative: 0.01
"""


def write(folder: Path) -> None:
    """Writes what all cases share: models, what both targets make of one, data, modules."""
    model = mlp(2, 32)
    onnx.save(model, folder / "m.onnx")
    for target in ("portable", "native"):
        octavo.onnx.quantize_dynamic(model, folder / f"{target}.onnx", target=target, verify=False)
    relu = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([relu], "g", model.graph.input, model.graph.output)
    bare = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    onnx.save(bare, folder / "bare.onnx")
    (folder / "text.onnx").write_text("This is not a model.\n" * 20)
    (folder / "cut.onnx").write_bytes((folder / "m.onnx").read_bytes()[:5000])
    np.savez(folder / "data.npz", x=np.ones((4, 32), np.float32))
    (folder / "models.py").write_text(MODULE)
    (folder / "accuracies.py").write_text(EVALUATE)
    (folder / "conf.yaml").write_text(CONF)
    torch_files.save(folder / "q.safetensors")


@contextmanager
def filled(template: Path, place: Path, case: Case) -> Iterator[Path]:
    """A folder with the files of `template` and of the case; it is removed at the end."""
    shutil.copytree(template, place)
    for name, content in case.files.items():
        path = place / name
        path.parent.mkdir(exist_ok=True, parents=True)
        if callable(content):
            content(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def snapshot(folder: Path) -> dict[str, str]:
    """Every file in `folder`, hidden ones too, with the hash of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differences(
    before: dict[str, str], after: dict[str, str], kept: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of files that appeared, but for those that may, and of files that are not the same."""
    left = [n for n in after if n not in before and not any(fnmatch(n, glob) for glob in kept)]
    changed = [n for n, digest in before.items() if after.get(n) != digest]
    return tuple(left), tuple(changed)
