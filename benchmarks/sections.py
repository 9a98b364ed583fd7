"""Sections of a benchmark: where one stops with an error, the others go on."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping

from benchmarks.results import Row

Rows = Callable[[], Iterator[Row]]


def every(sections: Mapping[str, Rows]) -> list[Row]:
    """The rows of all `sections`; what cannot be measured is a missed row."""
    return [row for section, rows in sections.items() for row in guarded(section, rows)]


def guarded(section: str, rows: Rows) -> Iterator[Row]:
    """`rows`, and where they stop with an error, a missed row with that error."""
    try:
        yield from rows()
    except Exception as error:  # noqa: BLE001  # one section's error is not the others'
        note = reason(error)
        yield Row("figures not measured", math.nan, at_most=0, section=section, note=note)


def reason(error: Exception) -> str:
    """One line for a row, without the machine's folders; of a child that failed, its last line."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, subprocess.CalledProcessError) and str(error.stderr or "").strip():
        text = str(error.stderr).strip().splitlines()[-1]
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", ".../", " ".join(text.split()))[:300]
