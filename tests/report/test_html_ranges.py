"""Ranges of activations and weights on a page: pictures, marks, and what outliers cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.graph.lower.recurrent import PER_STEP_NOTE
from octavo.report.html import report_html
from octavo.report.html.ranges import ranges_table
from octavo.results.comparison import Range
from tests.report.evidence_samples import comparison, evidence
from tests.report.test_html_evidence import column, values
from tests.report.test_html_pages import parsed, section
from tests.report.tuning_samples import layer_report


def test_ranges_are_sorted_by_peak_and_outliers_marked() -> None:
    found = comparison()
    table = section(parsed(report_html(layer_report(), evidence())), "ranges")
    by_name = {layer.name: layer for layer in found.layers}
    names = [cell.words() for cell in column(table, "layer")]
    for what, field in (("activation", "inputs"), ("weight", "weights")):
        shown = values(table, f"{what} peak")
        ranges = [getattr(by_name[name], field) for name in names]
        assert shown == [r.peak for r in ranges]
        marks = ["outliers" in cell.words() for cell in column(table, f"{what} peak")]
        assert marks == [r.stretched for r in ranges]
        assert any(marks)
        assert not all(marks)
    assert values(table, "activation peak") == sorted(
        values(table, "activation peak"), reverse=True
    )
    assert column(table, "activation peak")[0].words() == "78.7 outliers12 of 49,152 beyond 30 rms"
    assert column(table, "activations")[0].words() == "-0.17 to 48"
    intro = table.all("p", **{"class": "intro"})[0].words()
    assert "3 layers with outliers" in intro
    assert "It costs little here" in intro


def test_outliers_of_a_recipe_with_one_scale_a_tensor_are_said_to_cost() -> None:
    report = layer_report()
    layers = tuple(
        replace(o, scheme="int8 per tensor, activations per tensor") for o in report.layers
    )
    words = section(
        parsed(report_html(replace(report, layers=layers), evidence())), "ranges"
    ).words()
    assert "3 of them take one scale for a whole tensor and pay that price" in words
    assert "It costs little here" not in words


ROWS, BOTH = "int8 per channel, activations per row", "int8 per tensor, activations per tensor"
STRETCHED = Range(-1.0, 40.0, 1.0, 100, 1)
COSTS = {  # scheme, notes, side, kind -> what is said
    "asked": (
        BOTH,
        "",
        "inputs",
        "linear",
        "1 of them takes one scale for a whole tensor and pays",
    ),
    "only weights per tensor": (
        *("int8 per tensor, activations per row", "", "inputs", "linear"),
        "It costs little here: each row of an activation has a scale of its own, so that only the "
        "rows with outliers lose",
    ),
    "only activations per tensor": (
        *("int8 per channel, affine, activations per tensor", "", "weights", "linear"),
        "It costs little here: each output channel of a weight has",
    ),
    "an LSTM": (
        *(ROWS, PER_STEP_NOTE, "inputs", "lstm"),
        "takes one activation scale for a step of the whole batch",
    ),
    "an LSTM of weights alone": (
        *("int8 per channel, weights only", PER_STEP_NOTE, "inputs", "lstm"),
        "takes one activation scale for a step of the whole batch",
    ),
    "an LSTM's weights": (ROWS, PER_STEP_NOTE, "weights", "lstm", "It costs little here"),
    "attention": (
        *(ROWS, "activations per tensor in QAttention: it keeps a past", "inputs", "attention"),
        "takes one scale for a whole tensor, though the recipe asks for less, and pays that price",
    ),
    "a shared weight": (
        *(ROWS, "int8 per tensor, symmetric: layers that share the weight ask for it"),
        *("weights", "linear", "though the recipe asks for less"),
    ),
    "more than was asked": (
        *(ROWS, "activations per row (uint8), not per tensor (uint8)", "inputs", "linear"),
        "It costs little here",
    ),
    "an image": (ROWS, "", "inputs", "conv", "or for an image"),
    "float activations": (
        *("int8 per tensor, weights only", "", "inputs", "linear"),
        "It costs 1 of them nothing",
    ),
    "float16": ("float16, weights only", "", "weights", "linear", "It costs 1 of them nothing"),
}


@pytest.mark.parametrize(("scheme", "note", "side", "kind", "said"), COSTS.values(), ids=COSTS)
def test_what_outliers_cost(scheme: str, note: str, side: str, kind: str, said: str) -> None:
    report, layer = layer_report(), comparison().layers[0]
    plain = replace(layer, kind=kind, inputs=Range(-1, 1, 0.5, 9), weights=Range(-1, 1, 0.5, 9))
    stretched = replace(plain, **{side: STRETCHED})  # type: ignore[arg-type]
    notes = (note,) if note else ()
    outcomes = tuple(replace(outcome, scheme=scheme, notes=notes) for outcome in report.quantized)
    table = ranges_table(
        replace(comparison(), layers=(stretched,)), replace(report, layers=outcomes)
    )
    assert table is not None
    (_, consequence) = table.intro.split("four bits' worth. ")
    assert said in consequence
    assert consequence.count(". ") == 0  # and nothing else


def test_outliers_of_several_kinds_are_counted_apart() -> None:
    report, found = layer_report(), comparison()
    noted = {"fc3": (PER_STEP_NOTE,), "fc10": ("activations per tensor in QAttention: a past",)}
    outcomes = tuple(
        replace(outcome, notes=noted.get(outcome.layer.name, ())) for outcome in report.layers
    )
    table = ranges_table(found, replace(report, layers=outcomes))
    assert table is not None
    for said in (
        "1 of them takes one scale for a whole tensor, though",
        "1 of them takes one activation scale for a step",
        "It costs 1 of them little: each output channel of a weight has",
    ):
        assert said in table.intro
    table = ranges_table(found, replace(report, layers=outcomes[:3]))
    assert table is not None
    assert "Of 2 the report does not say how scales are shared." in table.intro


def test_the_picture_of_a_range() -> None:
    layer = replace(
        comparison().layers[0], inputs=Range(-1.0, 4.0, 0.5, 100), weights=Range(0, 0, 0, 9)
    )
    table = ranges_table(replace(comparison(), layers=(layer,)))
    assert table is not None
    strip = table.rows[0][1].strip
    assert strip is not None
    # All in parts of 4: from -0.25 to 1, a box of 1.5 to each side that ends where the range does.
    assert (strip.low, strip.high, strip.box_low, strip.box_high) == (-0.25, 1.0, -0.25, 0.375)
    assert table.rows[0][3].strip is None
    assert table.rows[0][4].text == "0.0"
    assert ranges_table(replace(comparison(), layers=())) is None
