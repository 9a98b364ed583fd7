"""A benchmark as text: the page, each verdict, terminals and pipes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.results.benchmark import Benchmark, Pair, Timed, short_names
from tests.results.terminals import on_terminal

SHAPE = "ids=1x128,mask=1x128"
FLOAT = Timed(
    *("models/minilm.onnx", SHAPE, 1, 0.0081, 0.0080, 0.0083, 123.4, 960),
    **{"bytes": 90_400_000, "load_seconds": 0.095, "load_low": 0.09, "load_high": 0.1},
    peak_memory=181_000_000,
)
INT8 = Timed(
    *("out/minilm.int8.onnx", SHAPE, 1, 0.00421, 0.0042, 0.0043, 12345.6, 960),
    bytes=23_100_000,
)
FASTER = Pair(FLOAT.name, INT8.name, SHAPE, 1, 0.5202, 0.5101, 0.5303, 40)
FOUND = Benchmark((FASTER,), (FLOAT, INT8), 31.2, ("one note",))


def test_the_whole_text() -> None:
    assert (
        FOUND.text()
        == """\
inputs ids=1x128, mask=1x128, 1 thread
model             latency  spread   per s     load    memory     size
minilm.onnx       8.10 ms    3.7%     123  95.0 ms  181.0 MB  90.4 MB
minilm.int8.onnx  4.21 ms    2.4%  12,300                     23.1 MB

  minilm.int8.onnx: faster, takes 0.520 of the time of minilm.onnx (0.510 to 0.530): 1.92x as fast

Notes
  - one note
"""
        + (
            "Timed in turns for 31.2 s. Latency is the median of a run, spread the distance of its "
            "quartiles. Intervals hold 99% of the time; differences below 1.5% are not called so."
        )
    )
    assert str(FOUND) == FOUND.text()


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ((1.031, 1.02, 1.04), "b: slower, takes 1.031 times as long as a (1.020 to 1.040)"),
        ((12.34, 12.0, 12.5), "b: slower, takes 12.3 times as long as a (12 to 12.5)"),
        ((1.0, 0.984, 1.011), "b: no difference seen from a (within 1.6%: 0.984 to 1.011)"),
        ((1.0, 0.8, 1.3), "b: too noisy to tell from a (0.800 to 1.300)"),
    ],
)
def test_each_verdict(figures: tuple[float, float, float], said: str) -> None:
    models = tuple(Timed(name, "", None, 1.0, 1.0, 1.0, 1.0, 8) for name in "ab")
    text = Benchmark((Pair("a", "b", "", None, *figures, 8),), models, 1.0).text()
    assert f"  {said}\n" in text
    assert ("close what else runs on this machine" in text) == ("noisy" in said)
    assert text.startswith("model  latency  spread  per s\na       1.00 s    0.0%      1\n")


def test_a_terminal_of_80_columns_folds_names_and_cuts_nothing_off() -> None:
    name = "a-name-that-is-much-longer-than-any-column-could-be-in-eighty.onnx"
    long = Benchmark((), (replace(FLOAT, name=name), INT8), 1.0)
    for shown, kept in ((FOUND, "1.92x as fast"), (long, "181.0 MB")):
        text = on_terminal(shown)
        assert max(map(len, text.splitlines())) <= 80
        assert "..." not in text and "…" not in text
        assert kept in " ".join(text.split())
    assert "\x1b[" in on_terminal(FOUND, color=True)
    assert "\x1b[" not in on_terminal(FOUND)


def test_control_characters_of_names_are_escaped() -> None:
    text = Benchmark((), (replace(FLOAT, name="a\x1b[31m.onnx"),), 1.0).text()
    assert "a\\x1b[31m.onnx" in text


def test_names_are_short_where_that_is_enough() -> None:
    assert short_names(["x/a.onnx", "y/b.onnx"]) == {"x/a.onnx": "a.onnx", "y/b.onnx": "b.onnx"}
    assert short_names(["x/a.onnx", "y/a.onnx"]) == {
        "x/a.onnx": "x/a.onnx",
        "y/a.onnx": "y/a.onnx",
    }


def test_groups_come_one_after_the_other() -> None:
    two = tuple(replace(one, threads=2) for one in FOUND.models)
    pair = replace(FASTER, threads=2, ratio=1.5, low=1.4, high=1.6)
    text = Benchmark((FASTER, pair), (*FOUND.models, *two), 1.0).text()
    first, second = text.split("inputs ids=1x128, mask=1x128, 2 threads")
    assert "faster" in first
    assert "slower" not in first
    assert "slower" in second
