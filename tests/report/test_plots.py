"""Plots of results: what they say, their themes, and that nothing but data changes them."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import pytest

from octavo.report.plots import style
from octavo.report.plots.errors import errors_plot
from octavo.report.plots.speeds import speeds_plot
from octavo.report.plots.style import Plot, Theme, darkened, decades
from octavo.report.plots.trials import trials_plot
from octavo.results.benchmark import Benchmark, Pair, Timed
from octavo.results.comparison import Comparison, Difference, OutputDifference
from tests.report.evidence_samples import comparison
from tests.report.tuning_samples import BASELINE, BEST, MISSED, result

pytest.importorskip("matplotlib")

HOSTILE = "a$b$_{x}<script>\n&amp;'\""


def benchmark(
    names: tuple[str, ...], shapes: tuple[str, ...] = ("ids=1x8",), threads: tuple[int, ...] = (1,)
) -> Benchmark:
    """Each model twice as fast as the one before it."""
    pairs, models = [], []
    for shape, count in itertools.product(shapes, threads):
        for i, j in itertools.combinations(range(len(names)), 2):
            ratio = 0.5 ** (j - i)
            bounds = (0.9 * ratio, 1.2 * ratio)
            pairs.append(Pair(names[i], names[j], shape, count, ratio, *bounds, 8))
        for i, name in enumerate(names):
            at = 0.008 * 0.5**i
            models.append(Timed(name, shape, count, at, 0.9 * at, 1.1 * at, 1 / at, 9))
    return Benchmark(tuple(pairs), tuple(models), 1.0)


def compared(*layers: float, output: float = 0.002) -> Comparison:
    """A comparison whose layers have these errors, and one output."""
    found = comparison(len(layers), broken=None)

    def difference(error: float) -> Difference:
        finite = math.isfinite(error)
        decibels = -10 * math.log10(2 * error) if 0 < error < math.inf else math.inf
        return Difference(
            error, decibels if finite else -math.inf, None, 0.1, 9, 0 if finite else 2
        )

    made = [replace(x, alone=difference(e)) for x, e in zip(found.layers, layers, strict=True)]
    outputs = (OutputDifference("y", difference(output)),)
    return replace(found, layers=tuple(made), outputs=outputs)


@cache
def drawn(name: str) -> Plot:
    """A plot of each kind; nothing changes it."""
    plot = {
        "speeds": lambda: speeds_plot(benchmark(("a.onnx", "b.onnx"), ("x=1x8", "x=1x32"), (1, 2))),
        "latency": lambda: speeds_plot(benchmark(("a.onnx",))),
        "errors": lambda: errors_plot(comparison(6)),
        "trials": lambda: trials_plot(result()),
    }[name]()
    assert plot is not None
    return plot


KINDS = ["speeds", "latency", "errors", "trials"]


def texts(plot: Plot | None) -> list[str]:
    """Every text of a plot, and what a mouse shows."""
    assert plot is not None
    root = ET.fromstring(plot.svg())
    return ["".join(e.itertext()) for e in root.iter() if e.tag.endswith(("}text", "}title"))]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", KINDS)
def test_the_same_numbers_give_the_same_bytes_whatever_the_readers_settings(name: str) -> None:
    import matplotlib

    first = drawn(name)
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "svg.fonttype": "path"}):
        again = drawn.__wrapped__(name)
        assert first.svg() == again.svg()
        assert first.png() == again.png()
    assert "<dc:date>" not in first.svg()
    assert first.png().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", KINDS)
def test_a_dark_plot_has_no_colour_of_a_light_one(name: str) -> None:
    plot = drawn(name)
    light, both = plot.svg(Theme.LIGHT), plot.svg(Theme.READER)
    colours, dark = (set(re.findall("#[0-9a-f]{6}", text)) for text in (light, darkened(light)))
    assert colours <= {*style._DARK}, "a colour has no partner"
    assert dark <= {*style._DARK.values()}
    assert both.count("prefers-color-scheme:dark") == 1
    assert f'style="fill: {style.PAPER}"' in both
    assert f'style="fill: {style.PAPER}"' not in light


def test_a_dark_plot_is_the_light_one_darkened() -> None:
    plot = drawn("latency")
    assert plot.svg(Theme.DARK) == darkened(plot.svg(Theme.LIGHT))


def test_colours_and_their_partners_are_told_apart() -> None:
    assert len({*style._DARK.values()}) == len(style._DARK)
    assert not {*style._DARK} & {*style._DARK.values()}


def test_each_model_and_shape_is_named_with_its_speed() -> None:
    said = texts(drawn("speeds"))
    for text in ("a.onnx", "b.onnx", "2.00x, 4.00 ms", "8.00 ms", "1x8", "1x32", "2 threads"):
        assert text in said
    assert any("99% interval" in text for text in said)
    assert said.count("2.00x, 4.00 ms") == 4
    alone = texts(drawn("latency"))
    assert any("Latency of a.onnx" in text for text in alone)
    assert "8.00 ms" in alone


def test_shapes_of_several_inputs_are_told_where_they_differ() -> None:
    alike = speeds_plot(benchmark(("a", "b"), ("ids=1x8,mask=1x8",)))
    assert alike.title == "Speed, a = 1, inputs 1x8, 1 thread"
    other = speeds_plot(benchmark(("a", "b"), ("ids=1x8,mask=2x8", "ids=1x9,mask=2x9")))
    assert "ids=1x8," in texts(other)


def test_names_of_files_are_text() -> None:
    plot = speeds_plot(benchmark((HOSTILE, "b.onnx")))
    assert any("a$b$_{x}<script>\\n&amp;" in text for text in texts(plot))
    assert "<script>" not in plot.svg()


def test_the_worst_layers_are_shown_and_the_one_to_blame_stands_out() -> None:
    plot = errors_plot(compared(*(0.1 if i == 0 else 1e-4 for i in range(40))))
    assert plot is not None
    assert plot.title == "Error of 1 output and the worst 24 of 40 quantized layers"
    shown, said = [x.name for x in comparison(40, broken=None).layers], texts(plot)
    assert {name in said for name in shown[:24]} == {True}
    assert {name in said for name in shown[24:]} == {False}
    assert re.search(rf"font-weight: 700[^>]*fill: {style.WARN}[^>]*>{shown[0]}<", plot.svg())
    narrow = errors_plot(compared(*[1e-4] * 40), 3.8)
    assert narrow is not None and "worst 12 of 40" in narrow.title


def test_errors_beyond_the_axis_are_said() -> None:
    said = texts(errors_plot(compared(math.inf, 1e-4, 0.0, output=0.0)))
    assert said.count("not finite") == 1
    assert said.count("none") == 2
    assert errors_plot(replace(compared(), outputs=())) is None


def test_decades_are_few_and_round() -> None:
    assert decades(1e-4, 1e-2) == ([1e-4, 1e-3, 1e-2], ["0.0001", "0.001", "0.01"])
    assert decades(2e-4, 2e-2)[1] == ["0.001", "0.01"]
    assert len(decades(1e-12, 1, most=4)[0]) <= 4


def test_trials_are_told_with_the_chosen_recipe_and_the_floor() -> None:
    said = texts(drawn("trials"))
    assert "best: int8, 1 of 12 layers float: fc3 (accuracy 0.912, 1.92x as fast)" in said
    assert "criterion: 0.9059" in said
    assert "lies further down than drawn" in said
    assert "time a run, float = 1: further left is faster" in said
    unknown = texts(trials_plot(result(bound=None)))
    assert not any(text.startswith("criterion") for text in unknown)


def test_size_stands_in_where_nothing_was_timed() -> None:
    trials = tuple(replace(t, time_ratio=None) for t in (BEST, MISSED))
    said = texts(trials_plot(result(trials=trials, best=trials[0])))
    assert "size, float = 1: further left is smaller" in said


def test_errors_are_drawn_with_less_higher_up() -> None:
    worse = replace(MISSED, accuracy=0.99)
    plot = trials_plot(result(trials=(BEST, worse), higher_is_better=False))
    said = texts(plot)
    assert any("less is better, drawn higher up" in text for text in said)
    assert "criterion: 0.9242" in said  # above the float model's error of 0.915


def test_nothing_is_drawn_without_numbers() -> None:
    assert trials_plot(result(baseline=replace(BASELINE, accuracy=None), trials=())) is None
