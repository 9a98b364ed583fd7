"""Models on disk and in sessions: a place that goes once they are open, how tuning runs them, and
the memory that they take."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from google.protobuf.message import EncodeError

from octavo.core.fresh_process import ChildError, added_at_peak, call, require_memory_figures
from octavo.errors import (
    InputDataError,
    ModelError,
    OptionError,
    OutputError,
    did_you_mean,
    listed,
)
from octavo.files.staging import output_error
from octavo.ir import DOMAIN
from octavo.onnx.custom_ops import CustomOps, libraries_in_force, session_options
from octavo.onnx.read.map_types import as_array
from octavo.onnx.session import open_as
from octavo.results.report import Report
from octavo.results.target import Built, Feed

_DTYPES = {
    "tensor(bool)": "bool",
    "tensor(double)": "float64",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
}


# docs/notes/checking.md: "Temporary models are unlinked once they are open"
class Scratch:
    """A place for one model, in the folder that TMPDIR names. Use as a context manager.

    ONNX Runtime has read or mapped a model's files once a session is open: they can go then.
    """

    def __init__(self) -> None:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="octavo-"))
        except OSError as error:
            raise output_error(error, Path(tempfile.gettempdir())) from error
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def out(self) -> Path:
        """Return the path by which messages name the place."""
        return self.folder

    @property
    def model(self) -> Path:
        """Return the path of the model file."""
        return self.folder / "model.onnx"

    @property
    def data(self) -> Path:
        """Return the path of the data file, for a model that needs one."""
        return self.folder / "model.onnx.data"

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._remove()
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise output_error(error, self.folder) from error


class ModelSession(ort.InferenceSession):  # type: ignore[misc]
    """A session that also has what accuracy functions of Neural Compressor ask of a ModelProto:
    its fields, such as `graph`, and `SerializeToString()`.

    `proto` makes the model again, when that is asked for.
    """

    proto: Callable[[], onnx.ModelProto] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in onnx.ModelProto.DESCRIPTOR.fields_by_name and self.proto is not None:
            return getattr(self.proto(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def SerializeToString(self) -> bytes:  # noqa: N802 - as ModelProto has it
        """Return the model as bytes, which `onnxruntime.InferenceSession` opens.

        Raises OptionError where it does not: for Octavo's own operators, and above 2 GB.
        """
        assert self.proto is not None
        what = "this is an open session: call model.run(None, inputs)"
        model = self.proto()
        if any(opset.domain == DOMAIN for opset in model.opset_import):
            raise OptionError(
                "onnxruntime.InferenceSession alone cannot open a model of target native, and "
                f"{what}, or search without target native"
            )
        try:
            return bytes(model.SerializeToString())
        except (EncodeError, ValueError):
            raise OptionError(f"a model of 2 GB or more has no bytes, and {what}") from None


def open_session(path: str | os.PathLike[str], threads: int | None) -> ModelSession:
    """Open a session on a file, float or quantized. None leaves the threads to ONNX Runtime.

    Raises ModelError.
    """
    settings = {} if threads is None else {"intra_op_num_threads": threads}
    with session_options(**settings) as options:
        return open_as(ModelSession, path, sess_options=options)


def built_session(runner: ort.InferenceSession, size: int, report: Report | None = None) -> Built:
    """Wrap `runner` as tuning takes it, outputs that are maps as arrays; `size` is in bytes."""

    types = {given.name: _DTYPES.get(given.type) for given in runner.get_inputs()}

    def run(feed: Feed) -> list[Any]:
        fed = {
            name: _as(types.get(name), value) for name, value in feed_by_name(feed, types).items()
        }
        try:
            return [as_array(output) for output in runner.run(None, fed)]
        except Exception as error:
            for given in runner.get_inputs():
                if problem := _misfit(given, fed.get(given.name)):
                    raise InputDataError(problem) from error
            raise

    return Built(runner, run, size, report)


def feed_by_name(feed: Feed, inputs: Iterable[str]) -> dict[str, Any]:
    """Return `feed` by the names of `inputs`, in whose order unnamed values ("0", "1", ..) come.

    Raises InputDataError for more values than inputs, and for names that are none.
    """
    names = [*inputs]
    if not feed or any(not key.isdigit() or key in names for key in feed):
        for key in feed:
            if key not in names:
                hint = did_you_mean(key, names) + _vector(key, names)
                raise InputDataError(f"the model has no input {key!r}.{hint}")
        return dict(feed)
    if len(feed) > len(names):
        raise InputDataError(
            f"{len(feed)} inputs without names are given; the model takes {len(names)}: "
            f"{listed(names)}"
        )
    return {names[int(key)]: value for key, value in feed.items()}


def _vector(key: str, names: Sequence[str]) -> str:
    """Return a hint on a key such as `x_0`, where there is an input `x`, else ""."""
    name = re.sub(r"[_.]?\[?\d+\]?$", "", key)
    if name == key or name not in names:
        return ""
    return f" A vector is one value, such as a column {name} of lists: [0.5, 1.0]"


def _misfit(given: Any, value: Any) -> str:
    """Say how a value that the model refused differs from its input `given`; "" where unknown."""
    array = np.asarray(value)
    if value is not None and array.ndim != len(given.shape):
        return (
            f"input {given.name!r} has the shape {list(array.shape)}, and the model takes "
            f"{given.shape}: a run has all axes, the batch first; a sample a line of a .jsonl has "
            "one label"
        )
    if array.dtype.kind in "OUS" and given.type in _DTYPES:
        return f"input {given.name!r} holds texts, and the model takes {given.type}: give numbers"
    return ""


def _as(dtype: str | None, value: Any) -> Any:
    """Numbers in the input's own type: files and loaders give what they have (int64, float64)."""
    if dtype is None or getattr(value, "dtype", None) is None or value.dtype == dtype:
        return value
    return value.astype(dtype) if value.dtype.kind in "biuf" else value


def total_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(p.stat().st_size for p in folder.iterdir() if p.is_file())


def peak_memory(model: Path, feed: Feed, threads: int | None) -> int:
    """Bytes that opening the file at `model` and one run add to a fresh process, at their peak.

    Raises ModelError where the model does not run, or the system is not Linux, and OptionError
    where session options are in force.
    """
    require_memory_figures("peak memory is read from /proc, which only Linux has")
    custom_ops = libraries_in_force()
    try:
        return int(
            call(measure, model=model, feed=dict(feed), threads=threads, custom_ops=custom_ops)
        )
    except ChildError as error:
        raise ModelError(f"{model} does not run to have its memory measured: {error}") from None


def measure(model: Path, feed: Feed, threads: int | None, custom_ops: list[str]) -> int:
    """Return the bytes that opening and running `model` adds at peak, in the fresh process.

    ONNX Runtime and the inputs are there before the measurement begins.
    """
    with CustomOps.of(custom_ops).in_force():
        return added_at_peak(lambda: open_session(model, threads).run(None, feed))
