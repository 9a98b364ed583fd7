"""The memory that a model takes, measured in a process that does nothing else."""

from __future__ import annotations

import contextlib
from pathlib import Path

from octavo.errors import ModelError
from octavo.onnx.custom_ops import CustomOps, libraries_in_force
from octavo.onnx.tuning.child import ChildError, call
from octavo.onnx.tuning.feed_files import read_feed, write_feed
from octavo.onnx.tuning.scratch import Scratch
from octavo.recipe.target import Feed

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def peak_memory(model: Path, feed: Feed, threads: int | None) -> int:
    """Bytes that opening the file at `model` and one run add to a fresh process, at their peak.

    Mapped files count as far as they are read. Raises ModelError where the model does not run, or
    the system is not Linux, and OptionError where session options are in force.
    """
    if not _STATUS.is_file():
        raise ModelError("peak memory is read from /proc, which only Linux has")
    with Scratch() as place:
        inputs = place.folder / "feed.npz"
        write_feed(inputs, feed)
        try:
            found = call(
                measure,
                model=str(model),
                inputs=str(inputs),
                threads=threads,
                custom_ops=libraries_in_force(),
            )
        except ChildError as error:
            raise ModelError(f"{model} does not run to have its memory measured: {error}") from None
    return int(found)


def measure(model: str, inputs: str, threads: int | None, custom_ops: list[str]) -> int:
    """Runs in the fresh process: ONNX Runtime and the inputs are there before it begins."""
    from octavo.onnx.tuning.running import opened

    feed, operators = read_feed(Path(inputs)), CustomOps.of(custom_ops)
    with contextlib.suppress(OSError):  # a process is allowed to, but perhaps not in a container
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    before = _kilobytes("VmRSS")
    with operators.in_force():
        opened(model, threads).run(None, feed)
    return max(0, _kilobytes("VmHWM") - before) * 1024


def _kilobytes(field: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise ModelError(f"{_STATUS} has no {field}")
