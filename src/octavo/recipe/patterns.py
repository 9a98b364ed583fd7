"""Regular expressions that match names in bounded time, whoever wrote them.

Python's `re` tries one way after the other: `(a+)+b` takes 2^n steps over n letters. An expression
with few repetitions is left to it. For others all ways are followed at once: from each position of
a name, each part of the expression leads to a set of positions, found once and kept (Thompson,
"Regular expression search algorithm", 1968). That is at most n^3 steps a part.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, reduce
from operator import or_
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as ops  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as ops
    import sre_parse as parser

MOST_CHARACTERS = 1000
"""Of an expression."""
_FEW = 2
"""Repetitions that `re` may try in all ways: n^2 steps."""
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT)
_GROUPS = (ops.SUBPATTERN, ops.ASSERT, ops.ASSERT_NOT)
_DEEPEST = 10
"""Repetitions in one another."""
_WRITTEN = {
    "AT_BEGINNING": "^", "AT_BEGINNING_STRING": r"\A", "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B", "AT_END": "$", "AT_END_STRING": r"\Z",
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


def check(pattern: str) -> None:
    """Raise ValueError, which says why, where `pattern` is no expression or cannot be bounded."""
    _compiled(pattern)


def matches(pattern: str, name: str) -> bool:
    """Tell whether the expression describes all of `name`. Raises ValueError as `check` does."""
    expression, parts = _compiled(pattern)
    if parts is None:
        return expression.fullmatch(name) is not None
    return bool(_Walk(name, expression.flags).ends(parts, 0) >> len(name) & 1)


@cache
def _compiled(pattern: str) -> tuple[re.Pattern[str], Any]:
    """Return the expression for `re`, and its parts where `re` would try too many ways."""
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(pattern)} characters, and {MOST_CHARACTERS} are allowed")
    try:
        expression, parts = re.compile(pattern), parser.parse(pattern)
    except re.error as error:
        raise ValueError(str(error)) from None
    except (RecursionError, OverflowError):
        raise ValueError("it is nested too deeply") from None
    return expression, parts if _repeats(parts, 0) > _FEW else None


def _repeats(parts: Any, depth: int) -> int:
    """Count the repetitions; one inside of another (`depth` above 0), or a choice there, counts as
    too many."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    each, count = (_FEW + 1 if depth else 1), 0
    for kind, value in parts:
        if kind in _REPEATS:
            least, most, body = value
            count += each if most > least else 0
            count += _repeats(body, depth + 1 if most > 1 else depth)
        elif kind is ops.BRANCH:
            count += each if depth else 0
            count += sum(_repeats(choice, depth) for choice in value[1])
        elif kind in _GROUPS:
            if kind is ops.SUBPATTERN and any(value[1:3]):
                raise ValueError("flags of a group are not known here; put them first")
            count += _repeats(value[-1], depth)
        elif kind not in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN, ops.AT):
            what = "references to groups, conditions and atomic groups"
            raise ValueError(f"{what} cannot be matched in bounded time; write it without them")
    return count


class _Walk:
    """All ways through one name. A set of positions is an int with a bit for each."""

    def __init__(self, name: str, flags: int) -> None:
        self.name, self.flags = name, flags & ~re.VERBOSE
        self._found: dict[tuple[int, int], int] = {}

    def ends(self, parts: Any, start: int) -> int:
        """Return where `parts`, one after the other, may end that begin at `start`."""
        kept = self._found.get((id(parts), start))
        if kept is None:
            kept = 1 << start
            for kind, value in parts:
                kept = self._part(kind, value, kept)
            self._found[id(parts), start] = kept
        return kept

    def _all_ends(self, parts: Any, starts: int) -> int:
        return _union(self.ends(parts, start) for start in _positions(starts))

    def _part(self, kind: Any, value: Any, starts: int) -> int:
        if kind in _REPEATS:
            least, most, body = value
            return self._repeated(least, most, body, starts)
        if kind is ops.BRANCH:
            return _union(self._all_ends(each, starts) for each in value[1])
        if kind is ops.SUBPATTERN:
            return self._all_ends(value[-1], starts)
        if kind in (ops.ASSERT, ops.ASSERT_NOT):
            direction, body = value
            held = (p for p in _positions(starts) if self._holds(direction, body, p))
            found = _union(1 << p for p in held)
            return found if kind is ops.ASSERT else starts & ~found
        leaf = _leaf(_source(kind, value), self.flags)
        ways = (leaf.match(self.name, start) for start in _positions(starts))
        return _union(1 << way.end() for way in ways if way is not None)

    def _repeated(self, least: int, most: int, body: Any, reached: int) -> int:
        """More than n + 1 rounds reach nothing new: some of them match nothing."""
        rounds, every = len(self.name) + 1, 0
        least, most = min(least, rounds), min(most, rounds)
        for count in range(most + 1):
            if count >= least:  # who was here before has more rounds left
                reached &= ~every
                every |= reached
            if not reached or count == most:
                break
            reached = self._all_ends(body, reached)
        return every

    def _holds(self, direction: int, body: Any, start: int) -> bool:
        if direction > 0:
            return self.ends(body, start) != 0
        begin = start - body.getwidth()[0]
        return begin >= 0 and bool(self.ends(body, begin) >> start & 1)


def _positions(found: int) -> Iterator[int]:
    while found:
        yield (found & -found).bit_length() - 1
        found &= found - 1


def _union(found: Iterator[int]) -> int:
    return reduce(or_, found, 0)


@cache
def _leaf(source: str, flags: int) -> re.Pattern[str]:
    return re.compile(source, flags)


def _source(kind: Any, value: Any) -> str:
    """Return one character, or one place, as it is written in a pattern."""
    if kind is ops.LITERAL:
        return re.escape(chr(value))
    if kind is ops.NOT_LITERAL:
        return f"[^{re.escape(chr(value))}]"
    if kind is ops.ANY:
        return "."
    if kind is ops.AT:
        return _WRITTEN[value.name]
    written: dict[Any, Callable[[Any], str]] = {
        ops.NEGATE: lambda _: "^",
        ops.LITERAL: lambda one: re.escape(chr(one)),
        ops.RANGE: lambda two: "-".join(re.escape(chr(one)) for one in two),
        ops.CATEGORY: lambda one: _WRITTEN[one.name],
    }
    return f"[{''.join(written[kind](value) for kind, value in value)}]"
