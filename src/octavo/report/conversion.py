"""A conversion between targets as text for people.

model.int8.onnx -> model.portable.onnx
target portable, cpu vnni

Converted: 36 GroupedLinear, 2 Embedding
Notes
  - activations per row: ...
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from octavo.recipe.conversion import Conversion
from octavo.recipe.report import Verification
from octavo.report import text as words
from octavo.report.check_words import check_failed_to_see, check_runs, check_status
from octavo.report.text import clean, duration, number, size


def conversion_text(done: Conversion) -> str:
    """The conversion as plain text."""
    return words.plain(list(_page(done)))


def print_conversion(done: Conversion, console: Console) -> None:
    """Prints the conversion."""
    words.show(list(_page(done)), console)


def _page(done: Conversion) -> Iterator[RenderableType]:
    yield Text(f"{clean(done.source)} -> {clean(done.output)}", style="bold")
    yield Text("target native" if done.target == "native" else f"target portable, cpu {done.cpu}")
    yield Text()
    counts = ", ".join(f"{n} {op}" for op, n in sorted(done.layers.items()))
    yield Text(f"Converted: {counts or 'no layers; the file says another target'}")
    if done.notes:
        yield Text("Notes", style="bold")
        yield from (words.indented(clean(note), 4, "-") for note in done.notes)
    yield Text()
    before, after = size(done.model_bytes_before), size(done.model_bytes_after)
    facts = [
        ("Model", f"{before} -> {after}"),
        ("Needs", f"ONNX Runtime {done.min_onnxruntime}, opset {done.opset}"),
        ("Check", _verification(done.verification)),
        ("Took", duration(done.seconds)),
    ]
    yield words.facts(facts)


def _verification(v: Verification) -> str:
    if v.status == "skipped":
        return "skipped"
    if v.error is None:
        return check_failed_to_see(v)
    bound = f"(at most {number(v.max_error or 0.0)} allowed)"
    return (
        f"{check_status(v)}: distance of the two files {number(v.error)} {bound}; {check_runs(v)}"
    )
