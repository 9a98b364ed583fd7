"""Runs the command line and Python source in this process, in a folder with small models."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import octavo.onnx
from tests.golden.facts import cleaned
from tests.golden.onnx_linear import mlp

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


def make():
    torch.manual_seed(0)
    return Net()

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
IMPORTS = {
    "octavo.onnx.": "import octavo.onnx",
    "octavo.torch.": "import octavo.torch",
    "octavo.tune.": "import octavo.tune",
    "octavo.measure.": "import octavo.measure",
    "octavo.recipe.": "import octavo.recipe",
    "torch.": "import torch",
    "np.": "import numpy as np",
    "models.": "import models",
}


def fill(folder: Path) -> None:
    """Models, what both targets make of one, data, modules, a configuration."""
    model, _ = mlp(2, 32)
    onnx.save(model, folder / "m.onnx")
    for target in ("portable", "native"):
        octavo.onnx.quantize_dynamic(model, folder / f"{target}.onnx", target=target, verify=False)
    relu = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([relu], "g", model.graph.input, model.graph.output)
    onnx.save(
        helper.make_model(graph, opset_imports=model.opset_import, ir_version=8),
        folder / "bare.onnx",
    )
    (folder / "text.onnx").write_text("This is not a model.\n" * 20)
    (folder / "cut.onnx").write_bytes((folder / "m.onnx").read_bytes()[:5000])
    np.savez(folder / "data.npz", x=np.ones((4, 32), np.float32))
    (folder / "models.py").write_text(MODULE)
    (folder / "accuracies.py").write_text(EVALUATE)
    (folder / "conf.yaml").write_text(CONF)
    with within(folder):
        octavo_torch().save(octavo_torch().quantize_dynamic(_models().make()), "q.safetensors")


def octavo_torch():  # type: ignore[no-untyped-def]
    """The front end, imported when it is needed."""
    import octavo.torch

    return octavo.torch


def _models():  # type: ignore[no-untyped-def]
    import importlib

    return importlib.import_module("models")


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """`folder` is the current one; modules that are found in it are forgotten at the end."""
    was, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(was)
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


def command(line: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a line that begins with `octavo`."""
    from octavo.cli import main

    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(shlex.split(line)[1:])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, tidy(out.getvalue(), folder), tidy(err.getvalue(), folder)


def call(source: str, folder: Path) -> str:
    """What Python source raises."""
    names = [line for name, line in IMPORTS.items() if re.search(rf"(?<![\w.]){name}", source)]
    try:
        exec("\n".join([*names, source]), {})  # lines of this folder
    except Exception as error:  # noqa: BLE001  # what it is, is the fact
        module = type(error).__module__
        return tidy(f"{module}.{type(error).__name__}: {error}", folder)
    return "nothing raised"


def tidy(text: str, folder: Path) -> str:
    """Without places of this machine, times, and the widths of tables."""
    text = text.replace(str(folder), "FOLDER").replace(sys.executable, "python")
    text = re.sub(r"/[^\s\"':]*/(?=octavo/|site-packages/|lib/python)", ".../", cleaned(text))
    text = re.sub(r"[─━═]{3,}", "---", text)
    text = re.sub(r"(Timed in turns for .*?) on .*?, kernels \w+\.", r"\1 on MACHINE.", text)
    return "\n".join(re.sub(r" {2,}", "  ", line.rstrip()) for line in text.strip().splitlines())
