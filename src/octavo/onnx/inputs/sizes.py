"""Sizes of open axes, guess by guess."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from octavo.onnx.inputs.axes import Axis, InputLayout
from octavo.onnx.inputs.roles import Role
from octavo.onnx.inputs.strides import Picture

_ROWS = (8, 3, 32, 1, 64)  # of models to which a row is a small thing
_MOST_A_ROW = 4096
_MOST_PICTURES = 2
_INSISTED = 4  # guesses that take the lengths that the graph asks for
_ONE_SIZE = frozenset([Axis.BATCH, Axis.PAST, Axis.HEIGHT, Axis.WIDTH])
"""Of these one size is enough: nothing has two batches, and two caches of different lengths."""


_LAST_SIZES = (32, 48, 2, 3, 64, 128, 100, 224, 256, 384, 512)
_LAST_SAMPLES = (512, 512, 1024, 4096, 4000, 48000, 1536, 256, 160000, 80000, 480000)


@dataclass(frozen=True)
class Guess:
    """Sizes by what an axis counts. `picture` is a number among those that the graph suggests,
    below 0 the size of any other axis.

    Axes that have different names get different sizes where `differ`. Exporters name axes that have
    to be equal by different names too, so that this is tried one time and not the other.
    """

    batch: int
    length: int
    frames: int
    samples: int
    past: int
    picture: int
    other: int
    differ: bool = False


GUESSES = (
    Guess(1, 16, 96, 16000, 8, 0, 8),
    Guess(2, 32, 64, 12800, 5, 1, 16, differ=True),
    Guess(1, 8, 50, 16384, 16, 2, 32),
    Guess(2, 64, 128, 8000, 3, 0, 12),
    Guess(1, 24, 100, 32000, 1, 3, 2, differ=True),
    *(
        Guess(2 if i == 1 else 1, size, size, samples, size, 4 + i, size)
        for i, (size, samples) in enumerate(zip(_LAST_SIZES, _LAST_SAMPLES, strict=True))
    ),
    *(Guess(n, n, n, n, n, 0, n) for n in (8, 3, 16, 2, 1)),
)


_GROWN = (*range(16, 257, 16), 512, 840, 1024, 2520, 4096, 16384, 27720, 65536)
"""Sizes of open axes where no guess was taken: what layers that take one size have been made for,
and multiples of all numbers up to 8 or 12."""
_MOST_NAMED = 8  # sizes of which the graph speaks


def grown(named: Iterable[int], *, of_ids: bool) -> list[Guess]:
    """Guesses of growing sizes, `named` ones first among those as large: all axes are as long as
    each other, since what exporters call a batch may be time, and then all but the batch.

    The batch of tokens `of_ids` is one, and grows no more.
    """
    sizes = sorted({*_GROWN, *[n for n in sorted({*named}) if n > 1][:_MOST_NAMED]})
    alike = [Guess(n, n, n, n, n, -1, n) for n in sizes if not of_ids]
    return alike + [Guess(1, n, n, n, n, -1, n) for n in sizes]


def is_of_rows(layouts: Sequence[InputLayout]) -> bool:
    """Tell whether nothing but the batch is open, and each of its rows is a small thing."""
    for layout in layouts:
        axes = zip(layout.axes, layout.sizes, strict=True)
        is_open = any(size is None and axis is not Axis.BATCH for axis, size in axes)
        if is_open or layout.kind.role in (Role.IDS, Role.IMAGE, Role.AUDIO, Role.PAST):
            return False
    rows = (math.prod(size or 1 for size in layout.sizes) for layout in layouts)
    return sum(rows) <= _MOST_A_ROW


@dataclass(frozen=True)
class Suggested:
    """What the graph says of sizes: of pictures those to try, and lengths that it insists on."""

    pictures: list[Picture] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)


class Sizes:
    """Sizes of the open axes of all inputs in one guess; those of one name are equal."""

    def __init__(
        self,
        guess: Guess,
        number: int,
        known: Mapping[str, int],
        suggested: Suggested,
        of_rows: bool,
    ) -> None:
        self._guess, self._pictures = guess, suggested.pictures
        self._lengths = suggested.lengths if number < _INSISTED else {}
        self.known = dict(known)
        self._batch = _ROWS[number % len(_ROWS)] if of_rows else guess.batch
        if self._pictures:
            self._batch = min(self._batch, _MOST_PICTURES)
        self._of_axis: dict[Axis, int] = {}

    def shape(self, layout: InputLayout) -> tuple[int, ...]:
        """Return the sizes of all axes of the input that `layout` describes."""
        return tuple(
            self._of_key(layout.key(i), axis) if size is None else size
            for i, (axis, size) in enumerate(zip(layout.axes, layout.sizes, strict=True))
        )

    def _of_key(self, key: str, axis: Axis) -> int:
        if key in self.known:
            return self.known[key]
        computed = evaluate(key, lambda name: self._of_key(name, _part(name, axis)))
        if computed is not None and computed > 0:
            return computed
        if key in self._lengths:
            return self.known.setdefault(key, self._lengths[key])
        nth = self._of_axis.get(axis, 0)
        self._of_axis[axis] = nth + 1
        size = self._size(axis)
        if self._guess.differ and axis not in _ONE_SIZE and nth:
            size = max(1, size - nth * max(1, size // 8))
        self.known[key] = size
        return size

    def _size(self, axis: Axis) -> int:
        guess = self._guess
        if axis in (Axis.HEIGHT, Axis.WIDTH):
            if not self._pictures or guess.picture < 0:
                return guess.other
            return self._pictures[guess.picture % len(self._pictures)][axis is Axis.WIDTH]
        return {
            Axis.BATCH: self._batch,
            Axis.LENGTH: guess.length,
            Axis.PAST: guess.past,
            Axis.TOTAL: guess.length,
            Axis.DEPTH: min(16, guess.frames),
            Axis.SAMPLES: guess.samples,
            Axis.FRAMES: guess.frames,
            Axis.OTHER: guess.other,
        }[axis]


def _part(name: str, axis: Axis) -> Axis:
    """Return the axis that a name in a sum of sizes counts along."""
    if "batch" in name.lower():
        return Axis.BATCH
    if "past" in name.lower():
        return Axis.PAST
    return Axis.LENGTH if axis is Axis.TOTAL else axis


_HYPHEN = re.compile(r"[A-Za-z_][-/][A-Za-z_]")  # a name such as batch-size is no difference
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def evaluate(text: str, size_of: Callable[[str], int]) -> int | None:
    """Return the value of `past_length + 1`, `2*s0`, `s1//2`; None for anything else."""
    if not any(c in text for c in "+-*/") or text.startswith("?") or _HYPHEN.search(text):
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, size_of)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.expr, size_of: Callable[[str], int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return size_of(node.id)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, size_of), _value(node.right, size_of)
        if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](left, right)
    raise ValueError(f"{ast.dump(node)} is no size")
