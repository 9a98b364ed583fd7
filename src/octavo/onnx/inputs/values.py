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

from octavo.core.samples import end_last_row, hidden_of, picture, power, sound, spread
from octavo.onnx.inputs.axes import Axis, InputLayout
from octavo.onnx.inputs.roles import InputKind, Role

Array = npt.NDArray[Any]

_PIXELS, _RATE, _STEPS, _BEAMS, _THRESHOLD = 640, 16000, 1000, 4, 0.3
_HIDDEN = -10_000.0  # added to scores; -inf gives NaN in rows that are hidden whole
_MATRIX = 2  # axes
_TEXTS = ("a quick look at the house", "two of them", "text", "nothing was said of it")


@dataclass(frozen=True)
class Setting:
    """What the inputs of one guess have in common: how long they are, and which branch they take.

    `has_past`: what is hidden in a row is at its begin, and positions go on behind it.
    `is_short`: the last row of masks and lengths is shorter than the others.
    `plain`: integers of which nothing is known are ones.
    """

    lengths: dict[Axis, int]
    has_past: bool
    is_short: bool
    plain: bool
    branch: int

    def length(self, *axes: Axis) -> int:
        """Return the length of the first of these axes that an input has; 1 where none has any."""
        return next((self.lengths[axis] for axis in axes if axis in self.lengths), 1)

    @property
    def past(self) -> int:
        """Return how many tokens are in the past, before those that are fed."""
        return self.lengths.get(Axis.PAST, 0) if self.has_past else 0


@dataclass(frozen=True)
class _Draw:
    """What numbers are drawn for."""

    layout: InputLayout
    shape: tuple[int, ...]
    setting: Setting
    rng: np.random.Generator

    @property
    def kind(self) -> InputKind:
        return self.layout.kind

    @property
    def last(self) -> int:
        return self.shape[-1] if self.shape else 1


def draw_values(
    layout: InputLayout, shape: Sequence[int], setting: Setting, rng: np.random.Generator
) -> Array:
    """Draw an array of the input's type and the `shape`."""
    dtype = (layout.value.dtype or ir.DataType.FLOAT).numpy()
    drawn = np.asarray(_DRAWS[layout.kind.role](_Draw(layout, tuple(shape), setting, rng)))
    if dtype.kind in "iu" and drawn.dtype.kind == "i":
        limits, held = np.iinfo(dtype), np.iinfo(drawn.dtype)
        drawn = np.clip(drawn, max(limits.min, held.min), min(limits.max, held.max))
    return np.asarray(drawn).astype(dtype)


# Indices -----------------------------------------------------------------------------------------


def _ids(d: _Draw) -> Array:
    """Spread over the table. What the model compares them with, as padding, ends the short row."""
    ids = spread(d.shape, d.kind.rows or 2, d.kind.avoided, d.rng)
    if d.kind.avoided and len(d.shape) == 2 and d.setting.is_short:
        end_last_row(ids, d.kind.avoided[0])
    return ids


def _types(d: _Draw) -> Array:
    """Make segment numbers: the first segment, then the second, as of a pair of sentences."""
    of_one = np.arange(d.last) * min(d.kind.rows or 2, 2) // max(1, d.last)
    return np.broadcast_to(of_one, d.shape).astype(np.int64)


def _positions(d: _Draw) -> Array:
    places = np.arange(d.last) + d.setting.past
    if d.kind.rows:
        places = places % d.kind.rows
    return np.broadcast_to(places if d.shape else places[0], d.shape).astype(np.int64)


def _index(d: _Draw) -> Array:
    long = [d.setting.lengths[a] for a in (Axis.LENGTH, Axis.FRAMES) if a in d.setting.lengths]
    return np.asarray(d.rng.integers(0, min(long, default=1), d.shape))


def _category(d: _Draw) -> Array:
    """Draw the numbers an input is compared with and one more, none of them everywhere."""
    numbers = np.array([*d.kind.choices, max(d.kind.choices) + 1])
    found: Array = numbers[d.rng.permutation(math.prod(d.shape)) % len(numbers)]
    return found.reshape(d.shape)


def choices(kind: InputKind, dtype: np.dtype[Any]) -> list[int]:
    """Return the numbers of `dtype` that may choose a branch, and one that is none of them."""
    if dtype.kind == "b":
        return [1, 0]
    limits = np.iinfo(dtype)
    numbers = list(kind.choices) or [1]
    held = [n for n in numbers if limits.min <= n <= limits.max]
    beside = (max(numbers) + 1, min(numbers) - 1)
    return [*held, *[n for n in beside if limits.min <= n <= limits.max][:1]]


