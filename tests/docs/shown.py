"""What a document shows of a command's output, held against what the command prints."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = r"(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?"
_FORMS = (
    (re.compile(rf"-?{_NUMBER}"), "#"),
    (re.compile(r"# (?:B|kB|MB|GB)\b"), "# bytes"),
    (re.compile(r"# (?:us|ms|s|min)\b"), "# seconds"),
    (re.compile(r"(# \w+?)s\b"), r"\1"),  # 1 layer, 2 layers
    (re.compile(r"[-\u2500\u2501]{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)


def differs(shown: Sequence[str], printed: Sequence[str]) -> str | None:
    """Where the two part, or None.

    Numbers, units of size and time, and white space may differ. A line `...` stands for any number
    of lines, `...` in a line for any text.
    """
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == "...":
            parts.append([])
        elif line.strip():
            parts[-1].append(line)
    rest = [form(line) for line in printed if line.strip()]
    for i, part in enumerate(parts):
        at = _find(part, rest, anchored=i == 0, at_end=i > 0 and i == len(parts) - 1)
        if at is None:
            return f"not printed in this order:\n{_listed(part)}\nprinted:\n{_listed(printed)}"
        rest = rest[at + len(part) :]
    if rest and parts[-1]:
        return f"printed and not shown:\n{_listed(rest)}"
    return None


def form(line: str) -> str:
    """The line without what differs from machine to machine and model to model."""
    for pattern, instead in _FORMS:
        line = pattern.sub(instead, line)
    return line.strip()


def _find(part: Sequence[str], lines: Sequence[str], *, anchored: bool, at_end: bool) -> int | None:
    """Where `part` stands in `lines`; at their begin or end where that is asked for."""
    patterns = [".*".join(map(re.escape, form(line).split("..."))) for line in part]
    last = len(lines) - len(part)
    places = range(last, -1, -1) if at_end else range(last + 1)
    for at in places:
        if all(re.fullmatch(p, lines[at + i]) for i, p in enumerate(patterns)):
            return at
        if anchored or (at_end and part):
            return None
    return None


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"
