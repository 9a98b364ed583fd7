"""TensorFlow models as ONNX files, through tf2onnx where that is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx

from octavo.core.packages import need
from octavo.errors import ModelError, OptionError, brief
from octavo.files.lookup import refuse_no_path
from octavo.graph.analysis.walk import graphs_of
from octavo.onnx.read.load import load
from octavo.onnx.read.normalize import write_out_erfc
from octavo.onnx.read.tensor_store import self_contained

OPSET = 17
NEEDED = ("tf2onnx", "tensorflow")


def from_tensorflow(
    path: str | Path,
    out_folder: str | Path,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Path:
    """Convert a SavedModel folder or a frozen graph (.pb) to `<its name>.onnx` in `out_folder`.

    `inputs` and `outputs` are names of tensors, such as `x:0`; a frozen graph needs them, a
    SavedModel has signatures. tf2onnx runs in a process of its own, so that TensorFlow's memory
    goes with it. Raises ModelError where tf2onnx or TensorFlow is missing, or the conversion fails,
    and OptionError for what is no path.
    """
    refuse_no_path(path, "path")
    refuse_no_path(out_folder, "out_folder")
    model = Path(path)
    command = [sys.executable, "-m", "tf2onnx.convert", "--opset", str(OPSET)]
    command += _source_arguments(model, inputs, outputs)
    end = "; or export it to ONNX elsewhere"
    need(f"{model} is a TensorFlow model and needs", *NEEDED, otherwise=end, load=False)
    out = Path(out_folder) / f"{model.absolute().stem}.onnx"
    for flag, names in (("--inputs", inputs), ("--outputs", outputs)):
        command += [flag, ",".join(_tensor(n) for n in names)] if names else []
    done = subprocess.run(
        [*command, "--output", str(out)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or not out.is_file():
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = brief(Exception(lines[-1] if lines else f"exit code {done.returncode}"))
        raise ModelError(f"{model}: tf2onnx cannot convert it: {reason}")
    _make_standard(model, out)
    return out


def _make_standard(model: Path, out: Path) -> None:
    """Mends what tf2onnx left in TensorFlow's own operators. Raises ModelError where it cannot.

    It hands on operators that it does not know as nodes of the same name, says so in its log, and
    calls that a success.
    """
    converted = load(out).model
    if write_out_erfc(converted):
        out.write_bytes(self_contained(converted).SerializeToString())
    nodes = (node for graph in graphs_of(converted) for node in graph)
    unknown = {n.op_type for n in nodes if not n.domain and not onnx.defs.has(n.op_type)}
    if unknown:
        out.unlink()
        raise ModelError(
            f"{model}: tf2onnx has no ONNX form of the TensorFlow operators "
            f"{', '.join(sorted(unknown))}; write the model without them"
        )


def _source_arguments(
    model: Path, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> list[str]:
    if model.is_dir():
        if not (model / "saved_model.pb").is_file():
            raise ModelError(
                f"{model} holds no saved_model.pb; give a SavedModel folder or a frozen graph (.pb)"
            )
        return ["--saved-model", str(model)]
    if not model.is_file():
        raise ModelError(
            f"{model} does not exist; give a SavedModel folder or a frozen graph (.pb)"
        )
    if model.suffix != ".pb":
        raise ModelError(
            f"{model} is no TensorFlow model: its suffix is {model.suffix!r}; give a SavedModel "
            "folder or a frozen graph (.pb)"
        )
    if not inputs or not outputs:
        raise OptionError(
            f"{model} is a frozen graph, which does not say what goes in and out: give the names "
            "of its inputs and outputs, such as inputs=['x:0'] (model.inputs, model.outputs)"
        )
    return ["--graphdef", str(model)]


def _tensor(name: str) -> str:
    """Return `x:0` for `x`: Neural Compressor's files name nodes, tf2onnx wants tensors."""
    return name if ":" in name else f"{name}:0"
