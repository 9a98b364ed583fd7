"""Pages of what was measured: sentences, tables and pictures, and what is left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from octavo.recipe import Recipe
from octavo.report.html import report_html, tuning_html
from octavo.report.html.parts import bars, noise_bars
from octavo.report.html.verdict import measured_verdict
from octavo.results.benchmark import Benchmark
from octavo.results.evidence import FLOAT, QUANTIZED, Evidence
from octavo.results.report import Report
from octavo.results.words import number
from tests.report.evidence_samples import (
    BENCHMARK,
    comparison,
    difference,
    evidence,
    pair,
    timed,
)
from tests.report.test_html_pages import (
    HOSTILE,
    SHOWN,
    Element,
    data_of,
    heading,
    parsed,
    rows,
    section,
)
from tests.report.tuning_samples import layer_report, result


def column(table: Element, name: str) -> list[Element]:
    """The cells below one heading."""
    heads = [th.words().strip() for th in table.all("th")]
    return [row[heads.index(name)] for row in rows(table)]


def values(table: Element, name: str) -> list[float | None]:
    """What the cells are sorted by."""
    found = [cell.attrs.get("data-v") for cell in column(table, name)]
    return [None if value is None else float(value) for value in found]


def verdict_of(page: Element) -> str:
    (sentence,) = page.all("p", **{"class": "verdict"})
    return sentence.text


def ids(page: Element) -> list[str | None]:
    return [found.attrs["id"] for found in page.all("section")]


def benchmark(ratio: float, within: float = 0.01) -> Benchmark:
    return replace(BENCHMARK, rows=(pair(FLOAT, QUANTIZED, ratio, within),))


SENTENCES = {
    "all": (
        evidence(),
        "1.92x as fast as float (99% interval 1.90x to 1.94x), 3.9x smaller (90.4 MB to 23.1 MB), "
        "25.2 times less error than ONNX Runtime's own int8 at its default of one scale a tensor "
        "(0.0021 against 0.053) and 1.33x as fast as that (1.32x to 1.34x).",
    ),
    "not timed": (evidence(benchmark=None, ort=None), "An error of 0.0021 against float."),
    "not compared": (
        evidence(comparison=None, ort=None),
        "1.92x as fast as float (99% interval 1.90x to 1.94x), 3.9x smaller (90.4 MB to 23.1 MB) "
        "and 1.33x as fast as ONNX Runtime's own int8 (99% interval 1.32x to 1.34x).",
    ),
    "slower": (
        evidence(benchmark=benchmark(1.1), ort=None),
        "Slower than float: it takes 1.100 times as long (99% interval 1.089 to 1.111), "
        "3.9x smaller (90.4 MB to 23.1 MB) and an error of 0.0021 against float.",
    ),
    "the same": (
        evidence(benchmark=benchmark(1.0), comparison=None, ort=None),
        "As fast as float (no difference seen, within 1.0%) and 3.9x smaller (90.4 MB to 23.1 MB).",
    ),
    "noisy": (
        evidence(benchmark=benchmark(1.0, 0.3), comparison=None, ort=None),
        "3.9x smaller (90.4 MB to 23.1 MB). Whether it is faster than float cannot be told, too "
        "noisy: it takes 0.700 to 1.300 of the time.",
    ),
    "faster, who knows how much": (
        evidence(benchmark=benchmark(0.3, 0.5), comparison=None, ort=None),
        "2.2x to 6.7x as fast as float (noisy) and 3.9x smaller (90.4 MB to 23.1 MB).",
    ),
    "worse than theirs": (
        evidence(benchmark=None, ort=comparison(worst=0.0007)),
        "3.0 times the error of ONNX Runtime's own int8 at its default of one scale a tensor "
        "(0.0021 against 0.0007).",
    ),
    "as theirs": (
        evidence(benchmark=None, ort=comparison(worst=0.00201)),
        "The same error as ONNX Runtime's own int8 (0.0021 against 0.002).",
    ),
    "exact": (
        evidence(benchmark=None, comparison=comparison(worst=0.0)),
        "Less error than ONNX Runtime's own int8 (0 against 0.053).",
    ),
    "theirs is not finite": (
        evidence(benchmark=None, ort=comparison(worst=math.inf)),
        "An error of 0.0021 against float, where ONNX Runtime's own int8 gives numbers that are "
        "not finite.",
    ),
    "nothing": (Evidence(), ""),
}


@pytest.mark.parametrize(("given", "said"), SENTENCES.values(), ids=SENTENCES)
def test_the_verdict_in_a_sentence(given: Evidence, said: str) -> None:
    assert measured_verdict(given) == said


def test_a_report_with_evidence() -> None:
    page = parsed(report_html(layer_report(), evidence()))
    assert heading(page) == "!Check before you ship"
    (summary,) = page.all("p", **{"class": "summary"})
    assert summary.text == (
        "It is 3.9x smaller (90.4 MB to 23.1 MB), 1.92x as fast as the float model and 99.8% like "
        "it in its worst output last_hidden_state: check it before you ship it, because most of "
        "the error comes from one layer, fc5."
    )
    assert verdict_of(page) == (
        SENTENCES["all"][1]
        + " 11 of 12 layers are quantized, the comparison with the float model passed. "
        "Look first at fc5, alone 1.0 dB."
    )
    assert ids(page) == ["next", "sizes", "beside", "float", "errors", "layers", "ranges", "run"]
    tiles = {
        tile.all("dt")[0].words(): [dd.words() for dd in tile.all("dd") if dd.words()]
        for tile in page.all("div", **{"class": "tile"})
    }
    assert tiles == {
        "Speed": ["1.92x", "8.10 ms to 4.21 ms, 99% interval 1.90x to 1.94x"],
        "Size": ["23.1 MB", "3.9x smaller, float 90.4 MB"],
        "Error": ["0.0021", "ONNX Runtime's own int8 of its defaults: 0.053; SQNR 23.8 dB"],
        "Top-1 agreement": [
            "98.4%",
            "same largest number as float; ONNX Runtime's own int8: 98.4%",
        ],
        "Quantized": ["11 of 12", "layers; 2.4 MB of weights left float"],
    }


def test_nothing_stands_out_and_the_verdict_is_good() -> None:
    page = parsed(report_html(layer_report(), evidence(comparison=comparison(broken=None))))
    assert heading(page) == "✓Ready to ship"
    assert verdict_of(page).endswith("the comparison with the float model passed.")


@pytest.mark.parametrize(
    ("worst", "allowed", "sign"),
    [
        (97.0, 0.1, "✗"),
        (0.29, 0.3, "!"),
        (0.31, 0.3, "✗"),
        (0.0099, 0.3, "✓"),
        (0.009, 0.008, "✗"),
        (Recipe.max_error * 0.99, None, "!"),
        (Recipe.max_error * 1.01, None, "✗"),
    ],
)
def test_an_error_above_the_bound_is_not_good(
    worst: float, allowed: float | None, sign: str
) -> None:
    report = layer_report()
    recipe = {"name": "mine"} | ({} if allowed is None else {"max_error": allowed})
    given = evidence(comparison=comparison(worst=worst, broken=None), ort=None)
    reports: list[Report | None] = [replace(report, recipe=recipe)]
    if allowed is None:
        reports.append(None)
    for one in reports:
        page = parsed(report_html(one, given))
        assert heading(page)[0] == sign
        bound = number(Recipe.max_error if allowed is None else allowed)
        said = f"The error is above {bound}, the largest allowed."
        assert verdict_of(page).endswith(said) is (sign == "✗")


def test_a_layer_to_blame_is_named_in_the_verdict() -> None:
    found = comparison(worst=97.0, broken=7)
    page = parsed(report_html(None, evidence(comparison=found)))
    assert heading(page) == "✗Not ready to ship"
    assert verdict_of(page).endswith("the largest allowed. Look first at fc7, alone 1.0 dB.")


def test_the_embedded_data_is_all_that_was_given() -> None:
    given = evidence()
    expected = given.to_dict()
    data = data_of(parsed(report_html(layer_report(), given)))
    assert data == {
        "report": json.loads(layer_report().to_json()),
        "result": None,
        "evidence": expected,
    }
    assert Report.from_dict(data["report"]) == layer_report()
    data = data_of(parsed(tuning_html(result(), given)))
    assert (data["report"], data["evidence"]) == (None, expected)
    assert data["result"]["model"] == "model.onnx"
    assert data_of(parsed(report_html(None, given)))["report"] is None


def test_models_beside_each_other() -> None:
    page = parsed(report_html(layer_report(), evidence()))
    table = section(page, "beside")
    names = [cell.text for cell in column(table, "model")]
    assert names == ["float", "quantized", "ONNX Runtime's own int8"]
    for name, key in (
        ("size", "bytes"),
        ("latency", "seconds"),
        ("per second", "per_second"),
        ("load", "load_seconds"),
        ("memory", "peak_memory"),
    ):
        assert values(table, name) == [getattr(one, key) for one in BENCHMARK.models]
    for name, said in (
        ("size", ("90.4 MB", "23.1 MB", "22.9 MB")),
        ("latency", ("8.10 ms", "4.21 ms", "5.60 ms")),
    ):
        cells = [cell.words()[:7] for cell in column(table, name)]
        assert cells == [*said]
    assert values(table, "time / float") == [None, 0.52, 0.6912]
    assert values(table, "error") == [None, 0.0021, 0.053]
    assert values(table, "top-1") == [None, 0.984, 0.984]
    assert column(table, "time / float")[1].words() == "0.520 faster0.515 to 0.525"
    assert column(table, "error")[2].words() == "0.0531 - cosine 0.052"
    widths = [cell.all("i")[0].attrs["style"] for cell in column(table, "size")]
    assert widths == ["width:100.0%", "width:25.6%", "width:25.3%"]
    intro = table.all("p", **{"class": "intro"})[0].words()
    assert (
        "Timed for 31.4 s on a CPU, 2 processors, inputs ids=1x128, mask=1x128, 1 thread." in intro
    )
    assert "over 3 runs on inputs given" in intro


@pytest.mark.parametrize(
    ("ratio", "within", "said"),
    [(0.5, 0.01, "faster"), (1.2, 0.01, "slower"), (1, 0.01, "no difference"), (1, 0.2, "noisy")],
)
def test_what_the_interval_allows_to_say(ratio: float, within: float, said: str) -> None:
    sound = comparison(broken=None)
    given = evidence(benchmark=benchmark(ratio, within), comparison=sound)
    page = parsed(report_html(None, given))
    (tag,) = column(section(page, "beside"), "time / float")[1].all("span")[:1]
    assert said in tag.words()
    assert heading(page).startswith("!" if said == "slower" else "✓")


@pytest.mark.parametrize(
    ("target", "cpu", "said"),
    [("native", "vnni", "any x86-64 or ARM"), ("portable", "vnni", "vnni"), ("torch", "", None)],
)
def test_the_processors_of_a_file_are_those_that_run_it(
    target: str, cpu: str, said: str | None
) -> None:
    page = parsed(report_html(replace(layer_report(), target=target, cpu=cpu)))
    run = section(page, "run").words()
    assert ("Processors" not in run) if said is None else (f"Processors{said}" in run)


def test_several_shapes_are_several_rows() -> None:
    more = replace(timed(QUANTIZED, 0.02, 23_100_000), shape="ids=8x128", threads=2)
    found = replace(BENCHMARK, models=(*BENCHMARK.models, more))
    table = section(parsed(report_html(None, evidence(benchmark=found))), "beside")
    names = [cell.words() for cell in column(table, "model")]
    assert names[1] == "quantizedmodel.int8.onnx, inputs ids=1x128, mask=1x128, 1 thread"
    assert names[4] == "quantizedmodel.int8.onnx, inputs ids=8x128, 2 threads"
    assert values(table, "latency")[4] == 0.02


def test_what_was_not_measured_is_left_out_and_said() -> None:
    given = Evidence(notes=(f"not timed: {HOSTILE}",))
    page = parsed(report_html(layer_report(), given))
    beside = section(page, "beside")
    assert [th.words().strip() for th in beside.all("th")] == ["model", "size"]
    assert [li.words() for li in beside.all("li")] == [f"not timed: {SHOWN}"]
    assert "Nothing was timed." in beside.words()
    assert "ranges" not in ids(page)
    bare = parsed(report_html(None, Evidence(notes=("no luck",))))
    assert heading(bare) == "!Measured"
    assert "Nothing could be measured." in bare.words()
    assert ids(bare) == ["beside"]
    with pytest.raises(ValueError, match="a report, evidence or both"):
        report_html(None)


def test_a_page_of_a_search_names_who_timed() -> None:
    given = Evidence(notes=("no luck",))
    said = section(parsed(tuning_html(result(), given)), "beside").words()
    assert "Times are those of the search." in said
    assert "Nothing was timed." not in said


def test_layers_are_joined_by_name_the_worst_first() -> None:
    found = comparison()
    table = section(parsed(report_html(layer_report(), evidence())), "layers")
    names = [cell.words() for cell in column(table, "layer")]
    assert names[0] == "fc5 look here first"
    assert names[1:] == [layer.name for layer in found.layers[1:]] + ["fc12"]
    assert values(table, "#") == [*(int(name.split()[0][2:]) for name in names[:-1]), 12]
    assert values(table, "alone") == [
        *(layer.alone.sqnr_db for layer in found.layers if layer.alone),
        None,
    ]
    assert values(table, "accumulated")[:2] == [
        layer.accumulated.sqnr_db for layer in found.layers[:2] if layer.accumulated
    ]
    reasons = [cell.words() for cell in column(table, "reason")]
    assert reasons == [*["recipe int8"] * 11, "the accuracy criterion"]
    assert column(table, "alone")[0].words() == "1.0 dB"
    assert values(table, "before") == [2_359_296] * 12
    (head,) = [th for th in table.all("th") if "aria-sort" in th.attrs]
    assert (head.words(), head.attrs["aria-sort"]) == ("alone", "ascending")
    assert "Look first at fc5: alone it has 1.0 dB, the median of all layers is" in table.words()


def test_both_errors_of_a_layer_are_drawn_at_one_scale() -> None:
    found = comparison()
    worst = replace(found.layers[0], accumulated=difference(40.0))
    page = report_html(None, evidence(comparison=replace(found, layers=(worst, *found.layers[1:]))))
    table = section(parsed(page), "layers")
    alone, accumulated = (
        [float(i.attrs["style"][6:-1]) for cell in column(table, name) for i in cell.all("i")]
        for name in ("alone", "accumulated")
    )
    assert accumulated[0] == max(*alone, *accumulated) == 100.0
    assert alone[0] < 90.0


def test_layers_of_a_file_whose_decisions_are_not_known() -> None:
    table = section(parsed(report_html(None, evidence())), "layers")
    heads = [th.words().strip() for th in table.all("th")]
    assert heads == ["layer", "operator", "alone", "accumulated"]
    assert len(rows(table)) == 11
    assert "11 quantized layers, and 1 left float." in table.words()


def test_layers_that_stand_on_one_side_only_are_shown() -> None:
    found = replace(
        comparison(3, broken=None),
        layers=(*comparison(3, broken=None).layers, comparison(20, broken=None).layers[0]),
    )
    report = replace(layer_report(), layers=layer_report().layers[:2])
    table = section(parsed(report_html(report, evidence(comparison=found, ort=None))), "layers")
    assert sorted(cell.words() for cell in column(table, "layer")) == sorted(
        {layer.name for layer in found.layers} | {"fc1", "fc2"}
    )


def test_numbers_that_are_not_finite_come_first_and_are_explained() -> None:
    spoilt = difference(math.inf, non_finite=7)
    found = comparison(broken=None)
    layers = (replace(found.layers[3], alone=spoilt, notes=(HOSTILE,)), *found.layers)
    outputs = (replace(found.outputs[0], difference=spoilt), found.outputs[1])
    given = evidence(comparison=replace(found, layers=layers, outputs=outputs), benchmark=None)
    page = parsed(report_html(layer_report(), given))
    assert heading(page) == "✗Not ready to ship"
    (sentence,) = page.all("p", **{"class": "verdict"})
    assert sentence.text.startswith(
        "3.9x smaller (90.4 MB to 23.1 MB) and numbers that are not finite, where the float "
        "model's are. 11 of 12"
    )
    table = section(page, "layers")
    assert values(table, "alone")[0] == -math.inf
    assert column(table, "alone")[0].all("span")[0].words() == "not finite"
    said = column(table, "reason")[0].words()
    assert (
        said == f"{SHOWN}; alone: 7 of 49,152 numbers are not finite, which the float model's are"
    )


def test_bars_are_proportional_and_those_of_noise_longer_where_worse() -> None:
    length = bars([0.0, 4.0, None, 8.0])
    assert [length(x) for x in (8.0, 2.0, 0.0, None)] == [1.0, 0.25, 0.0, None]
    assert bars([None])(3.0) is None
    noise = noise_bars([10.0, 50.0, math.inf])
    assert [noise(x) for x in (10.0, 30.0, 50.0)] == [1.0, 0.52, 0.04]
    assert (noise(math.inf), noise(-math.inf)) == (0.0, 1.0)
    # A decibel of difference does not look like a lot.
    assert noise_bars([40.0, 41.0])(41.0) == pytest.approx(0.904)


def test_a_tuning_run_with_evidence() -> None:
    page = parsed(tuning_html(result(), evidence()))
    assert ids(page) == [
        *("picture", "trials", "beside", "ranking", "errors"),
        *("layers", "ranges", "failed", "notes", "run"),
    ]
    (sentence,) = page.all("p", **{"class": "verdict"})
    assert sentence.text.endswith("accuracy lost. " + SENTENCES["all"][1])
    labels = [dt.words() for dt in page.all("dt")][:7]
    assert labels == "Accuracy|Speed|Size|Error|Top-1 agreement|Quantized|Search".split("|")


def test_notes_say_what_they_are_about() -> None:
    output = replace(comparison().outputs[1], difference=None, note="of another shape")
    found = replace(
        comparison(), notes=("inputs are long",), outputs=(comparison().outputs[0], output)
    )
    timing = replace(BENCHMARK, notes=("peak memory is not known",))
    page = parsed(report_html(layer_report(), evidence(comparison=found, benchmark=timing)))
    assert [
        (li.all("b")[0].text, li.all("span")[0].text) for li in section(page, "notes").all("li")
    ] == [
        ("The comparison", "inputs are long"),
        ("The timing", "peak memory is not known"),
        ("Output pooled", "of another shape"),
    ]


def test_hostile_names_in_evidence_are_text() -> None:
    found = comparison()
    layers = (replace(found.layers[0], name=HOSTILE, op=HOSTILE, at=(HOSTILE,)), *found.layers[1:])
    bad = replace(found, layers=layers, float_model=HOSTILE, quantized_model=HOSTILE)
    timing = replace(BENCHMARK, notes=(HOSTILE,))
    text = report_html(None, Evidence(bad, timing, bad, (HOSTILE,)))
    page = parsed(text)
    assert page.all("img") == []
    assert "\x1b" not in text
    assert len(page.all("script")) == 2
    assert data_of(page)["evidence"]["comparison"]["layers"][0]["name"] == HOSTILE
    shown = [cell.words() for cell in column(section(page, "layers"), "layer")]
    assert shown[0] == f"{SHOWN} look here first"
    assert SHOWN in [cell.words() for cell in column(section(page, "ranges"), "layer")]
