"""silero-vad, a voice activity detector with an LSTM, on speech with known pauses.

``forms()`` are one trained network in the shapes that a quantizer has to find its weights in; all
have six Conv besides the recurrent part. ``scores(session)`` measures any of them, float or
quantized, frame by frame: each frame is 512 new samples at 16 kHz behind the 64 samples before, and
the state goes from frame to frame.
"""

from __future__ import annotations

import wave
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Feed, Float32, Session

RATE = 16_000  # Hz
FRAME, CONTEXT = 512, 64  # samples
UNITS = 128
THRESHOLD = 0.5  # the package's default

_SECONDS = 300
_PAUSE = (2.0, 4.0)  # seconds between two prompts
_SNR = 5.0  # dB
_SHORTEST = 1.0  # seconds; shorter prompts are single letters and digits
_QUIET = 0.02  # of the speech's root mean square: a frame below holds no speech
_HOLD = 6  # frames; a shorter gap (a stop consonant) belongs to the speech around it
_BLOCK = 512  # frames of one call of the sequence form, as in the package


def forms() -> dict[str, Path]:
    """The three forms in which the LSTM's weights occur.

    ``initializers``: LSTM in the main graph, W, R, B are initializers; takes a sequence of frames.
    ``slice_concat``: LSTM in the main graph; Slice, Concat, Unsqueeze make W, R, B from Constants.
    ``inside_if``: the same chain inside nested If, the Constants inside the outer If's branches,
    one branch for each sampling rate.
    """
    return {
        "initializers": _data() / "silero_vad_16k_sequence.onnx",
        "slice_concat": _data() / "silero_vad_openvino_16k.onnx",
        "inside_if": _data() / "silero_vad.onnx",
    }


def more_forms() -> dict[str, Path]:
    """Two further forms of the same network.

    ``outer_scope``: as ``inside_if``, but the weights are initializers of the main graph.
    ``gemm``: the cell as Gemm (transB), Sigmoid and Tanh inside If, weights in the main graph.
    """
    return {
        "outer_scope": _data() / "silero_vad_16k_op15.onnx",
        "gemm": _data() / "silero_vad_op18_ifless.onnx",
    }


def _data() -> Path:
    return fetch("silero-vad") / "silero_vad" / "data"


@dataclass(frozen=True)
class Recording:
    """Noisy speech and what is true of it.

    ``frames``: float32 ``[n, 576]`` in -1..1, each the 64 samples before and 512 new ones;
    ``speech``: bool ``[n]``.
    """

    frames: Float32
    speech: NDArray[np.bool_]


@lru_cache
def recording() -> Recording:
    """Five minutes of telephone prompts, 2 to 4 seconds of pause between, white noise 5 dB below.

    The label comes from the clean signal's energy, before the noise is added.
    """
    random = np.random.RandomState(0)
    clean = _prompts_with_pauses(random)
    blocks = clean.reshape(-1, FRAME)
    energy = np.sqrt((blocks**2).mean(axis=1))
    level = float(np.sqrt((clean[clean != 0] ** 2).mean()))
    speech = _fill_short_gaps(energy > _QUIET * level)
    noise = random.standard_normal(clean.size) * level * 10 ** (-_SNR / 20)
    noisy = (clean + noise).astype(np.float32).reshape(-1, FRAME)
    before = np.concatenate([np.zeros((1, CONTEXT), np.float32), noisy[:-1, -CONTEXT:]])
    return Recording(np.concatenate([before, noisy], axis=1), speech)


def _prompts_with_pauses(random: np.random.RandomState) -> NDArray[np.float64]:
    """Clean signal at 16 kHz, a whole number of frames."""
    root = fetch("asterisk-core-sounds-en-wav")
    paths = sorted(path for path in root.rglob("*.wav") if path.parent.name != "silence")
    parts: list[NDArray[np.float64]] = []
    total = 0
    for index in random.permutation(len(paths)):
        prompt = read_sound(paths[index])
        if len(prompt) < _SHORTEST * RATE:
            continue
        pause = np.zeros(int(random.uniform(*_PAUSE) * RATE))
        parts += [pause, prompt]
        total += len(pause) + len(prompt)
        if total > _SECONDS * RATE:
            break
    clean = np.concatenate(parts)
    return clean[: len(clean) // FRAME * FRAME]


def read_sound(path: Path) -> NDArray[np.float64]:
    """Samples of a mono 16-bit file in -1..1 at 16 kHz."""
    from scipy.signal import resample_poly

    with wave.open(str(path)) as sound:
        if (sound.getnchannels(), sound.getsampwidth()) != (1, 2):
            raise ValueError(f"{path} is not mono with 16 bits a sample")
        rate = sound.getframerate()
        samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2") / 32768.0
    return np.asarray(resample_poly(samples, RATE, rate), dtype=np.float64)


def _fill_short_gaps(speech: NDArray[np.bool_]) -> NDArray[np.bool_]:
    filled: NDArray[np.bool_] = speech.copy()
    where = np.flatnonzero(speech)
    for last, following in pairwise(where):
        if following - last <= _HOLD:
            filled[last:following] = True
    return filled


def frame_probabilities(session: Session) -> Float32:
    """Probability of speech, float32 ``[n]``, for each frame of ``recording()``.

    Works for every form: the session's input names tell which one it is.
    """
    names = {value.name for value in session.get_inputs()}
    frames = recording().frames
    if names == {"input", "h", "c"}:
        return _by_sequence(session, frames)
    if names in ({"input", "state"}, {"input", "state", "sr"}):
        return _by_frame(session, frames, with_rate="sr" in names)
    raise ValueError(f"not a silero-vad model: its inputs are {sorted(names)}")


def _by_sequence(session: Session, frames: Float32) -> Float32:
    hidden = cell = np.zeros((1, 1, UNITS), np.float32)
    found = []
    for start in range(0, len(frames), _BLOCK):
        feed = {"input": frames[start : start + _BLOCK], "h": hidden, "c": cell}
        probabilities, hidden, cell = session.run(["speech_probs", "hn", "cn"], feed)
        found.append(probabilities)
    return np.concatenate(found)


def _by_frame(session: Session, frames: Float32, with_rate: bool) -> Float32:
    state = np.zeros((2, 1, UNITS), np.float32)
    rate = {"sr": np.array(RATE, np.int64)} if with_rate else {}
    found = np.empty(len(frames), np.float32)
    for index in range(len(frames)):
        feed: Feed = {"input": frames[index : index + 1], "state": state, **rate}
        probability, state = session.run(["output", "stateN"], feed)
        found[index] = probability.item()
    return found


@dataclass(frozen=True)
class Scores:
    """Area under the ROC curve over the frames, and accuracy at the package's threshold of 0.5."""

    auc: float
    accuracy: float


def scores(session: Session) -> Scores:
    """Both figures from one pass."""
    from sklearn.metrics import roc_auc_score

    speech = recording().speech
    found = frame_probabilities(session)
    accuracy = float(((found > THRESHOLD) == speech).mean())
    return Scores(float(roc_auc_score(speech, found)), accuracy)


def frame_auc(session: Session) -> float:
    """Area under the ROC curve of speech against pause over the frames."""
    return scores(session).auc


def frame_accuracy(session: Session) -> float:
    """Share of the frames on the right side of the package's threshold."""
    return scores(session).accuracy
