"""Recurrent models in target native: an LSTM and a GRU of two layers each, and silero-vad."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import held, native_speed, onnx_layers, variants
from benchmarks.peers_rnn import Kind, Rnn
from benchmarks.results import Row, say
from benchmarks.speed import Asked, Setting
from benchmarks.variants import FLOAT, NATIVE, QD, Made
from benchmarks.zoo import silero
from benchmarks.zoo.sessions import Feed, open_session

STEPS, BATCHES, HIDDEN = 50, (1, 16), 256
LEAST_LSTM, LEAST_GRU = 1.25, 4.0
LEAST_AUC = 0.990
NEVER_SLOWER = 1.0
BLOCK = 512  # frames of one call of silero-vad's sequence form, as in its package
ASKED: Mapping[Kind, tuple[Asked, ...]] = {
    "LSTM": (Asked(NATIVE, QD, each=LEAST_LSTM), Asked(NATIVE, FLOAT)),
    "GRU": (Asked(NATIVE, FLOAT, each=LEAST_GRU),),
}
"""ONNX Runtime's quantizer makes a DynamicQuantizeLSTM; it has no GRU."""


def model(kind: Kind, folder: Path) -> Path:
    """Two bidirectional layers of 256, time first: `x` [steps, batch, 256] to `y` [.., 512]."""
    rnn = Rnn(kind, HIDDEN, layers=2, bidirectional=True)
    path = folder / f"{kind}.onnx"
    path.write_bytes(onnx_layers.recurrent(kind, rnn.weights(), HIDDEN, rnn.layers, rnn.ways))
    return path


def feed(steps: int, batch: int) -> Feed:
    """Of `model`, uniform in -1..1."""
    random = np.random.default_rng(steps * 1000 + batch)
    return {"x": random.uniform(-1, 1, (steps, batch, HIDDEN)).astype(np.float32)}


def rows(kind: Kind, folder: Path, settings: Sequence[Setting]) -> Iterator[Row]:
    """Error and speed of one of the two models."""
    title = f"{kind}, 2 layers, bidirectional, H {HIDDEN}, {STEPS} steps, target native"
    say(title)
    names = dict.fromkeys(name for a in ASKED[kind] for name in (FLOAT, a.over, a.of))
    made = variants.every(names, model(kind, folder), folder)
    feeds = {f"batch {batch}": feed(STEPS, batch) for batch in BATCHES}
    yield from _error_rows(made, feeds, f"{title}: error")
    yield from native_speed.rows(title, made, feeds, lambda threads: ASKED[kind], settings)


def _error_rows(made: Made, feeds: Mapping[str, Feed], section: str) -> Iterator[Row]:
    """Of all outputs, as a share of their root mean square: for information."""
    exact = {cell: open_session(made.files[FLOAT]).run(None, f)[0] for cell, f in feeds.items()}
    for name, path in made.files.items():
        if name == FLOAT:
            continue
        for cell, given in feeds.items():
            error = open_session(path).run(None, given)[0] - exact[cell]
            share = float(np.linalg.norm(error) / np.linalg.norm(exact[cell]))
            yield Row(f"{name}, {cell}: relative to float", share, section=section)


def silero_rows(folder: Path, settings: Sequence[Setting]) -> Iterator[Row]:
    """silero-vad's sequence form: labelled accuracy, what is held as int8, and speed."""
    title = "silero-vad, sequence form, target native"
    say(title)
    made = variants.every((FLOAT, NATIVE), silero.forms()["initializers"], folder)
    exact = silero.scores(open_session(made.files[FLOAT]))
    found = silero.Scores(math.nan, math.nan)
    if NATIVE in made.files:
        found = silero.scores(open_session(made.files[NATIVE]))
    yield Row(
        "area under the ROC curve over frames",
        found.auc,
        at_least=LEAST_AUC,
        section=title,
        note=made.refused.get(NATIVE, "")
        or f"float {exact.auc:.4f}; accuracy {found.accuracy:.4f}, float {exact.accuracy:.4f}",
    )
    if NATIVE in made.reports:
        yield held.share_row(made.reports[NATIVE], None, title)
    state = np.zeros((1, 1, silero.UNITS), np.float32)
    frames = silero.recording().frames[:BLOCK]
    feeds = {f"{BLOCK} frames": {"input": frames, "h": state, "c": state}}
    asked = (Asked(NATIVE, FLOAT, each=NEVER_SLOWER),)
    yield from native_speed.rows(title, made, feeds, lambda threads: asked, settings)
