"""ai.octavo.Norm inside ONNX Runtime."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from octavo.graph.rewrite.norms import reference
from tests.core.statement import assert_same_bits
from tests.native_target.nodes import inferred, refuses, run

SHAPES = [(3, 48), (1, 768), (2, 5, 37), (7, 1), (9, 16), (4, 2, 3, 64), (13, 515)]
CASES = [*product(SHAPES, ["layer", "rms"], [True, False])]


def operands(shape: tuple[int, ...], *, bias: bool) -> dict[str, np.ndarray]:
    """X with rows of very different sizes and means, weight, and bias."""
    rng = np.random.default_rng(sum(shape))
    sizes = np.geomspace(1e-3, 1e3, int(np.prod(shape[:-1]))).reshape(*shape[:-1], 1)
    x = rng.standard_normal(shape) * sizes + rng.standard_normal((*shape[:-1], 1)) * sizes
    made = {"X": x.astype(np.float32), "weight": rng.standard_normal(shape[-1]).astype(np.float32)}
    return made | ({"bias": rng.standard_normal(shape[-1]).astype(np.float32)} if bias else {})


@pytest.mark.parametrize(
    ("shape", "kind", "bias", "epsilon"),
    [*((*case, 1e-6) for case in CASES), ((3, 48), "rms", True, 4.0)],
    ids=str,
)
def test_it_computes_what_is_stated(
    shape: tuple[int, ...], kind: str, bias: bool, epsilon: float
) -> None:
    x = operands(shape, bias=bias)
    y = run("Norm", x, kind=kind, epsilon=epsilon)
    wide = {name: a.astype(np.float64) for name, a in x.items()}
    wanted = reference(wide["X"], wide["weight"], wide.get("bias", 0.0), kind, epsilon)
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_threads_and_other_rows_change_no_bits(kind: str) -> None:
    x = operands((300, 256), bias=True)
    one, two = (run("Norm", x, None, threads, kind=kind) for threads in (1, 2))
    assert_same_bits(one, two)
    assert_same_bits(one[101:102], run("Norm", x | {"X": x["X"][101:102]}, kind=kind))


@pytest.mark.parametrize("row", [0, 3, 8])
def test_not_a_number_stays_in_its_row(row: int) -> None:
    x = operands((9, 40), bias=True)
    clean = run("Norm", x, kind="layer")
    x["X"][row, 7] = np.nan
    y = run("Norm", x, kind="layer")
    assert np.isnan(y[row]).all()
    assert_same_bits(np.delete(y, row, 0), np.delete(clean, row, 0))


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (3, 0)])
def test_nothing_to_normalize(shape: tuple[int, ...]) -> None:
    x = {"X": np.zeros(shape, np.float32), "weight": np.zeros(shape[-1], np.float32)}
    assert run("Norm", x).shape == shape


def test_shapes_are_inferred() -> None:
    assert inferred("Norm", {"X": ["b", 7, 96], "weight": [96]}) == ["b", 7, 96]


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        ({"weight": (15,)}, {}, r"weight has shape \[15\] and X \[5, 16\]"),
        ({"bias": (1, 16)}, {}, r"bias has shape \[1, 16\] and X \[5, 16\]"),
        ({"X": ()}, {}, "X has no dimensions"),
        ({}, {"kind": "batch"}, "kind 'batch' is unknown"),
        ({}, {"epsilon": -1.0}, "epsilon is -1.0"),
        ({}, {"epsilon": float("inf")}, "epsilon is inf"),
    ],
)
def test_what_does_not_fit_is_refused(
    shapes: dict[str, tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    shapes = {"X": (5, 16), "weight": (16,), "bias": (16,)} | shapes
    feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    refuses(message, "Norm", feeds, **attributes)
