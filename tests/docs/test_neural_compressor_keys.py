"""The lists of Neural Compressor's keys on docs/from_neural_compressor.md are the schema's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from octavo.tune.inc.schema import (
    REFUSED_APPROACHES,
    REFUSED_FRAMEWORKS,
    REFUSED_GRANULARITIES,
    REFUSED_SECTIONS,
    REFUSED_STRATEGIES,
    ROOT,
)
from octavo.tune.inc.sections import ByName, key_of

PAGE = Path(__file__).parents[2] / "docs" / "from_neural_compressor.md"


def table(heading: str) -> set[str]:
    """The words in backquotes of the first column below `heading`."""
    _, _, rest = PAGE.read_text("utf-8").partition(f"| {heading} |")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])}


def idle(kind: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places of the keys that do nothing; what lies below one is not looked at."""
    key = key_of(kind)
    if key.idle:
        yield place
        return
    inner = key.kind.kind if isinstance(key.kind, ByName) else key.kind
    if isinstance(inner, Mapping):
        for name, below in inner.items():
            yield from idle(below, (*place, name))


def named(place: tuple[str, ...], words: set[str]) -> bool:
    """Whether a word is the end of the place, or `section.*` a section that it lies in."""
    path = ".".join(place)
    return any(
        path == word
        or path.endswith(f".{word}")
        or (word.endswith(".*") and f".{path}.".find(f".{word[:-1]}") >= 0)
        for word in words
    )


def test_every_key_that_does_nothing_is_listed() -> None:
    words = table("ignored, with a note")
    places = list(idle(ROOT))
    assert len(places) > 20
    assert [place for place in places if not named(place, words)] == []
    unknown = [w for w in words if w != "evaluation" and not any(named(p, {w}) for p in places)]
    assert unknown == []


def test_every_word_that_is_refused_is_listed() -> None:
    words = table("refused, with file and line")
    known = {word.rpartition(": ")[2] for word in words}
    mentioned = {
        *REFUSED_SECTIONS,
        *REFUSED_APPROACHES,
        *REFUSED_STRATEGIES,
        *REFUSED_GRANULARITIES,
        "gpu",
    }
    mentioned |= {*REFUSED_FRAMEWORKS} - {"NA"}  # which says what it leaves open
    mentioned -= {"auto_mixed_precision"}  # another spelling
    assert mentioned <= known