def _mode(d: _Draw) -> Array:
    known = choices(d.kind, (d.layout.value.dtype or ir.DataType.INT64).numpy())
    return np.full(d.shape, known[d.setting.branch % len(known)])


# Masks and lengths -------------------------------------------------------------------------------


def _mask(d: _Draw) -> Array:
    return _shown(d) if d.kind.hidden == 0 else 1 - _shown(d)


def _added_mask(d: _Draw) -> Array:
    """Also padded on the left, in the first of several rows, as tokenizers of decoders do.

    With a causal rule it hides all that the first query sees, which graphs must bear.
    """
    shown, setting = _shown(d), d.setting
    batched = len(d.shape) > 1 and d.layout.axes[0] is not d.layout.axes[1]
    if batched and setting.is_short and not setting.has_past and (len(shown) > 1 or setting.plain):
        shown[0] = np.flip(_shown(d)[-1], -1)
    return (1.0 - shown) * _HIDDEN


def _shown(d: _Draw) -> Array:
    """Ones, but for a quarter of the last row, where a row may be short."""
    shown = np.ones(d.shape, np.int64)
    if not d.shape:
        return shown
    if len(d.shape) == 2 and d.layout.axes[0] is d.layout.axes[1]:  # of queries and keys
        return np.tril(shown)
    hidden = hidden_of(d.last)
    if d.setting.is_short and hidden:
        row = shown[-1] if len(d.shape) > 1 else shown
        if d.setting.has_past:  # so that each token sees some of what is behind
            row[..., : min(hidden, d.setting.past)] = 0
        else:
            row[..., -hidden:] = 0
    return shown


def _lengths(d: _Draw) -> Array:
    """Return the axis's length in every row, and less in the last of several rows."""
    setting = d.setting
    most = setting.length(Axis.LENGTH, Axis.FRAMES, Axis.SAMPLES, Axis.OTHER)
    most += setting.past - d.kind.less
    found = np.full(d.shape, most)
    if found.ndim and found.shape[0] > 1 and setting.is_short and not setting.has_past:
        found[-1] = max(1, most - hidden_of(most))
    return found


# Numbers -----------------------------------------------------------------------------------------


def _image(d: _Draw) -> Array:
    found = picture(d.shape, d.kind.channels_last, d.rng)
    return found * 255 if d.kind.to_255 else found


def _normal(d: _Draw) -> Array:
    return d.rng.standard_normal(d.shape, np.float32)


def _features(d: _Draw) -> Array:
    """Draw a vector beside tokens, a speaker's or a style's, with a length of 1, as those have it.

    A model that speaks makes minutes of sound of a style that nobody has.
    """
    if d.kind.is_power:
        return power(d.shape, d.rng)
    found = _normal(d)
    along = {Axis.LENGTH, Axis.FRAMES, Axis.SAMPLES}.intersection(d.layout.axes)
    if Axis.LENGTH not in d.setting.lengths or along or len(d.shape) > _MATRIX:
        return found
    return found / math.sqrt(d.last)


def _integers(d: _Draw) -> Array:
    if d.layout.value.dtype is ir.DataType.UINT8:
        return d.rng.integers(0, 256, d.shape)
    if d.setting.plain or len(d.shape) < 2:
        return np.ones(d.shape, np.int64)
    return d.rng.integers(0, 10, d.shape)


def _text(d: _Draw) -> Array:
    known = np.array(d.kind.texts or _TEXTS, dtype=object)
    picked = known[d.rng.integers(0, known.size, d.shape)]
    return np.asarray(picked, dtype=object).reshape(d.shape)


_DRAWS: dict[Role, Callable[[_Draw], Any]] = {
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
    Role.STEP: lambda d: d.rng.integers(1, _STEPS, d.shape),
    Role.COUNT: lambda d: np.full(d.shape, _BEAMS),
    Role.THRESHOLD: lambda d: np.full(d.shape, _THRESHOLD),
    Role.RATE: lambda d: np.full(d.shape, _RATE),
    Role.SCALE: lambda d: d.rng.uniform(0.8, 1.0, d.shape),
    Role.PICTURE_SIZE: lambda d: np.full(d.shape, _PIXELS),
    Role.IMAGE: _image,
    Role.AUDIO: lambda d: sound(d.shape, _RATE, d.rng),
    Role.FEATURES: _features,
    Role.INTEGERS: _integers,
    Role.TEXT: _text,
}
