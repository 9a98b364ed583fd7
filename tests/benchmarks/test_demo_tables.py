"""What the demo says, made of its figures."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks import demo_tables
from benchmarks.demo_tables import Outcome
from benchmarks.variants import FLOAT, NATIVE, OCTAVO, OPENVINO, QD
from octavo.measure.timing import Comparison, Timing

pytestmark = pytest.mark.slow

MS = {FLOAT: 10.0, QD: 4.0, OPENVINO: 5.0, OCTAVO: 4.5, NATIVE: 2.5}
FOUND = {
    shape: Comparison({n: Timing((t * by, t * by), (1.0, 1.0)) for n, t in MS.items()})
    for shape, by in (("1x32", 1e-3), ("8x128", 3e-2))
}
OUTCOMES = {
    FLOAT: Outcome(90_000_000, 0.0, 0.656),
    QD: Outcome(22_500_000, 0.053, 0.648),
    OPENVINO: Outcome(23_000_000, 0.0011, 0.66),
    OCTAVO: Outcome(23_000_000, 0.0021, 0.657),
    NATIVE: Outcome(22_500_000, 0.0012, 0.658),
}


def test_the_conclusion_names_the_fastest_and_the_closest_of_the_others() -> None:
    said = demo_tables.conclusion(OUTCOMES, FOUND)
    assert "the mean of 1 text of 32 tokens and 8 texts of 128 tokens" in said
    assert "4.0 times smaller than the float model and 4.0 times as fast" in said
    assert "The fastest of the others, ONNX Runtime, is 2.5 times" in said
    assert "The closest to float, OpenVINO, has an error of 0.0011." in said


def test_the_table_has_a_line_for_each_model() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(demo_tables.table("ONNX files", OUTCOMES, FOUND))
    lines = console.export_text().splitlines()
    (native,) = [line.split() for line in lines if line.startswith("Octavo native")]
    assert native == "Octavo native 22.5 2.5 4.00x 75 4.00x 0.0012 0.658".split()
    assert len([line for line in lines if "x " in line]) >= len(OUTCOMES)
