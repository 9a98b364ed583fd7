"""What names of inputs and axes tell. Names are the last hint: graphs are asked first."""

from __future__ import annotations

import re

_PARTS = re.compile(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_name(symbol: object) -> bool:
    """Whether a size has a name that stands for one size; `?` and `-1` do not."""
    return isinstance(symbol, str) and any(c.isalpha() for c in symbol)


def parts(name: str | None) -> frozenset[str]:
    """The words in `attention_mask`, `inputLengths`, `past_key_values.0.key`."""
    text = _HUMPS.sub("_", name or "").lower()
    return frozenset(part for part in _PARTS.split(text) if part)


def says(name: str | None, *words: str) -> bool:
    """Whether one of `words` is a word of `name`."""
    return not parts(name).isdisjoint(words)
