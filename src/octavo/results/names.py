"""Many layers in few rows: those of blocks together, long names cut, like reasons once.

Names are shortened to globs, which --exclude and --only take: `/encoder/layer.*/attention/query`
stands for a layer of each block, and `*/Dense_0/einsum/Einsum` for one name that is too long.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

WIDTH = 56
"""Characters of a name in a table."""

SERIES = 3
"""Layers alike but for a number that are one row: of two, both are named."""

_INTEGER = re.compile(r"\d+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_CUTS = "/.:"


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> list[tuple[Key, list[Item]]]:
    """Return (key, items) pairs in the order in which the keys first appear, adjacent or not."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.items())


@dataclass(frozen=True)
class Series:
    """`name` stands for the layers at `places`."""

    name: str
    places: tuple[int, ...]


def in_series(names: Sequence[str], alike: Sequence[Hashable]) -> list[Series]:
    """Layers whose names differ in numbers and that are `alike` beside it, as one each."""
    kinds = grouped(range(len(names)), lambda i: (_INTEGER.sub("0", names[i]), alike[i]))
    groups = [
        part
        for _, places in kinds
        for part in ([places] if len(places) >= SERIES else [[i] for i in places])
    ]
    return [
        Series(_merged([names[i] for i in places], _INTEGER, lambda _: "*"), tuple(places))
        for places in sorted(groups, key=lambda places: places[0])
    ]


def by_reason(reasons: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return each kind of reason once, in the order of the first of its kind, and its places.

    Where numbers differ the text has the range: `its table has 512 to 3072 bytes`.
    """
    kinds = grouped(range(len(reasons)), lambda i: _NUMBER.sub("0", reasons[i]))
    return [(_merged([reasons[i] for i in places], _NUMBER, _range), places) for _, places in kinds]


def _range(numbers: Sequence[str]) -> str:
    return f"{min(numbers, key=float)} to {max(numbers, key=float)}"


def _merged(
    alike: Sequence[str], number: re.Pattern[str], several: Callable[[Sequence[str]], str]
) -> str:
    """Texts that differ in numbers as one: `several` says what stands for those that differ."""
    found = [number.findall(text) for text in dict.fromkeys(alike)]
    stand_ins = iter(c[0] if len({*c}) == 1 else several(c) for c in zip(*found, strict=True))
    return number.sub(lambda _: next(stand_ins), alike[0])


def counted_reasons(ops: Sequence[str], reasons: Sequence[str]) -> str:
    """Say why layers stay float, for a message: a line a reason, such as `  30 Conv: ...`."""
    said = []
    for reason, places in by_reason(reasons):
        counts = Counter(ops[i] for i in places)
        held = ", ".join(f"{n:,} {op}" for op, n in counts.items())
        said.append(f"\n  {held}: {reason or 'no reason given'}")
    return "".join(said)


def shortened(names: Sequence[str], width: int = WIDTH) -> list[str]:
    """Return each name, or where it is too long its end behind `*`.

    What is cut still tells the name from all others: more of it is kept where it must be.
    """
    known = list(dict.fromkeys(names))
    short = {name: name if len(name) <= width else _cut(name, known, width) for name in known}
    return [short[name] for name in names]


def _cut(name: str, known: Sequence[str], width: int) -> str:
    """Cut a name to `*` and its end.

    What tells the name from names of the same end is put in front.
    """
    tail = name[-(width - 1) :]
    at = min((i for i in (tail.find(c) for c in _CUTS) if i > 0), default=0)
    tail = tail[at:]
    same = [other for other in known if other != name and other.endswith(tail)]
    differ = max((_common(name, other) for other in same), default=-1) + 1
    head = name[:differ]
    return name if differ + 1 + len(tail) >= len(name) else f"{head}*{tail}"


def _common(a: str, b: str) -> int:
    """Count the characters that `a` and `b` begin with alike."""
    differ = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differ, min(len(a), len(b)))
