"""Sections of what was measured of a quantized model; all kinds of pages share them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from octavo.report.evidence_words import ORT_NAME
from octavo.report.html.beside import beside_table
from octavo.report.html.layers import layer_table
from octavo.report.html.parts import Section
from octavo.report.html.ranges import ranges_table
from octavo.results.evidence import Evidence
from octavo.results.report import Report


def measured_sections(
    report: Report | None,
    evidence: Evidence | None,
    sizes: tuple[int | None, int | None],
    before_layers: Sequence[Section] = (),
    title: str = "Layers",
) -> Iterator[Section]:
    """The models beside each other, `before_layers`, the layers, their ranges; what there is."""
    if evidence is not None:
        yield beside_table(evidence, sizes)
    yield from before_layers
    layers = layer_table(report, evidence, title)
    if layers is not None:
        yield layers
    found = None if evidence is None else evidence.comparison
    ranges = None if found is None else ranges_table(found, report)
    if ranges is not None:
        yield ranges


def measured_notes(evidence: Evidence | None) -> list[tuple[str, str]]:
    """What the measurements have to say of themselves: (what it is about, the remark) pairs."""
    if evidence is None:
        return []
    about = (
        ("The comparison", evidence.comparison),
        ("The timing", evidence.benchmark),
        (ORT_NAME, evidence.ort),
    )
    found = [(what, note) for what, part in about if part is not None for note in part.notes]
    outputs = evidence.comparison.outputs if evidence.comparison is not None else ()
    return found + [(f"Output {output.name}", output.note) for output in outputs if output.note]
