"""Text on pages and in plots stands out from what is behind it: 4.5 to 1, WCAG 2.2 level AA."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest

from octavo.report.plots import style

CSS = (Path(style.__file__).parents[1] / "html" / "templates" / "page.css").read_text("utf-8")
LEAST = 4.5
ON_PAGES = [*product(("text", "dim", "accent"), ("bg", "card", "soft"))] + [
    (mark, behind) for mark in ("good", "warn", "bad") for behind in (f"{mark}-bg", "card")
]
"""What is written, on what."""


def contrast(one: str, other: str) -> float:
    """The ratio of relative luminances, as WCAG defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def themes() -> Iterator[tuple[str, Mapping[str, str]]]:
    roots = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    names = ("light", "dark", "print")
    for name, root in zip(names, roots, strict=True):
        yield name, dict(re.findall(r"--([\w-]+): (#\w+)", root))


THEMES = dict(themes())


def test_the_ratio_is_that_of_the_standard() -> None:
    assert contrast("#000", "#ffffff") == 21
    assert round(contrast("#767676", "#fff"), 2) == 4.54
    assert contrast("#777777", "#fff") < LEAST


@pytest.mark.parametrize("theme", THEMES)
def test_the_text_of_a_page_can_be_read(theme: str) -> None:
    colours = THEMES[theme]
    faint = {
        (text, behind): found
        for text, behind in ON_PAGES
        if (found := round(contrast(colours[text], colours[behind]), 2)) < LEAST
    }
    assert faint == {}


def test_the_text_of_a_plot_can_be_read() -> None:
    """Marks too: their labels have their colour."""
    written = {style.INK, style.SOFT, style.GOOD, style.WARN, *style.SERIES}
    light = {text: contrast(text, style.PAPER) for text in written}
    dark = {text: contrast(style._DARK[text], style._DARK[style.PAPER]) for text in written}
    on_pages = {text: contrast(text, THEMES["light"]["card"]) for text in written}
    for found in (light, dark, on_pages):
        assert {text: ratio for text, ratio in found.items() if ratio < LEAST} == {}
    assert style._DARK[style.PAPER] == THEMES["dark"]["card"]
