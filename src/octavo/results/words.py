"""Figures and lists in words, as all pages write them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence


def clean(text: object) -> str:
    """Return `text` with control characters written as escapes: names come out of files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def size(n: int) -> str:
    """Bytes in decimal units: `812 B`, `4.1 kB`, `90.4 MB`, `1.23 GB`."""
    if n < 1000:
        return f"{n} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if round(n / scale, 1) < 1000:
            return f"{n / scale:.1f} {unit}"
    return f"{n / 1e9:.2f} GB"


def amount(n: int) -> str:
    """Write a large number in three digits: `812`, `4.1 k`, `590 k`, `1.21 M`, `14.2 G`."""
    units = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
    unit, scale = next((u for u in units if round(n / u[1]) < 1000), units[-1])
    value = n / scale
    digits = 0 if scale == 1 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()


def ratio(before: int, after: int) -> str:
    """Compare two sizes: `3.9x smaller`, `1.2x larger` or `the same size`."""
    if before == after or not before or not after:
        return "the same size" if before == after else f"{size(before)} to {size(after)}"
    word = "smaller" if after < before else "larger"
    return f"{max(before, after) / min(before, after):.1f}x {word}"


def number(x: float) -> str:
    """Two significant digits."""
    return f"{x:.2g}"


def share(x: float) -> str:
    """Format a share as a percentage, such as `98.4%` or `99.97%`.

    The text has as many digits as keep 100% and 0% for what is all or nothing.
    """
    for digits in range(1, 6):
        text = f"{x:.{digits}%}"
        if x in (0.0, 1.0) or float(text[:-1]) not in (0.0, 100.0):
            return text
    return "more than 99.999%" if x > 0.5 else "less than 0.001%"


def alike(cosine: float | None, error: float) -> str:
    """Write a cosine in six digits: `1.000000` only if `error` is 0; nothing without a cosine."""
    if cosine is None:
        return ""
    return f"{cosine if error == 0 else min(cosine, 0.999999):.6f}"


def apart(cosine_error: float | None, error: float) -> str:
    """Format an error of the cosine, such as `1 - cosine 0.0026`.

    The text is empty where the error was not measured, or is below what float64 holds.
    """
    if cosine_error is None or not math.isfinite(cosine_error):
        return ""
    return f"1 - cosine {number(cosine_error)}" if cosine_error > 0 or error == 0 else ""


def duration(seconds: float) -> str:
    """Format seconds as `31 ms`, `1.2 s` or `2 min 5 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95 or not math.isfinite(seconds):  # a damaged file may say so
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def latency(seconds: float | None) -> str:
    """Three significant digits: `812 us`, `4.20 ms`, `1.23 s`; nothing where there is no number."""
    if seconds is None:
        return ""
    unit, scale = next((u for u in (("s", 1.0), ("ms", 1e3)) if seconds * u[1] >= 1), ("us", 1e6))
    value = seconds * scale
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def decibels(x: float | None) -> str:
    """Format decibels as `41.2 dB`; `exact` without noise, nothing where there is no number."""
    if x is None:
        return ""
    return "exact" if x == math.inf else f"{x:.1f} dB"


def count(n: int, noun: str) -> str:
    """Format a number with its noun: `1 layer`, `36 layers`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def padding(rows: int) -> str:
    """Say `, without 37 rows of padding`; nothing where there is no padding."""
    return f", without {count(rows, 'row')} of padding" if rows else ""


def counts(items: Iterable[str]) -> str:
    """Count equal items: `12 MatMul, 1 Gemm`, in the order of the first of each."""
    return ", ".join(f"{n:,} {clean(item)}" for item, n in Counter(items).items())


def name(text: str) -> str:
    """Return a layer's or model's name, cleaned, `(no name)` where that is empty."""
    return clean(text) or "(no name)"


def names(items: Sequence[str], limit: int | None = 3) -> str:
    """List the first `limit` names and how many more there are; None names all."""
    more = len(items) - len(items[:limit])
    return ", ".join(map(name, items[:limit])) + (f" and {more:,} more" if more else "")


def shapes(weights: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """Format the shapes of weights: `384x1536`, one for each weight."""
    return ", ".join("x".join(map(str, shape)) or "scalar" for _, shape in weights)


def made_for(target: str, cpu: str) -> Iterator[tuple[str, str]]:
    """Yield what every page of a command says once of the ONNX file it wrote: what runs the file.

    A heading and its text; nothing of files that any ONNX Runtime runs alike on every processor. Of
    portable files the text is true where integers are multiplied.
    """
    if target == "native":
        yield "Opens with", "octavo.onnx.session, which registers Octavo's operators"
    elif target == "portable" and cpu == "vnni":
        yield "Made for", "VNNI, AMX or NEON; other x86 processors need octavo.onnx.session"
