"""DNSMOS, which scores speech (signal, background, overall; 1 to 5), on telephone prompts.

Its first two convolutions are the Fourier transform of the signal, cut into frames before: what
integers get wrong there is in every score, above all in what is quiet.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Float32, Session
from benchmarks.zoo.silero import read_sound

SAMPLES = 144_160  # 9.01 s at 16 kHz
LEAST = 48_000  # samples of a prompt; shorter ones are words


def model_path() -> Path:
    """The float32 file: ``input_1`` float32 ``[n, 144160]`` in -1..1 -> scores ``[n, 3]``."""
    return fetch("speechmos") / "speechmos" / "dnsmos_models" / "sig_bak_ovr.onnx"


def clips(count: int = 12) -> Float32:
    """Clean speech, float32 ``[count, 144160]``: prompts of 3 s and more, over and over again."""
    root = fetch("asterisk-core-sounds-en-wav")
    found: list[Float32] = []
    for path in sorted(root.rglob("*.wav")):
        if len(found) == count:
            break
        sound = read_sound(path)
        if len(sound) >= LEAST and path.parent.name != "silence":
            found.append(np.resize(sound, SAMPLES).astype(np.float32))
    return np.stack(found)


def scores(session: Session, count: int = 12) -> Float32:
    """What the model says of `clips`, ``[count, 3]``; the package maps that to opinion scores."""
    return np.concatenate([session.run(None, {"input_1": c[None]})[0] for c in clips(count)])


def mean_error(quantized: Session, floating: Session, count: int = 12) -> float:
    """The mean absolute difference of the scores."""
    return float(np.abs(scores(quantized, count) - scores(floating, count)).mean())
