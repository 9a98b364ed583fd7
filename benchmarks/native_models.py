"""Models in target native, beside ONNX Runtime's and OpenVINO's: error, accuracy, size, speed.

They are sections of `python -m benchmarks.models --onnx`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import latency, onnx_layers, opening, rows, variants
from benchmarks.latency import SHAPES, Setting
from benchmarks.peers_rnn import Kind, Rnn
from benchmarks.results import Row, say
from benchmarks.rows import Asked
from benchmarks.runner import Rows
from benchmarks.variants import FLOAT, NATIVE, NATIVE_ACCURATE, OPENVINO, QD, QD_CHANNEL, Made
from benchmarks.zoo import fashion_mnist, magika, minilm, nano_ocr, silero
from benchmarks.zoo.sessions import Feed, Session, open_session

GROUPS = (128, 32)  # of OpenVINO's dynamic quantization
MOST_ERROR = {NATIVE: 0.0014, NATIVE_ACCURATE: 0.0006}  # 1 - cosine of hidden states
STEPS, BATCHES, HIDDEN = 50, (1, 16), 256
LEAST_AUC, LEAST_SHARE, MARGIN = 0.990, 0.90, 0.005
BLOCK = 512  # frames of one call of silero-vad's sequence form, as in its package
# ONNX Runtime's quantizer makes a DynamicQuantizeLSTM; it has no GRU.
RECURRENT: Mapping[Kind, tuple[Asked, ...]] = {
    "LSTM": (Asked(NATIVE, QD, each=1.25), Asked(NATIVE, FLOAT)),
    "GRU": (Asked(NATIVE, FLOAT, each=4.0),),
}


@dataclass(frozen=True)
class Model:
    """What is measured of a model: its file (in a folder), the variants of it, feeds by label, what
    is asked of the speed on so many threads, and the rows of what was made of it."""

    title: str
    path: Callable[[Path], Path]
    names: tuple[str, ...]
    feeds: Callable[[bool], Mapping[str, Feed]]
    asked: Callable[[int], Sequence[Asked]]
    rows: Callable[[str, Made, bool], Iterator[Row]]


def model_rows(
    model: Model, folder: Path, settings: Sequence[Setting], quick: bool
) -> Iterator[Row]:
    """What was made of it, then how fast that is."""
    title = f"{model.title}, target native"
    say(title)
    made = variants.every(model.names, model.path(folder), folder)
    yield from model.rows(title, made, quick)
    yield from latency.speed_rows(title, made, model.feeds(quick), model.asked, settings)


def minilm_asked(threads: int) -> tuple[Asked, ...]:
    """Over the shapes; over float only of one thread."""
    return (
        Asked(NATIVE, FLOAT, mean=3.2 if threads == 1 else None),
        Asked(NATIVE, QD_CHANNEL, mean=1.35, each=1.0),
        Asked(NATIVE, OPENVINO, mean=1.25, each=1.0),
        Asked(NATIVE_ACCURATE, NATIVE, mean=0.85),
    )


def minilm_rows(title: str, made: Made, quick: bool) -> Iterator[Row]:
    """Error of the hidden states of the 50 Lee documents, and sizes."""
    section = f"{title}: error, 1 - cosine of hidden states"
    exact, names = open_session(made.files[FLOAT]), (QD_CHANNEL, NATIVE, NATIVE_ACCURATE)
    sessions = {name: open_session(made.files[name]) for name in names if name in made.files}
    yield from rows.error_rows(exact, sessions, names, "", MOST_ERROR, made.refused, section)
    for group in GROUPS:
        peers: dict[str, Session] = {}
        if OPENVINO in made.files:
            from benchmarks.peers_openvino import OpenVinoSession

            peers[OPENVINO] = OpenVinoSession(made.files[OPENVINO], group=group)
        what = f", groups of {group}"
        yield from rows.error_rows(exact, peers, (OPENVINO,), what, {}, made.refused, section)
    section = f"{title}: size"
    for name, path in made.files.items():
        parts = (path, path.with_suffix(".bin")) if path.suffix == ".xml" else (path,)
        size = sum(part.stat().st_size for part in parts)
        yield Row(f"{name}: file", size / 1e6, "MB", section=section)
    for name, report in made.reports.items():
        yield rows.table_row(report, f"{name}: embedding table", True, section)


def recurrent(kind: Kind, folder: Path) -> Path:
    """Two bidirectional layers of 256, time first: `x` [steps, batch, 256] to `y` [.., 512]."""
    rnn = Rnn(kind, HIDDEN, layers=2, bidirectional=True)
    path = folder / f"{kind}.onnx"
    path.write_bytes(onnx_layers.recurrent(kind, rnn.weights(), HIDDEN, rnn.layers, rnn.ways))
    return path


def recurrent_feeds(quick: bool) -> dict[str, Feed]:
    """Of `recurrent`, uniform in -1..1."""
    found: dict[str, Feed] = {}
    for batch in BATCHES:
        values = np.random.default_rng(STEPS * 1000 + batch).uniform(-1, 1, (STEPS, batch, HIDDEN))
        found[f"batch {batch}"] = {"x": values.astype(np.float32)}
    return found


def recurrent_rows(title: str, made: Made, quick: bool) -> Iterator[Row]:
    """Error of all outputs, as a share of their root mean square: for information."""
    feeds = recurrent_feeds(quick)
    exact = {cell: open_session(made.files[FLOAT]).run(None, f)[0] for cell, f in feeds.items()}
    for name, path in made.files.items():
        for cell, given in feeds.items() if name != FLOAT else ():
            error = open_session(path).run(None, given)[0] - exact[cell]
            share = float(np.linalg.norm(error) / np.linalg.norm(exact[cell]))
            yield Row(f"{name}, {cell}: relative to float", share, section=f"{title}: error")


def silero_rows(title: str, made: Made, quick: bool) -> Iterator[Row]:
    """Labelled accuracy, and what is held as int8."""
    exact, found = silero.scores(open_session(made.files[FLOAT])), silero.Scores(math.nan, math.nan)
    if NATIVE in made.files:
        found = silero.scores(open_session(made.files[NATIVE]))
    note = f"float {exact.auc:.4f}; accuracy {found.accuracy:.4f}, float {exact.accuracy:.4f}"
    note = made.refused.get(NATIVE, note)
    what = "area under the ROC curve over frames"
    yield Row(what, found.auc, at_least=LEAST_AUC, section=title, note=note)
    if NATIVE in made.reports:
        yield rows.int8_row(made.reports[NATIVE], None, title)


def silero_feeds(quick: bool) -> dict[str, Feed]:
    """One block of frames."""
    state = np.zeros((1, 1, silero.UNITS), np.float32)
    frames = silero.recording().frames[:BLOCK]
    return {f"{BLOCK} frames": {"input": frames, "h": state, "c": state}}


def classifier(
    name: str,
    path: Callable[[], Path],
    feed: Callable[[int], Feed],
    measure: str,
    accuracy: Callable[[Session, bool], float],
) -> Model:
    """A model of labelled samples: a feed of so many, of what its accuracy is the share, and that
    accuracy of a session, with fewer samples where those will do."""

    def accuracy_rows(title: str, made: Made, quick: bool) -> Iterator[Row]:
        found = {n: accuracy(open_session(file), quick) for n, file in made.files.items()}
        exact, value = found[FLOAT], found.get(NATIVE, math.nan)
        yield Row(f"{FLOAT}: accuracy, {measure}", exact, section=title)
        note = made.refused.get(NATIVE, f"{value - exact:+.4f} from float")
        what = f"{NATIVE}: accuracy, {measure}"
        yield Row(what, value, at_least=exact - MARGIN, section=title, note=note)
        if NATIVE in made.reports:
            yield rows.int8_row(made.reports[NATIVE], LEAST_SHARE, title)

    return Model(
        *(name, lambda folder: path(), (FLOAT, NATIVE)),
        lambda quick: {f"batch {count}": feed(count) for count in (1, 8)},
        lambda threads: (Asked(NATIVE, FLOAT, each=1.2),),
        accuracy_rows,
    )


MODELS = (
    Model(
        *("all-MiniLM-L6", lambda folder: minilm.onnx_path()),
        (FLOAT, QD_CHANNEL, OPENVINO, NATIVE, NATIVE_ACCURATE),
        lambda quick: latency.tokens(SHAPES[:2] if quick else (*SHAPES, (16, 32))),
        *(minilm_asked, minilm_rows),
    ),
    *(
        Model(
            f"{kind}, 2 layers, bidirectional, H {HIDDEN}, {STEPS} steps",
            partial(recurrent, kind),
            tuple(dict.fromkeys(name for a in asked for name in (FLOAT, a.over, a.of))),
            *(recurrent_feeds, lambda threads, asked=asked: asked, recurrent_rows),
        )
        for kind, asked in RECURRENT.items()
    ),
    Model(
        *("silero-vad, sequence form", lambda folder: silero.forms()["initializers"]),
        *((FLOAT, NATIVE), silero_feeds),
        *(lambda threads: (Asked(NATIVE, FLOAT, each=1.0),), silero_rows),
    ),
    classifier(
        *("magika", magika.model_path),
        lambda count: {"bytes": magika.features([f.path for f in magika.known_files()[:count]])},
        "files of a type that their suffix allows",
        lambda session, quick: magika.accuracy(session),
    ),
    classifier(
        *("nano-ocr", nano_ocr.onnx_path),
        lambda count: {"images": nano_ocr.images(count).numpy()},
        "words read",
        lambda session, quick: nano_ocr.word_accuracy(
            nano_ocr.transcribe(session, 60 if quick else nano_ocr.COUNT)
        ),
    ),
    classifier(
        *("Fashion-MNIST CNN", fashion_mnist.onnx_path),
        lambda count: {"images": fashion_mnist.images()[:count]},
        "pictures of the test set",
        lambda session, quick: fashion_mnist.accuracy(session),
    ),
)


def sections(folder: Path, quick: bool, processes: int) -> dict[str, Rows]:
    """Rows by title; files are made in `folder`."""
    chosen = list(latency.settings(quick, processes))
    found: dict[str, Rows] = {
        f"{model.title}, target native": partial(model_rows, model, folder, chosen, quick)
        for model in MODELS
    }
    weights, times = (8, 1) if quick else (opening.WEIGHTS, 3)
    return {**found, "Opening a large model": partial(opening.rows, folder, weights, times)}
