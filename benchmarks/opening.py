"""What opening a large model of target native costs, beside opening the float one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks import large, variants
from benchmarks.results import Row, say
from benchmarks.variants import FLOAT, NATIVE

WEIGHTS = 64  # of 4096 x 4096: 1.07 GB as int8
FIGURES = (  # of `large.opened`: name, unit, scale, and at most this share of the float model's
    ("time", "seconds", "s", 1, 1.0),
    ("peak memory", "peak", "MB", 1e6, 1.0),
    ("time of the first run of one row", "first", "s", 1, None),
)


def rows(folder: Path, weights: int, times: int) -> Iterator[Row]:
    """Seconds and peak memory, by turns; not measured where the disk has no room."""
    float_bytes = weights * large.WEIGHT_BYTES
    section = f"Opening a model of {float_bytes / 4e9:.2f} GB in target native"
    say(f"{section}: writing {float_bytes / 1e9:.1f} GB")
    try:
        model = large.write_model(folder, weights)
    except OSError as error:
        yield Row("not measured", math.nan, section=section, note=str(error.strerror or error))
        return
    say(f"{section}: quantizing")
    native, _ = variants.quantized(NATIVE, model, folder)
    say(section)
    turns = [(large.child("opened", native), large.child("opened", model)) for _ in range(times)]
    for what, key, unit, scale, most in FIGURES:
        ours, theirs = (statistics.median(turn[i][key] for turn in turns) for i in (0, 1))
        note = f"{ours / scale:.4g} {unit} to {theirs / scale:.4g} {unit}"
        title = f"{what} as a share of the {FLOAT} model's"
        yield Row(title, ours / theirs, at_most=most, section=section, note=note)
    size = sum(file.stat().st_size for file in folder.glob(f"{native.name}*"))
    yield Row(f"{NATIVE}: files", size / 1e6, "MB", section=section)
