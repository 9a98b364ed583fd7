"""Long names of layers in tables: as globs, which --exclude and --only take.

`/encoder/layer.*/attention/query/MatMul` stands for a layer of each block, and
`*/Dense_0/einsum/Einsum` for one name that is too long.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

WIDTH = 56
"""Characters of a name in a table."""

SERIES = 3
"""Layers alike but for a number that are one row: of two, both are named."""

_NUMBER = re.compile(r"\d+")
_CUTS = "/.:"


@dataclass(frozen=True)
class Series:
    """`name` stands for the layers at `places`."""

    name: str
    places: tuple[int, ...]


def in_series(names: Sequence[str], alike: Sequence[Hashable]) -> list[Series]:
    """Layers whose names differ in numbers and that are `alike` beside it, as one each."""
    kinds: dict[Hashable, list[int]] = {}
    for i, (name, rest) in enumerate(zip(names, alike, strict=True)):
        kinds.setdefault((_NUMBER.sub("0", name), rest), []).append(i)
    groups = [
        part
        for places in kinds.values()
        for part in ([places] if len(places) >= SERIES else [[i] for i in places])
    ]
    return [
        Series(_pattern([names[i] for i in places]), tuple(places))
        for places in sorted(groups, key=lambda places: places[0])
    ]


def _pattern(names: Sequence[str]) -> str:
    """The names as one, with `*` for each number that is not the same in all."""
    columns = zip(*(_NUMBER.findall(name) for name in names), strict=True)
    stars = iter(column[0] if len({*column}) == 1 else "*" for column in columns)
    return _NUMBER.sub(lambda _: next(stars), names[0])


def shortened(names: Sequence[str], width: int = WIDTH) -> list[str]:
    """Each name, or where it is too long its end behind `*`.

    What is cut still tells the name from all others: more of it is kept where it must be.
    """
    known = list(dict.fromkeys(names))
    short = {name: name if len(name) <= width else _cut(name, known, width) for name in known}
    return [short[name] for name in names]


def _cut(name: str, known: Sequence[str], width: int) -> str:
    """`*` and the end of `name`; what tells it from names of the same end is put in front."""
    tail = name[-(width - 1) :]
    at = min((i for i in (tail.find(c) for c in _CUTS) if i > 0), default=0)
    tail = tail[at:]
    same = [other for other in known if other != name and other.endswith(tail)]
    differ = max((_common(name, other) for other in same), default=-1) + 1
    head = name[:differ]
    return name if differ + 1 + len(tail) >= len(name) else f"{head}*{tail}"


def _common(a: str, b: str) -> int:
    """How many characters the two begin with alike."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
