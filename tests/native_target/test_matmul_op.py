"""ai.octavo.MatMul: products of two activations inside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core import statement
from tests.core.statement import assert_same_bits, assert_states
from tests.native_target.matmul_bits import SHAPES, operands
from tests.native_target.nodes import (
    REFUSALS,
    assert_same_on_every_isa,
    inferred,
    run,
    session,
)

FLOAT = np.dtype(np.float32)
ways = pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])


def product(
    a: np.ndarray, b: np.ndarray, *, transposed: bool = False, threads: int = 1
) -> np.ndarray:
    if transposed:
        b = np.ascontiguousarray(b.swapaxes(-1, -2))
    return run("MatMul", {"A": a, "B": b}, {}, threads, transpose_b=int(transposed))


def quantized_columns(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integers [N, K] and scales [N] of `b` [K, N]: float32 operations, so these are the bits."""
    f = np.float32
    largest = np.abs(b).max(axis=0, initial=f(0))
    finite = np.isfinite(b).all(axis=0)
    scale = np.where(finite, largest, f(0)) / f(127)
    scale = np.where(scale < f(1e-30), f(1), scale)
    scaled = np.where(finite, b, f(0)) * (f(1) / scale)
    q = np.rint(np.clip(scaled, -127, 127)).astype(np.int8)
    return q.T, np.where(finite, scale, f(np.nan))


def expected(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product in float64 and how far float32 may be from it: each matrix a linear layer."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a_all = np.broadcast_to(a, (*lead, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
    b_all = np.broadcast_to(b, (*lead, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
    found = []
    for x, w in zip(a_all, b_all, strict=True):
        q, scale = quantized_columns(w)
        found.append(statement.Layer(q, scale)(*statement.quantize_rows(x)))
    shape = (*lead, a.shape[-2], b.shape[-1])
    y, error = (np.concatenate(part).reshape(shape) for part in zip(*found, strict=True))
    return y, error


@ways
@pytest.mark.parametrize("a_shape,b_shape", SHAPES)
def test_it_computes_what_is_defined(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], transposed: bool
) -> None:
    a, b = operands(a_shape, b_shape)
    y = product(a, b, transposed=transposed)
    assert_states(y, expected(a, b))
    assert_same_bits(y, product(a, b, transposed=transposed, threads=2))


BROADCASTS = [
    ((4, 5), (3, 5, 6)),
    ((3, 4, 5), (5, 6)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((1, 3, 4, 5), (2, 1, 5, 6)),
    ((1, 1, 4, 5), (1, 5, 6)),
    ((2, 3, 1, 5), (2, 3, 5, 1)),
]


@ways
@pytest.mark.parametrize("a_shape,b_shape", BROADCASTS)
def test_leading_dimensions_broadcast(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], transposed: bool
) -> None:
    a, b = operands(a_shape, b_shape)
    y = product(a, b, transposed=transposed)
    assert y.shape == np.matmul(np.zeros(a_shape), np.zeros(b_shape)).shape
    assert_states(y, expected(a, b))


EMPTY = [((0, 4, 5), (5, 6)), ((2, 0, 5), (5, 6)), ((2, 4, 5), (0, 2, 5, 6)),
         ((4, 5), (5, 0)), ((2, 4, 0), (0, 6))]  # fmt: skip


@ways
@pytest.mark.parametrize("a_shape,b_shape", EMPTY)
def test_nothing_to_multiply(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], transposed: bool
) -> None:
    a, b = np.zeros(a_shape, np.float32), np.zeros(b_shape, np.float32)
    y = product(a, b, transposed=transposed)
    assert_same_bits(y, np.matmul(a, b))


@ways
def test_columns_of_every_number_and_rows_of_every_number(transposed: bool) -> None:
    r = np.random.default_rng(8)
    for n in range(1, 40):
        a = r.standard_normal((n, 3 * n + 1)).astype(np.float32)
        b = r.standard_normal((3 * n + 1, 40 - n)).astype(np.float32)
        assert_states(product(a, b, transposed=transposed), expected(a, b))


def test_attention_is_within_the_error_of_int8() -> None:
    r = np.random.default_rng(6)
    q, k = (r.standard_normal((2, 12, 50, 64)).astype(np.float32) for _ in range(2))
    y = product(q, k.swapaxes(-1, -2), transposed=True)
    wanted = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)
    assert np.sqrt(np.square(y - wanted).mean() / np.square(wanted).mean()) < 0.012


def test_every_instruction_set_gives_the_same_bits() -> None:
    assert_same_on_every_isa("tests.native_target.matmul_bits")


def test_shapes_are_inferred() -> None:
    dtypes = {"A": FLOAT, "B": FLOAT}
    shapes: Any = {"A": ["batch", 12, "s", 64], "B": ["batch", 1, 64, "t"]}
    assert inferred("MatMul", dtypes, shapes, {}) == ["batch", 12, "s", "t"]
    shapes = {"A": ["s", 64], "B": [3, "t", 64]}
    assert inferred("MatMul", dtypes, shapes, {}, transpose_b=1) == [3, "s", "t"]


@pytest.mark.parametrize(
    "a_shape,b_shape,transposed,message",
    [
        ((4, 5), (6, 5), False, r"A has shape \[4, 5\] and B \[6, 5\]: their inner dimensions"),
        ((4, 5), (5, 6), True, r"B \[5, 6\] \(transposed\): their inner dimensions differ"),
        ((5,), (5, 6), False, r"A has shape \[5\]; it has to have two dimensions or more"),
        (
            (2, 4, 5),
            (3, 5, 6),
            False,
            r"B has shape \[3\], which does not broadcast with A's \[2\]",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], transposed: bool, message: str
) -> None:
    s = session(
        "MatMul",
        {"A": FLOAT, "B": FLOAT},
        {"A": [None] * len(a_shape), "B": [None] * len(b_shape)},  # type: ignore[list-item]
        {},
        transpose_b=int(transposed),
    )
    with pytest.raises(REFUSALS, match=rf"node 'layer' \(ai.octavo.MatMul\): .*{message}"):
        s.run(None, {"A": np.zeros(a_shape, np.float32), "B": np.zeros(b_shape, np.float32)})
