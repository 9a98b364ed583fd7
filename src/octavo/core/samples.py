"""Made-up pictures, sounds, spectra and ids, more like real ones than noise is.

White noise is what no camera gives: a network that was trained on pictures answers it with
activations near zero, or far beyond what it ever saw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_GRIDS = ((3, 1.0), (7, 0.6), (19, 0.35), (53, 0.2))  # cells a side, and how much they count
_NOISE = 0.05
_FEWEST_LINES = 32  # of pixels, for print to be on a picture
_CELLS = 80  # of print on half a picture, from top to bottom
_VOICE = (110.0, 220.0)  # hertz
_HARMONICS = 12
_MOST_HUMS = 4  # that differ; more rows repeat them, under noise of their own


def picture(shape: tuple[int, ...], channels_last: bool, rng: np.random.Generator) -> Array:
    """Smooth shapes of several sizes under a little noise, over lines of print, from 0 to 1.

    All that is fed with pictures can take these numbers: those that want them whitened see a
    bright one, and none sees a negative one that wanted 0 to 1. Without print a detector of text
    gives exactly 0 everywhere.
    """
    if len(shape) < 2:
        return np.asarray(rng.random(shape))
    h, w = (shape[-3], shape[-2]) if channels_last and len(shape) > 2 else shape[-2:]
    others = shape[:-3] + shape[-1:] if channels_last and len(shape) > 2 else shape[:-2]
    count = math.prod(others)
    found = _NOISE * rng.standard_normal((count, h, w), np.float32)
    for cells, weight in _GRIDS:
        grid = rng.standard_normal((count, min(cells, h) + 1, min(cells, w) + 1), np.float32)
        found += weight * (_between(h, grid.shape[1]) @ grid @ _between(w, grid.shape[2]).T)
    low = found.min(axis=(1, 2), keepdims=True, initial=0)
    high = found.max(axis=(1, 2), keepdims=True, initial=0)
    found = (found - low) / np.maximum(high - low, 1e-6)
    if h >= _FEWEST_LINES:
        top = h // 2
        found[:, top:] = _page(h - top, w, rng) * (0.8 + 0.2 * found[:, top:])
    found = found.reshape(*others, h, w)
    return np.moveaxis(found, -3, -1) if channels_last and len(shape) > 2 else found


def _page(height: int, width: int, rng: np.random.Generator) -> Array:
    """Lines of dark signs, 5 cells high and 3 wide, on white."""
    cell = max(1, round(height / _CELLS) if height > _CELLS // 2 else height // 9)
    rows, columns = -(-height // cell), -(-width // cell)
    page = np.ones((rows, columns), np.float32)
    signs = np.arange(columns) % 4
    for top in range(1, rows - 5, 9):
        is_word = np.repeat(rng.random(columns // 4 + 1) < 0.85, 4)[:columns]
        inked = (rng.random((5, columns)) < 0.6) & (signs < 3) & is_word
        inked[:, int(columns * rng.uniform(0.6, 1)) :] = False
        page[top : top + 5] -= 0.9 * inked
    large: Array = np.kron(page, np.ones((cell, cell), np.float32))[:height, :width]
    return large


def _between(size: int, knots: int) -> npt.NDArray[np.float32]:
    """Return the matrix [size, knots] that interpolates equally far knots at `size` points."""
    at = (np.arange(size) + 0.5) / size * (knots - 1)
    weights = 1 - np.abs(at[:, None] - np.arange(knots)[None, :])
    found: npt.NDArray[np.float32] = np.maximum(weights, 0).astype(np.float32)
    return found


def sound(shape: tuple[int, ...], rate: int, rng: np.random.Generator) -> Array:
    """Hum a melody with pauses over a little noise, within -1 and 1; the last axis is time."""
    samples, count = shape[-1] if shape else 1, math.prod(shape[:-1])
    hums = [_hum(samples, rate, rng) for _ in range(min(count, _MOST_HUMS))]
    found = 0.03 * rng.standard_normal((count, samples), np.float32)
    for i, hum in enumerate(hums):
        found[i :: len(hums)] += hum
    return np.asarray(np.clip(found, -1, 1)).reshape(shape)


def _hum(samples: int, rate: int, rng: np.random.Generator) -> Array:
    time = np.arange(samples) / rate
    pitch = rng.uniform(*_VOICE) * (1 + 0.2 * np.sin(2 * np.pi * rng.uniform(1, 3) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    loud = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(2, 5) * time + rng.uniform(0, 6))
    tones = [rng.uniform(0.3, 1) * np.sin(n * phase) / n for n in range(1, _HARMONICS + 1)]
    return np.asarray(0.15 * loud * np.sum(tones, axis=0), np.float32)


_DECADES = (-4.0, 1.0)
_PEAKS = 9


def power(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Make up a spectrum's power: above 0, smooth and over five decades along each long axis.

    Neighbours are alike, so that their sums, as filters have them, span as much.
    """
    length = max(shape, default=1)
    heights = rng.permutation(np.linspace(*_DECADES, _PEAKS))
    curve = _between(length, _PEAKS) @ heights.astype(np.float32)
    at = np.zeros((), np.int64)
    for size in shape:
        at = at[..., None] + np.arange(size) * (length // max(size, 1))
    noise = 0.1 * rng.standard_normal(shape, np.float32)
    return np.asarray(10 ** (curve[at % length] + noise), np.float32)


_MOST_ROWS = 2**22  # of a table that are looked at


def hidden_of(length: int) -> int:
    """Count the hidden elements of a short row: a quarter, and none of a single one."""
    return math.ceil(length / 4) if length > 1 else 0


def spread(
    shape: Sequence[int], rows: int, avoided: Sequence[int], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw indices over all `rows` of a table, in random order, without `avoided` if others remain.

    There is one from each of as many equal parts as there are indices.
    """
    allowed = np.setdiff1d(np.arange(min(rows, _MOST_ROWS)), np.array(avoided, np.int64))
    if not allowed.size:
        allowed = np.arange(max(1, rows))
    count = math.prod(shape)
    places = (np.arange(count) + rng.random(count)) * (allowed.size / max(1, count))
    order = rng.permutation(places.astype(np.int64).clip(0, allowed.size - 1))
    found: npt.NDArray[np.int64] = allowed[order].astype(np.int64).reshape(tuple(shape))
    return found


def end_last_row(array: npt.NDArray[Any], number: float) -> None:
    """Write `number` at the end of the last of several rows: what is hidden, or padding."""
    hidden = hidden_of(array.shape[-1]) if array.ndim > 1 and len(array) > 1 else 0
    if hidden:
        array[-1, ..., -hidden:] = number
