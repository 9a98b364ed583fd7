"""The numbers of one input: spread where it is an index, ones where it is a mask, a picture or a
sound where it is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.samples import end_last_row, hidden_of, picture, sound, spread
from octavo.onnx.made_up.axes import Axis, Form
from octavo.onnx.made_up.kinds import InputKind, Role

Array = npt.NDArray[Any]

_PIXELS, _RATE, _STEPS, _BEAMS = 640, 16000, 1000, 4
_HIDDEN = -10_000.0  # added to scores; -inf gives NaN in rows that are hidden whole
_HIDDEN_OF_HALF = -6e4 / 2
_WORDS = ("a quick look at the house", "two of them", "text", "nothing was said of it")


@dataclass(frozen=True)
class Setting:
    """What the inputs of one guess have in common: how long they are, and which way to go.

    `has_past`: what is hidden in a row is at its begin, and positions go on behind it.
    `is_short`: the last row of masks and lengths is shorter than the others.
    `plain`: integers of which nothing is known are ones.
    """

    lengths: dict[Axis, int]
    has_past: bool
    is_short: bool
    plain: bool
    way: int


def values(form: Form, shape: Sequence[int], setting: Setting, rng: np.random.Generator) -> Array:
    """An array of the input's type and the `shape`."""
    dtype = (form.value.dtype or ir.DataType.FLOAT).numpy()
    drawn = _DRAWS[form.kind.role](form, tuple(shape), setting, rng)
    if dtype.kind in "iu" and drawn.dtype.kind == "i":
        limits, held = np.iinfo(dtype), np.iinfo(drawn.dtype)
        drawn = np.clip(drawn, max(limits.min, held.min), min(limits.max, held.max))
    return np.asarray(drawn).astype(dtype)


# Indices -----------------------------------------------------------------------------------------


def _ids(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    """Spread over the table. What the model compares them with, as padding, ends the short row."""
    kind = form.kind
    ids = spread(shape, kind.rows or 2, kind.avoided, rng)
    if kind.avoided and len(shape) == 2 and setting.is_short:
        end_last_row(ids, kind.avoided[0])
    return ids


def _types(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    """The first segment, then the second, as of a pair of sentences."""
    rows, length = form.kind.rows or 2, shape[-1] if shape else 1
    of_one = np.arange(length) * min(rows, 2) // max(1, length)
    return np.broadcast_to(of_one, shape).astype(np.int64)


def _positions(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> Array:
    begin = setting.lengths.get(Axis.PAST, 0) if setting.has_past else 0
    places = np.arange(shape[-1] if shape else 1) + begin
    if form.kind.rows:
        places = places % form.kind.rows
    return np.broadcast_to(places if shape else places[0], shape).astype(np.int64)


def _index(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    long = [setting.lengths[a] for a in (Axis.LENGTH, Axis.FRAMES) if a in setting.lengths]
    return np.asarray(rng.integers(0, min(long, default=1), shape))


def _category(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> Array:
    """The numbers that it is compared with and one more, none of them everywhere."""
    numbers = [*form.kind.choices, max(form.kind.choices) + 1]
    count = math.prod(shape)
    found: Array = np.array(numbers)[rng.permutation(count) % len(numbers)]
    return found.reshape(shape)


def choices(kind: InputKind, dtype: np.dtype[Any]) -> list[int]:
    """The numbers of the type that may choose a branch, and one that is none of them."""
    if dtype.kind == "b":
        return [1, 0]
    limits = np.iinfo(dtype)
    numbers = list(kind.choices) or [1]
    held = [n for n in numbers if limits.min <= n <= limits.max]
    beside = (max(numbers) + 1, min(numbers) - 1)
    return [*held, *[n for n in beside if limits.min <= n <= limits.max][:1]]


def _mode(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    known = choices(form.kind, (form.value.dtype or ir.DataType.INT64).numpy())
    return np.full(shape, known[setting.way % len(known)])


# Masks and lengths -------------------------------------------------------------------------------


def _mask(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    shown = _shown(form, shape, setting)
    return shown if form.kind.hidden == 0 else 1 - shown


def _added_mask(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> Array:
    return (1.0 - _shown(form, shape, setting)) * _HIDDEN


def _shown(form: Form, shape: tuple[int, ...], setting: Setting) -> Array:
    """Ones, but for a quarter of the last row, where a row may be short."""
    shown = np.ones(shape, np.int64)
    if not shape:
        return shown
    hidden = hidden_of(shape[-1])
    if len(shape) == 2 and form.axes[0] is form.axes[1]:  # of queries and keys
        return np.tril(shown)
    if setting.is_short and hidden:
        row = shown[-1] if len(shape) > 1 else shown
        if setting.has_past:  # so that each token sees some of what is behind
            row[..., : min(hidden, setting.lengths.get(Axis.PAST, 0))] = 0
        else:
            row[..., -hidden:] = 0
    return shown


def _lengths(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> Array:
    """The length of the axis, in the last of several rows less."""
    order = (Axis.LENGTH, Axis.FRAMES, Axis.SAMPLES, Axis.OTHER)
    most = next((setting.lengths[a] for a in order if a in setting.lengths), 1)
    most -= form.kind.less
    if setting.has_past:
        most += setting.lengths.get(Axis.PAST, 0)
    found = np.full(shape, most)
    if found.ndim and found.shape[0] > 1 and setting.is_short and not setting.has_past:
        found[-1] = max(1, most - hidden_of(most))
    return found


# Numbers -----------------------------------------------------------------------------------------


def _picture(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> Array:
    found = picture(shape, form.kind.channels_last, rng)
    return found * 255 if form.kind.to_255 else found


def _sound(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    return sound(shape, _RATE, rng)


def _normal(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> Array:
    return np.asarray(rng.standard_normal(shape, np.float32))


def _scale(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    return np.asarray(rng.uniform(0.8, 1.0, shape))


def _integers(
    form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
) -> Array:
    if form.value.dtype is ir.DataType.UINT8:
        return np.asarray(rng.integers(0, 256, shape))
    if setting.plain or len(shape) < 2:
        return np.ones(shape, np.int64)
    return np.asarray(rng.integers(0, 10, shape))


def _text(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    known = np.array(form.kind.words or _WORDS, dtype=object)
    return np.asarray(known[rng.integers(0, known.size, shape)], dtype=object).reshape(shape)


def _all(number: float) -> Callable[..., Array]:
    def draw(
        form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator
    ) -> Array:
        return np.full(shape, number)

    return draw


def _step(form: Form, shape: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Array:
    return np.asarray(rng.integers(1, _STEPS, shape))


_DRAWS: dict[Role, Callable[[Form, tuple[int, ...], Setting, np.random.Generator], Array]] = {
    Role.IDS: _ids,
    Role.TYPES: _types,
    Role.POSITIONS: _positions,
    Role.INDEX: _index,
    Role.CATEGORY: _category,
    Role.MODE: _mode,
    Role.MASK: _mask,
    Role.ADDED_MASK: _added_mask,
    Role.LENGTHS: _lengths,
    Role.PAST: _normal,
    Role.STATE: _normal,
    Role.STEP: _step,
    Role.COUNT: _all(_BEAMS),
    Role.THRESHOLD: _all(0.3),
    Role.RATE: _all(_RATE),
    Role.SCALE: _scale,
    Role.PICTURE_SIZE: _all(_PIXELS),
    Role.IMAGE: _picture,
    Role.AUDIO: _sound,
    Role.FEATURES: _normal,
    Role.INTEGERS: _integers,
    Role.TEXT: _text,
}
