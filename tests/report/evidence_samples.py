"""Measurements that were made up, for the tests of what is shown of them."""

from __future__ import annotations

import math
from dataclasses import replace

from octavo.results.benchmark import Benchmark, Pair, Timed
from octavo.results.comparison import (
    Comparison,
    Difference,
    LayerDifference,
    OutputDifference,
    Range,
    worst_first,
)
from octavo.results.evidence import FLOAT, ORT, QUANTIZED, Evidence

SHAPE = "ids=1x128,mask=1x128"


def difference(error: float, **changes: object) -> Difference:
    """One with that error; its other figures go with it."""
    sqnr = (
        math.inf if error == 0 else -math.inf if error == math.inf else -10 * math.log10(2 * error)
    )
    made = Difference(error, sqnr, 1 - error * 0.98, 12 * error, 49_152)
    return replace(made, **changes)  # type: ignore[arg-type]


def layer(i: int, layers: int) -> LayerDifference:
    """`fc{i}`: its error grows with i; every seventh input and the last weight have outliers."""
    outliers = i % 7 == 3
    inputs = Range(-0.17, 48.0 if outliers else 3.1 + i / 10, 0.61, 49_152, 12 if outliers else 0)
    stretched = i == layers
    weights = Range(-1.9 if stretched else -0.21, 0.2, 0.04, 589_824, 3 if stretched else 0)
    error = 1e-5 * (1 + i)
    return LayerDifference(
        f"fc{i}",
        "linear",
        "MatMul",
        (f"y{i}",),
        difference(error),
        difference(error * (2 + i)),
        inputs=inputs,
        weights=weights,
    )


def comparison(layers: int = 11, worst: float = 0.0021, broken: int | None = 5) -> Comparison:
    """Of `fc1` to `fc{layers}`; `broken` is far worse than the others."""
    found = [layer(i, layers) for i in range(1, layers + 1)]
    if broken is not None:
        found[broken - 1] = replace(found[broken - 1], alone=difference(0.4))
    outputs = (
        OutputDifference("last_hidden_state", difference(worst), 0.984),
        OutputDifference("pooled", difference(worst / 3), 1.0),
    )
    return Comparison(
        "model.onnx",
        "model.int8.onnx",
        "portable",
        "given",
        3,
        outputs,
        worst_first(found),
        1,
    )


def timed(name: str, seconds: float, size: int) -> Timed:
    """One row of the benchmark."""
    return Timed(
        name,
        SHAPE,
        1,
        seconds,
        seconds * 0.99,
        seconds * 1.02,
        1 / seconds,
        640,
        bytes=size,
        load_seconds=size / 1e9,
        load_low=size / 1.1e9,
        load_high=size / 0.9e9,
        peak_memory=2 * size,
    )


def pair(a: str, b: str, ratio: float, within: float = 0.01) -> Pair:
    """The time of `b` over that of `a`."""
    return Pair(a, b, SHAPE, 1, ratio, ratio * (1 - within), ratio * (1 + within), 20)


BENCHMARK = Benchmark(
    (pair(FLOAT, QUANTIZED, 0.5200), pair(FLOAT, ORT, 0.6912), pair(QUANTIZED, ORT, 1.3292)),
    (
        timed(FLOAT, 0.0081, 90_400_000),
        timed(QUANTIZED, 0.004212, 23_100_000),
        timed(ORT, 0.0056, 22_900_000),
    ),
    31.4,
    machine="a CPU, 2 processors",
)


def evidence(**changes: object) -> Evidence:
    """Everything measured."""
    theirs = replace(comparison(worst=0.053), layers=())  # compared by its outputs alone
    made = Evidence(comparison(), BENCHMARK, theirs)
    return replace(made, **changes)  # type: ignore[arg-type]
