"""The memory that a model takes, measured in a process that does nothing else."""

from __future__ import annotations

from pathlib import Path

from octavo.core.fresh_process import ChildError, added_at_peak, call, require_memory_figures
from octavo.errors import ModelError
from octavo.onnx.custom_ops import CustomOps, libraries_in_force
from octavo.onnx.tuning.running import opened
from octavo.recipe.target import Feed


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
    """Runs in the fresh process: ONNX Runtime and the inputs are there before it begins."""
    with CustomOps.of(custom_ops).in_force():
        return added_at_peak(lambda: opened(model, threads).run(None, feed))
