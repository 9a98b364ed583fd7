"""all-MiniLM-L6 in target native, beside ONNX Runtime's float model and quantizer and OpenVINO."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import held, latency, native_speed, variants
from benchmarks.latency import SHAPES
from benchmarks.results import Row, say
from benchmarks.speed import Asked, Setting
from benchmarks.variants import FLOAT, NATIVE, NATIVE_ACCURATE, OPENVINO, QD_CHANNEL, Made
from benchmarks.zoo import minilm
from benchmarks.zoo.sessions import open_session

TITLE = "all-MiniLM-L6, target native"
VARIANTS = (FLOAT, QD_CHANNEL, OPENVINO, NATIVE, NATIVE_ACCURATE)
GROUPS = (128, 32)  # of OpenVINO's dynamic quantization
ALL_SHAPES = (*SHAPES, (16, 32))
MOST_ERROR, MOST_ERROR_ACCURATE = 0.0014, 0.0006  # 1 - cosine of hidden states
FASTER = 1.0


def asked(threads: int) -> tuple[Asked, ...]:
    """Of the speed over the five shapes; over float only of one thread."""
    return (
        Asked(NATIVE, FLOAT, mean=3.2 if threads == 1 else None),
        Asked(NATIVE, QD_CHANNEL, mean=1.35, each=FASTER),
        Asked(NATIVE, OPENVINO, mean=1.25, each=FASTER),
        Asked(NATIVE_ACCURATE, NATIVE, mean=0.85),
    )


def rows(folder: Path, settings: Sequence[Setting], quick: bool) -> Iterator[Row]:
    """Error, size and speed."""
    say(f"{TITLE}: quantizing")
    made = variants.every(VARIANTS, minilm.onnx_path(), folder)
    yield from error_rows(made)
    yield from size_rows(made)
    shapes = ALL_SHAPES[:2] if quick else ALL_SHAPES
    feeds = {latency.label(shape): latency.tokens(shape) for shape in shapes}
    yield from native_speed.rows(TITLE, made, feeds, asked, settings)


def error_rows(made: Made) -> Iterator[Row]:
    """Of the hidden states of the 50 Lee documents."""
    section = f"{TITLE}: error, 1 - cosine of hidden states"
    say(section)
    exact = open_session(made.files[FLOAT])
    most = {NATIVE: MOST_ERROR, NATIVE_ACCURATE: MOST_ERROR_ACCURATE}
    for name in (QD_CHANNEL, NATIVE, NATIVE_ACCURATE):
        error = math.nan
        if name in made.files:
            error = minilm.hidden_state_error(exact, open_session(made.files[name]))
        note = made.refused.get(name, "")
        yield Row(name, error, at_most=most.get(name), section=section, note=note)
    for group in GROUPS:
        error = math.nan
        if OPENVINO in made.files:
            from benchmarks.openvino_session import OpenVinoSession

            peer = OpenVinoSession(made.files[OPENVINO], group=group)
            error = minilm.hidden_state_error(exact, peer)
        note = made.refused.get(OPENVINO, "")
        yield Row(f"{OPENVINO}, groups of {group}", error, section=section, note=note)


def size_rows(made: Made) -> Iterator[Row]:
    """Sizes of the files, and whether the embedding table is int8."""
    section = f"{TITLE}: size"
    for name, path in made.files.items():
        parts = (path, path.with_suffix(".bin")) if path.suffix == ".xml" else (path,)
        size = sum(part.stat().st_size for part in parts)
        yield Row(f"{name}: file", size / 1e6, "MB", section=section)
    for name, report in made.reports.items():
        yield held.table_row(report, f"{name}: embedding table", True, section)
