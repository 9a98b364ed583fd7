"""What tests of the command line share: a report, a quantized file, the command and a process."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.variants import quiet
from octavo.cli import main
from octavo.recipe import PRESETS, Kind, Layer, LayerOutcome, Report, Scheme, Verification

LAYER = Layer("/fc/MatMul", Kind.LINEAR, "MatMul", (("w", (384, 384)),), 589_824, 147_456)
REPORT = Report(
    source="m.onnx",
    output="m.int8.onnx",
    recipe=PRESETS["int8"].to_dict(),
    target="portable",
    cpu="vnni",
    quant_format="qoperator",
    layers=(LayerOutcome(LAYER, True, Scheme().describe(), "", 589_824, 148_992, 40.0),),
    model_bytes_before=1_000_000,
    model_bytes_after=500_000,
    opset=17,
    min_onnxruntime="1.17",
    verification=Verification("passed", "made up", 1, 0.001, 0.001, 0.1),
    seconds=0.5,
)
ESCAPE = "\x1b"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    code = exit_.value.code
    return 0 if code is None else int(code)


def in_this_process(function: Callable[..., Any], **arguments: Any) -> Any:
    """In place of `octavo.onnx.bench.call`: ONNX Runtime's quantizer without its own process.

    That one is started by tests/test_cli_bench.py; it takes longer than what most tests are about.
    """
    with contextlib.redirect_stdout(io.StringIO()), quiet():
        return function(**arguments)


def int8_model(path: Path, **said: str) -> Path:
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["m", 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", 2])],
        [numpy_helper.from_array(np.ones((4, 2), np.int8), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {f"octavo.{key}": value for key, value in said.items()})
    onnx.save(model, path)
    return path


def environment(**more: str) -> dict[str, str]:
    """This one, with a terminal that has colours and a size of its own, and nothing to say more."""
    drop = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(Path(__file__).parents[1]), **more}


def piped(
    arguments: list[str], cwd: Path, stdout: int = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        check=False,
        cwd=cwd,
        env=environment(**env),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
