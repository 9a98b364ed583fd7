"""Models with convolutions in target native: magika, nano-ocr and a CNN for Fashion-MNIST."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import held, native_speed, variants
from benchmarks.results import Row, say
from benchmarks.speed import Asked, Setting
from benchmarks.variants import FLOAT, NATIVE
from benchmarks.zoo import fashion_mnist, magika, nano_ocr
from benchmarks.zoo.sessions import Feed, Session, open_session

LEAST_SPEED, LEAST_SHARE, MARGIN = 1.2, 0.90, 0.005
BATCHES = (1, 8)
ASKED = (Asked(NATIVE, FLOAT, each=LEAST_SPEED),)


@dataclass(frozen=True)
class Classifier:
    """A model: its file, a feed of so many rows, and of what its accuracy is the share.

    `accuracy` is given a session and whether fewer samples will do.
    """

    name: str
    path: Callable[[], Path]
    feed: Callable[[int], Feed]
    measure: str
    accuracy: Callable[[Session, bool], float]


def _magika_feed(count: int) -> Feed:
    return {"bytes": magika.features([file.path for file in magika.known_files()[:count]])}


def _words_read(session: Session, quick: bool) -> float:
    return nano_ocr.word_accuracy(nano_ocr.transcribe(session, 60 if quick else nano_ocr.COUNT))


CLASSIFIERS = (
    Classifier(
        "magika",
        magika.model_path,
        _magika_feed,
        "files of a type that their suffix allows",
        lambda session, quick: magika.accuracy(session),
    ),
    Classifier(
        "nano-ocr",
        nano_ocr.onnx_path,
        lambda count: {"images": nano_ocr.images(count).numpy()},
        "words read",
        _words_read,
    ),
    Classifier(
        "Fashion-MNIST CNN",
        fashion_mnist.onnx_path,
        lambda count: {"images": fashion_mnist.images()[:count]},
        "pictures of the test set",
        lambda session, quick: fashion_mnist.accuracy(session),
    ),
)


def rows(of: Classifier, folder: Path, settings: Sequence[Setting], quick: bool) -> Iterator[Row]:
    """Accuracy, what is held as int8, and speed."""
    title = f"{of.name}, target native"
    say(title)
    made = variants.every((FLOAT, NATIVE), of.path(), folder)
    found = {n: of.accuracy(open_session(path), quick) for n, path in made.files.items()}
    yield from _accuracy_rows(of, found, made.refused, title)
    if NATIVE in made.reports:
        yield held.share_row(made.reports[NATIVE], LEAST_SHARE, title)
    feeds = {f"batch {count}": of.feed(count) for count in BATCHES}
    yield from native_speed.rows(title, made, feeds, lambda threads: ASKED, settings)


def _accuracy_rows(
    of: Classifier, found: Mapping[str, float], refused: Mapping[str, str], section: str
) -> Iterator[Row]:
    exact = found[FLOAT]
    yield Row(f"{FLOAT}: accuracy, {of.measure}", exact, section=section)
    value = found.get(NATIVE, math.nan)
    yield Row(
        f"{NATIVE}: accuracy, {of.measure}",
        value,
        at_least=exact - MARGIN,
        section=section,
        note=refused.get(NATIVE, f"{value - exact:+.4f} from float"),
    )
