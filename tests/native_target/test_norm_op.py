"""ai.octavo.Norm inside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.graph.rewrite.norms import reference
from tests.core.statement import assert_same_bits
from tests.native_target.nodes import (
    REFUSALS,
    assert_same_on_every_isa,
    inferred,
    run,
    session,
)
from tests.native_target.norm_cases import CASES, operands

FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize("shape,kind,bias", CASES, ids=str)
def test_it_computes_what_is_stated(shape: tuple[int, ...], kind: str, bias: bool) -> None:
    x = operands(shape, bias=bias)
    y = run("Norm", x, {}, kind=kind, epsilon=1e-6)
    wide = {name: a.astype(np.float64) for name, a in x.items()}
    wanted = reference(wide["X"], wide["weight"], wide.get("bias", 0.0), kind, 1e-6)
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=1e-5)


def test_epsilon_is_an_attribute() -> None:
    x = operands((3, 48), bias=True)
    y = run("Norm", x, {}, kind="rms", epsilon=4.0)
    wanted = reference(*(x[name].astype(np.float64) for name in ("X", "weight", "bias")), "rms", 4)
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_threads_and_other_rows_change_no_bits(kind: str) -> None:
    x = operands((300, 256), bias=True)
    one, two = (run("Norm", x, {}, threads, kind=kind) for threads in (1, 2))
    assert_same_bits(one, two)
    some = run("Norm", x | {"X": x["X"][101:102]}, {}, kind=kind)
    assert_same_bits(one[101:102], some)


@pytest.mark.parametrize("row", range(9))
def test_not_a_number_stays_in_its_row(row: int) -> None:
    x = operands((9, 40), bias=True)
    clean = run("Norm", x, {}, kind="layer")
    x["X"][row, 7] = np.nan
    y = run("Norm", x, {}, kind="layer")
    assert np.isnan(y[row]).all()
    assert_same_bits(np.delete(y, row, 0), np.delete(clean, row, 0))


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (3, 0)])
def test_nothing_to_normalize(shape: tuple[int, ...]) -> None:
    x = {"X": np.zeros(shape, np.float32), "weight": np.zeros(shape[-1], np.float32)}
    assert run("Norm", x, {}).shape == shape


def test_every_instruction_set_gives_the_same_bits() -> None:
    assert_same_on_every_isa("tests.native_target.norm_cases")


def test_shapes_are_inferred() -> None:
    shapes: Any = {"X": ["b", 7, 96], "weight": [96]}
    assert inferred("Norm", dict.fromkeys(shapes, FLOAT), shapes, {}) == ["b", 7, 96]


@pytest.mark.parametrize(
    "change,message",
    [
        ({"weight": (15,)}, r"weight has shape \[15\] and X \[5, 16\]; it has to be \[16\]"),
        ({"bias": (1, 16)}, r"bias has shape \[1, 16\] and X \[5, 16\]; it has to be \[16\]"),
        ({"X": ()}, r"'layer' \(ai.octavo.Norm\): X has no dimensions"),
    ],
)
def test_shapes_that_do_not_fit(change: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"X": (5, 16), "weight": (16,), "bias": (16,)} | change
    feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(REFUSALS, match=message):
        run("Norm", feeds, {})


@pytest.mark.parametrize(
    "attributes,message",
    [
        ({"kind": "batch"}, "the kind 'batch' is unknown; there are layer, rms"),
        ({"epsilon": -1.0}, "epsilon is -1.0+; it has to be finite and 0 or more"),
        ({"epsilon": float("inf")}, "epsilon is inf; it has to be finite"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    shapes: Any = {"X": ["b", 8], "weight": [8]}
    with pytest.raises(REFUSALS, match=message):
        session("Norm", dict.fromkeys(shapes, FLOAT), shapes, {}, **attributes)
