"""Opens models for tuning, and runs them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnxruntime as ort

from octavo.onnx.session import session
from octavo.recipe import Report
from octavo.recipe.target import Built, Feed


def options(threads: int | None) -> ort.SessionOptions:
    """Session options with that many threads; None leaves them to ONNX Runtime.

    What ONNX Runtime would print, such as why a run failed, is in its exceptions too.
    """
    made = ort.SessionOptions()
    made.log_severity_level = 4
    if threads is not None:
        made.intra_op_num_threads = threads
    return made


def opened(path: str | os.PathLike[str], threads: int | None) -> ort.InferenceSession:
    """A session on a file, float or quantized. Raises ModelError."""
    return session(path, sess_options=options(threads))


def built(runner: ort.InferenceSession, size: int, report: Report | None = None) -> Built:
    """`runner` as tuning takes it; `size` in bytes."""

    def run(feed: Feed) -> list[Any]:
        return list(runner.run(None, dict(feed)))

    return Built(runner, run, size, report)


def files_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(p.stat().st_size for p in folder.iterdir() if p.is_file())
