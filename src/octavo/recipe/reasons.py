"""Reasons of many layers as few lines: one for all that differ in nothing but numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def by_reason(reasons: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Each kind of reason once, in the order of the first of its kind, and where it stands.

    Where numbers differ the text has the range: `its table has 512 to 3072 bytes`.
    """
    kinds: dict[str, list[int]] = {}
    for i, reason in enumerate(reasons):
        kinds.setdefault(_NUMBER.sub("0", reason), []).append(i)
    return [(_merged([reasons[i] for i in places]), places) for places in kinds.values()]


def _merged(alike: Sequence[str]) -> str:
    found = [_NUMBER.findall(reason) for reason in dict.fromkeys(alike)]
    ranges = iter(
        column[0]
        if len({*column}) == 1
        else f"{min(column, key=float)} to {max(column, key=float)}"
        for column in zip(*found, strict=True)
    )
    return _NUMBER.sub(lambda _: next(ranges), alike[0])


def counted_reasons(ops: Sequence[str], reasons: Sequence[str]) -> str:
    """Why layers stay float, for a message: a line for each reason, such as `  30 Conv: ...`."""
    said = []
    for reason, places in by_reason(reasons):
        names = [ops[i] for i in places]
        counts = ", ".join(f"{names.count(op):,} {op}" for op in dict.fromkeys(names))
        said.append(f"\n  {counts}: {reason or 'no reason given'}")
    return "".join(said)
