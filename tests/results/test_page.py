"""Plain text is laid out as rich lays the same parts out on a page without end."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from octavo.report.terminal import rich_part
from octavo.results.page import Line, Page, Part, columns, facts, indented, line, plain_text

TEXT = st.text("ab /.-x0√é日本語\n", max_size=12)
FIGURE = st.text("ab /.-x0√é日本語", max_size=12).map(str.rstrip)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    kind = draw(st.sampled_from(["line", "facts", "indented", "columns"]))
    if kind == "line":
        return line(draw(TEXT), (draw(TEXT), "bold"))
    if kind == "facts":
        return facts(draw(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4)))
    if kind == "indented":
        return indented(draw(TEXT), draw(st.integers(2, 6)), draw(st.sampled_from(["", "-"])))
    table = columns("  name", "figure", "", right=("figure",))
    for _ in range(draw(st.integers(0, 4))):
        cells: list[str | Line] = [draw(TEXT), draw(FIGURE), line(draw(TEXT), (draw(TEXT), "dim"))]
        table.add_row(*cells)
    return table


def as_rich_has_it(page: Page) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=1_000_000, color_system=None, highlight=False)
    for part in page:
        console.print(rich_part(part))
    return "\n".join(text.rstrip() for text in stream.getvalue().rstrip().splitlines())


@given(st.lists(parts(), max_size=4))
def test_plain_text_is_what_rich_prints(page: list[Part]) -> None:
    assert plain_text(page) == as_rich_has_it(page)
