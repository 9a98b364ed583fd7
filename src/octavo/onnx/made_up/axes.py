"""What each axis of an input counts: items of a batch, tokens, pixels, samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import onnx_ir as ir

from octavo.onnx.constants import Constants
from octavo.onnx.made_up.floats import is_past
from octavo.onnx.made_up.flow import Flow
from octavo.onnx.made_up.kinds import InputKind, Role
from octavo.onnx.made_up.layers import Wish, wanted_shape
from octavo.onnx.made_up.names import is_name, parts, says


class Axis(Enum):
    """What an axis counts."""

    BATCH = "batch"
    LENGTH = "tokens"
    PAST = "past"
    TOTAL = "past and tokens"
    HEIGHT = "height"
    WIDTH = "width"
    DEPTH = "depth"
    SAMPLES = "samples"
    FRAMES = "frames"
    OTHER = "other"


_OF_TOKENS = frozenset(
    [Role.IDS, Role.TYPES, Role.POSITIONS, Role.INTEGERS, Role.INDEX, Role.CATEGORY]
)
_MASKS = frozenset([Role.MASK, Role.ADDED_MASK])
_SEQUENCE_WORDS = (
    "seq",
    "sequence",
    "length",
    "len",
    "time",
    "frames",
    "steps",
    "tokens",
    "t",
    "l",
)
_BATCH_WORDS = ("batch", "n", "b", "bs", "bsz", "batchsize")


@dataclass(frozen=True)
class Form:
    """One input: what it is, and for each axis what it counts, its name (empty where it has none)
    and its size where that is fixed, by the model or by the layer that reads it.
    """

    value: ir.Value
    kind: InputKind
    axes: tuple[Axis, ...]
    symbols: tuple[str, ...]
    sizes: tuple[int | None, ...]

    @property
    def name(self) -> str:
        """Of the input."""
        return self.value.name or ""

    def key(self, i: int) -> str:
        """Equal for axes that are as long as each other: their name, or what they count."""
        if self.symbols[i]:
            return self.symbols[i]
        axis = self.axes[i]
        return f"?{axis.value} {i}" if axis is Axis.OTHER else f"?{axis.value}"


def forms_of(
    inputs: Sequence[ir.Value], kinds: Mapping[str, InputKind], flow: Flow, constants: Constants
) -> list[Form]:
    """The inputs, in their order."""
    found = []
    for value in inputs:
        kind = kinds[value.name or ""]
        wish = wanted_shape(value, flow, constants)
        found.append(_form(value, kind, wish, is_past(value, flow)))
    return _with_totals(_over_time(_over_pictures(found)))


def _form(value: ir.Value, kind: InputKind, wish: Wish, past: int | None) -> Form:
    dims: list[int | str | None]
    if value.shape is None:
        dims = [None] * (wish.rank or 0)
    else:
        dims = [d if isinstance(d, int) else d.value for d in value.shape]
    rank = len(dims)
    symbols = tuple(d if isinstance(d, str) and is_name(d) else "" for d in dims)
    wished = [wish.dims.get(i, wish.dims.get(i - rank)) for i in range(rank)]
    sizes = tuple(
        d if isinstance(d, int) and d >= 0 else w for d, w in zip(dims, wished, strict=True)
    )
    axes = _axes(kind, sizes, [w is not None for w in wished], wish, past)
    axes = [_named(axis, symbols[i], is_first=i == 0) for i, axis in enumerate(axes)]
    return Form(value, kind, tuple(axes), symbols, sizes)


def _axes(
    kind: InputKind,
    sizes: Sequence[int | None],
    wished: Sequence[bool],
    wish: Wish,
    past: int | None,
) -> list[Axis]:
    rank = len(sizes)
    if kind.role is Role.IMAGE:
        return _of_picture(rank, kind.channels_last)
    found = [Axis.OTHER] * rank
    if kind.role is Role.AUDIO and rank:
        found[-1] = Axis.SAMPLES
    elif (kind.role in _OF_TOKENS or kind.role in _MASKS) and rank:
        found[-1] = Axis.LENGTH
        if rank >= 3 and kind.role in _MASKS:
            found[-2] = Axis.LENGTH
    elif kind.role is Role.PAST and past is not None:
        found[past] = Axis.PAST
    elif kind.role is Role.FEATURES and rank >= 3:
        open_ones = [i for i in range(1, rank) if sizes[i] is None and not wished[i]]
        rest = [i for i in range(1, rank) if not wished[i] and (sizes[i] or 0) > 1]
        for i in open_ones or sorted(rest, key=lambda i: sizes[i] or 0)[-1:]:
            found[i] = Axis.FRAMES
    if kind.role is Role.STATE and rank >= 2:
        found[-2] = Axis.BATCH
        return found
    batch, time = (wish.batch, wish.time) if rank >= 3 else (None, None)
    if time is not None and batch is not None:
        found[time], found[batch] = Axis.FRAMES, Axis.BATCH
    elif rank >= 3 and sizes[0] is not None and sizes[1] is None and not wished[1]:
        found[1] = Axis.BATCH  # of states and the like, which are stacked by layers
    elif rank >= 2 or (rank == 1 and found[0] is Axis.OTHER):
        found[0] = Axis.BATCH
    return found


def _of_picture(rank: int, channels_last: bool) -> list[Axis]:
    spatial = [Axis.DEPTH, Axis.HEIGHT, Axis.WIDTH]
    if channels_last:
        n = min(3, 3 if rank >= 5 else 2)
        return [Axis.BATCH] * (rank - n - 1) + spatial[-n:] + [Axis.OTHER]
    n = max(0, min(3, rank - 2))
    return [Axis.BATCH, Axis.OTHER, *spatial[3 - n :]][:rank] if n else [Axis.OTHER] * rank


def _named(axis: Axis, symbol: str, *, is_first: bool) -> Axis:
    """What the name of an axis says, where that is plain."""
    words = parts(symbol)
    if not words or any(c in symbol for c in "+-*/"):
        return axis
    if "batch" in symbol.lower() or (is_first and words <= set(_BATCH_WORDS)):
        return Axis.BATCH
    if "past" in words:
        return Axis.PAST
    if "total" in words and axis is not Axis.BATCH:
        return Axis.TOTAL
    if axis is Axis.OTHER or axis is Axis.BATCH:
        for word, meant in (("height", Axis.HEIGHT), ("width", Axis.WIDTH)):
            if word in words:
                return meant
    if axis is Axis.BATCH and says(symbol, *_SEQUENCE_WORDS):
        return Axis.LENGTH
    return axis


def _over_pictures(forms: list[Form]) -> list[Form]:
    """Masks of pixels are as high and wide as the pictures beside them."""
    pictures = [form for form in forms if form.kind.role is Role.IMAGE]
    if not pictures:
        return forms
    spatial = tuple(a for a in pictures[0].axes if a not in (Axis.BATCH, Axis.OTHER))
    return [
        replace(form, axes=(*form.axes[: len(form.axes) - len(spatial)], *spatial))
        if form.kind.role in _MASKS and len(form.axes) > len(spatial) > 1
        else form
        for form in forms
    ]


def _over_time(forms: list[Form]) -> list[Form]:
    """Where there are no ids, masks are as long as the frames or samples beside them."""
    if any(form.kind.role is Role.IDS for form in forms):
        return forms
    of_data = [a for form in forms if form.kind.role not in _MASKS for a in form.axes]
    time = next((a for a in of_data if a in (Axis.FRAMES, Axis.SAMPLES)), None)
    if time is None:
        return forms
    return [
        replace(form, axes=tuple(time if a is Axis.LENGTH else a for a in form.axes))
        if form.kind.role in _MASKS
        else form
        for form in forms
    ]


def _with_totals(forms: list[Form]) -> list[Form]:
    """Masks over a past and the tokens behind it have an axis for both."""
    if not any(form.kind.role is Role.PAST for form in forms):
        return forms
    of_tokens = {f.key(len(f.axes) - 1) for f in forms if f.kind.role is Role.IDS and f.axes}
    found = []
    for form in forms:
        axes = list(form.axes)
        last = len(axes) - 1
        named = bool(axes) and bool(form.symbols[last])
        is_mask = form.kind.role in _MASKS and bool(axes) and axes[last] is Axis.LENGTH
        if is_mask and not (named and form.key(last) in of_tokens):
            axes[last] = Axis.TOTAL
        found.append(replace(form, axes=tuple(axes)))
    return found
