"""Comparisons as data and as text: the worst layer first, nothing hidden, nothing cut off."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace

from rich.console import Console

from octavo.report.terminal import show
from octavo.results.comparison import (
    Comparison,
    Difference,
    LayerDifference,
    OutputDifference,
    Range,
    worst_first,
)
from octavo.results.comparison_page import SHOWN
from tests.results.terminals import on_terminal

LONG = "/encoder/layer.11/attention/self/a_name_without_any_place_to_break_it_in_two/query/MatMul"


def difference(db: float, **changes: object) -> Difference:
    error = 0.5 * 10 ** (-db / 10)
    made = Difference(error, db, 0.9999, 0.25, 320)
    return replace(made, **changes)  # type: ignore[arg-type]


NOT_FINITE = difference(0.0, error=math.inf, sqnr_db=-math.inf, cosine=None, non_finite=7)


def layer(name: str, alone: Difference | None, accumulated: Difference | None) -> LayerDifference:
    return LayerDifference(name, "linear", "com.microsoft.Attention", (name,), alone, accumulated)


def comparison(*layers: LayerDifference, **changes: object) -> Comparison:
    outputs = (OutputDifference("logits", difference(31.4), 0.984),)
    made = Comparison(
        "m.onnx", "m.int8.onnx", "native", "given", 2, outputs, worst_first(layers), 3
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def lines(found: Comparison, verbose: bool = False) -> list[str]:
    return found.text(verbose).split("\n")


def test_layers_come_in_the_order_of_their_errors_alone_then_accumulated() -> None:
    found = worst_first(
        [
            layer("good", difference(40), difference(20)),
            layer("not called", None, None),
            layer("bad", difference(5), difference(5)),
            layer("same, later", difference(30), difference(25)),
            layer("same, worse", difference(30), difference(10)),
            layer("not finite", NOT_FINITE, NOT_FINITE),
        ]
    )
    names = ["not finite", "bad", "same, worse", "same, later", "good", "not called"]
    assert [v.name for v in found] == names


def test_the_page_says_all_there_is_to_say() -> None:
    found = comparison(
        layer("fine", difference(41.26), difference(33.3)),
        layer("fc", difference(2.0), difference(1.5)),
        layer("well", difference(39.0), difference(33.3)),
    )
    assert lines(found) == [
        "m.onnx and m.int8.onnx, target native",
        "2 runs on inputs given",
        "",
        "output     SQNR    cosine  max error  top-1",
        "logits  31.4 dB  0.999900       0.25  98.4%",
        "",
        "Quantized layers: 3, and 3 left float",
        "layer  op           alone  max error  accumulated",
        "fc     Attention   2.0 dB       0.25       1.5 dB",
        "well   Attention  39.0 dB       0.25      33.3 dB",
        "fine   Attention  41.3 dB       0.25      33.3 dB",
        "",
        "Look first at fc: alone it has 2.0 dB; the median of all layers is 39.0 dB",
    ]
    assert str(found) == found.text()


def test_no_layer_is_blamed_where_none_stands_out() -> None:
    found = comparison(*(layer(str(i), difference(40 - i), None) for i in range(9)))
    assert lines(found)[-1] == (
        "No layer stands out: the worst has 32.0 dB alone, the median 36.0 dB"
    )


def test_what_is_not_finite_is_in_the_text() -> None:
    left_out = difference(30, float_non_finite=4)
    found = comparison(
        layer("fc", NOT_FINITE, NOT_FINITE),
        layer("odd", left_out, difference(30)),
        outputs=(OutputDifference("y", NOT_FINITE, 0.0), OutputDifference("z", None, note="text")),
    )
    text = re.sub(" {2,}", " | ", found.text())
    said = "7 of 320 numbers are not finite, which the float model's are"
    assert f"y | not finite | 0.25 | 0.0% | {said}" in text
    assert "z | - | text" in text
    assert f"- fc: alone: {said}" in text
    assert f"- fc: accumulated: {said}" in text
    assert "- odd: alone: 4 numbers not finite in the float model, left out" in text
    assert text.endswith("Look first at fc: fed finite numbers, it gives others")


def test_many_layers_are_cut_short_unless_asked_for() -> None:
    found = comparison(*(layer(f"fc{i}", difference(40), None) for i in range(SHOWN + 5)))
    assert sum(line.startswith("fc") for line in lines(found)) == SHOWN
    assert "and 5 more, which are better: --verbose" in lines(found)
    assert sum(line.startswith("fc") for line in lines(found, verbose=True)) == SHOWN + 5


def test_a_terminal_of_80_columns_loses_nothing_and_control_characters_are_escaped() -> None:
    found = comparison(
        layer(LONG, difference(40), difference(30)), layer("a\x1b[31m", difference(2), None)
    )
    shown = on_terminal(found)
    assert all(len(line) <= 80 for line in shown.split("\n"))
    assert "*/query/MatMul" in shown and LONG not in shown
    assert LONG in found.text(verbose=True)
    assert "\x1b[31m" not in shown
    piped = Console(file=io.StringIO(), force_terminal=False)
    show(found, piped)
    assert piped.file.getvalue() == found.text() + "\n"
    assert any(line.startswith("*/query/MatMul ") for line in piped.file.getvalue().split("\n"))


def test_ranges_that_outliers_stretch_are_in_the_verbose_text_alone() -> None:
    spiked, flat = Range(-3.0, 812.4, 8.55, 4096, 2), Range(-3.0, 3.0, 1.0, 4096)
    heavy = [replace(spiked, low=-1000.0 - i) for i in range(4)]
    read = layer(LONG, difference(40), difference(30))
    found = comparison(
        replace(read, inputs=spiked, weights=flat),
        replace(read, name="reads the same", inputs=spiked),
        replace(read, name="fc", inputs=flat, weights=heavy[0]),
    )
    assert "reach" not in found.text()
    few = "times their root mean square: one scale for all of them would leave few bits"
    assert [line.strip() for line in lines(found, verbose=True) if "reach" in line] == [
        f"- weights of fc reach 1e+03, 117 {few}",
        f"- activations of {LONG} and 1 more reach 812, 95 {few}",
    ]
    shown = on_terminal(found, verbose=True)
    assert all(len(line) <= 80 for line in shown.split("\n"))
    assert few in " ".join(shown.split())
    many = comparison(*(replace(read, name=str(r.low), weights=r) for r in [*heavy, spiked]))
    text = lines(many, verbose=True)
    assert sum("reach" in line for line in text) == 3
    assert "  - and 2 more such ranges: --json" in text
    assert not any("reach" in line for line in lines(comparison(read), verbose=True))


def test_json_has_no_infinities_and_gives_them_back() -> None:
    exact = difference(0.0, error=0.0, sqnr_db=math.inf, cosine=1.0, max_error=0.0)
    found = comparison(
        layer("broken", NOT_FINITE, NOT_FINITE),
        layer("exact", exact, None),
        notes=("a note",),
    )
    data = json.loads(found.to_json())
    assert data["layers"][0]["alone"]["sqnr_db"] is data["layers"][0]["alone"]["error"] is None
    assert data["layers"][1]["alone"]["error"] == 0
    assert data["version"] == 1
    assert Comparison.from_dict(data) == found
