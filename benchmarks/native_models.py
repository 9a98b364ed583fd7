"""Target native: the sections of `python -m benchmarks.models --onnx` that are about it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import (
    native_classifiers,
    native_costs,
    native_minilm,
    native_rnn,
)
from benchmarks.sections import Rows
from benchmarks.speed import settings


def sections(folder: Path, quick: bool, processes: int) -> dict[str, Rows]:
    """Rows by title; files are made in `folder`."""
    chosen = list(settings(quick, processes))
    weights, times = (8, 1) if quick else (native_costs.WEIGHTS, 3)
    return {
        native_minilm.TITLE: partial(native_minilm.rows, folder, chosen, quick),
        "LSTM, target native": partial(native_rnn.rows, "LSTM", folder, chosen),
        "GRU, target native": partial(native_rnn.rows, "GRU", folder, chosen),
        "silero-vad, target native": partial(native_rnn.silero_rows, folder, chosen),
        **{
            f"{of.name}, target native": partial(native_classifiers.rows, of, folder, chosen, quick)
            for of in native_classifiers.CLASSIFIERS
        },
        "Opening a large model": partial(native_costs.rows, folder, weights, times),
    }
