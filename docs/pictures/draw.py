"""Draws the pictures of how_it_works.md: `python docs/pictures/draw.py` writes them beside itself.

The numbers in them are computed here. Colours are those of the page where the drawing stands in
one, and follow the reader's system elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
STYLE = """<style>
  .drawn { --ink: #24292f; --soft: #8c959f; --line: #d0d7de; --a: #4051b5; --b: #c2410c; }
  @media (prefers-color-scheme: dark) {
    svg.drawn { --ink: #e6edf3; --soft: #8b949e; --line: #3d444d; --a: #9fa8ff; --b: #fb923c; }
  }
  [data-md-color-scheme="default"] svg.drawn {
    --ink: #24292f; --soft: #6e7781; --line: #d0d7de; --a: #4051b5; --b: #c2410c;
  }
  [data-md-color-scheme="slate"] svg.drawn {
    --ink: #e6edf3; --soft: #9ba3ad; --line: #4a5059; --a: #9fa8ff; --b: #fb923c;
  }
  svg.drawn text { fill: var(--ink); font: 14px system-ui, sans-serif; }
  svg.drawn .soft { fill: var(--soft); }
  svg.drawn .small { font-size: 12px; }
  svg.drawn .mono { font-family: ui-monospace, monospace; }
  svg.drawn .mid { text-anchor: middle; }
  svg.drawn .end { text-anchor: end; }
  svg.drawn .box { fill: none; stroke: var(--soft); }
  svg.drawn .rule { fill: none; stroke: var(--line); }
  svg.drawn .a { fill: var(--a); }
  svg.drawn .b { fill: var(--b); }
  svg.drawn .arrow { fill: none; stroke: var(--ink); marker-end: url(#tip); }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
  orient="auto"><path d="M0 0 L8 4 L0 8 z" style="fill: var(--ink)"/></marker></defs>"""


def svg(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    """Return a document of `parts`."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawn" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n{STYLE}\n{body}\n</svg>\n"
    )


def text(x: float, y: float, said: object, kind: str = "") -> str:
    """One line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{said}</text>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Draw a filled rectangle."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}"/>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Draw a straight line."""
    return f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" class="{kind}"/>'


def pipeline() -> str:
    """Draw what is done ahead of time, and what in each call."""

    def parts() -> Iterator[str]:
        boxes = (
            (10, 40, "weight w", "float32"),
            (170, 40, "scale of each", "output channel"),
            (330, 40, "integers", "int8, in the file"),
            (10, 150, "activation x", "float32"),
            (170, 150, "scale and zero", "point of each row"),
            (330, 150, "integers", "uint8, 0 to 255"),
            (500, 95, "sums", "int32, exact"),
            (650, 95, "scale, bias,", "activation"),
        )
        yield text(10, 22, "once, when the model is quantized", "soft")
        yield text(10, 228, "in every call, row by row", "soft")
        for x, y, first, second in boxes:
            yield f'<rect x="{x}" y="{y}" width="130" height="54" rx="6" class="box"/>'
            yield text(x + 65, y + 23, first, "mid")
            yield text(x + 65, y + 42, second, "mid soft small")
        for y in (67, 177):
            yield line(140, y, 169, y, "arrow")
            yield line(300, y, 329, y, "arrow")
        yield line(460, 67, 499, 112, "arrow")
        yield line(460, 177, 499, 132, "arrow")
        yield line(630, 122, 649, 122, "arrow")
        yield line(715, 149, 715, 196, "arrow")
        yield text(715, 214, "y, float32", "mid")

    return svg(800, 240, "Weights are quantized once, activations in every call", parts())


def rows() -> str:
    """Draw the integers that tokens get with one scale for all, and with a scale each."""
    largest = np.array([1.1, 0.9, 20.0, 1.4])  # one token in a few is larger by far in real models
    shared = np.round(255 * largest / largest.max()).astype(int)

    def parts() -> Iterator[str]:
        yield text(20, 24, "token", "soft")
        yield text(110, 24, "values from 0 to", "soft")
        yield text(250, 24, "one scale for the tensor", "soft")
        yield text(530, 24, "a scale for each row", "soft")
        for i, (value, steps) in enumerate(zip(largest, shared, strict=True)):
            y = 50 + 34 * i
            yield text(20, y + 13, f"row {i}")
            yield text(170, y + 13, f"{value:.1f}", "mono end")
            for x, used, kind in ((250, steps, "b"), (530, 255, "a")):
                yield bar(x, y, max(0.7 * used, 2), 18, kind)
                yield text(x + 0.7 * used + 8, y + 14, f"{used} steps", "small")
        yield line(20, 186, 780, 186, "rule")
        yield text(20, 208, "Row 2 is large. With one scale it leaves the others a few steps each,")
        yield text(20, 228, "and whether it is in the batch changes their results.")

    return svg(800, 240, "Integers that are left to each token", parts())


def zero_points() -> str:
    """Where zero lies among the 256 integers."""
    cases = (
        ("any sign", 128, "-r", "r", "128 steps for each sign"),
        ("Relu, Softmax, Sigmoid", 0, "0", "r", "no number below 0: all 255 steps above it"),
        ("GELU, SiLU", 32, "-0.14 r", "r", "32 steps below 0, 223 above"),
    )

    def parts() -> Iterator[str]:
        for i, (name, zero, low, high, said) in enumerate(cases):
            y, x = 40 + 70 * i, 220.0
            yield text(20, y + 14, name)
            at = x + 2 * zero
            yield bar(x, y, 2 * zero, 20, "b")
            yield bar(at, y, 510 - 2 * zero, 20, "a")
            yield line(at, y - 6, at, y + 26, "box")
            yield text(at, y - 10, f"zero point {zero}", "small mid" if zero > 40 else "small")
            yield text(x, y + 38, low, "small soft")
            yield text(x + 510, y + 38, high, "small soft end")
            yield text(x + 255, y + 38, said, "small mid")

    return svg(800, 240, "Zero points of rows in target portable", parts())


def saturation() -> str:
    """Draw the largest sum of two products, against 16 bits."""
    limit = 2**15 - 1
    cases = (
        ("uint8 x int8", 2 * 255 * 127, "saturates"),
        ("uint8 x 7 bits", 2 * 255 * 63, "fits, at half the resolution"),
        ("VNNI: uint8 x int8", 2 * 255 * 127, "added in 32 bits: fits"),
    )

    def parts() -> Iterator[str]:
        scale = 480 / 66000
        for i, (name, largest, said) in enumerate(cases):
            y = 46 + 50 * i
            yield text(20, y + 15, name)
            fits = min(largest, limit) if i < 2 else largest
            yield bar(190, y, fits * scale, 22, "a")
            if largest > fits:
                yield bar(190 + fits * scale, y, (largest - fits) * scale, 22, "b")
            yield text(190 + largest * scale + 8, y + 16, f"{largest:,}", "small")
            yield text(190, y + 38, said, "small soft")
        x = 190 + limit * scale
        yield line(x, 30, x, 190, "box")
        yield text(x, 22, f"16 bits end at {limit:,}", "small mid")

    return svg(800, 210, "The largest sum of two products", parts())


PICTURES = {
    "pipeline": pipeline,
    "rows": rows,
    "zero_points": zero_points,
    "saturation": saturation,
}


def main() -> None:
    """Write every picture."""
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
