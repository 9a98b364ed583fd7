"""ai.octavo.MatMul: products of two activations inside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import statement
from tests.core.statement import assert_same_bits, assert_states
from tests.graphs import normal
from tests.native_target.nodes import inferred, refuses, run

ways = pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
SHAPES = [
    ((1, 1), (1, 1)),
    ((5, 7), (7, 3)),
    ((3, 33, 64), (3, 64, 37)),
    ((2, 3, 40, 130), (3, 130, 48)),
    ((70, 200), (200, 161)),
    ((2, 33000), (33000, 17)),
]
Shape = tuple[int, ...]


def operands(a: Shape, b: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of sizes over four decades; some rows and columns are 0, some not finite."""
    r = np.random.default_rng([*a, *b])
    x = r.standard_normal(a) * 10 ** r.uniform(-2, 2, (*a[:-1], 1))
    y = r.standard_normal(b) * 10 ** r.uniform(-2, 2, (*b[:-2], 1, b[-1]))
    y[..., :, 1::7] = 0
    if a[-2] > 4 and b[-1] > 4:
        x[..., 2, 0], y[..., 1, 3], y[..., 0, 4] = np.inf, np.nan, -np.inf
    return x.astype(np.float32), y.astype(np.float32)


def product(
    a: np.ndarray, b: np.ndarray, *, transposed: bool | int = False, threads: int = 1
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


BROADCASTS = [
    ((4, 5), (3, 5, 6)),
    ((3, 4, 5), (5, 6)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((1, 3, 4, 5), (2, 1, 5, 6)),
    ((1, 1, 4, 5), (1, 5, 6)),
    ((2, 3, 1, 5), (2, 3, 5, 1)),
]


@ways
@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES + BROADCASTS)
def test_it_computes_what_is_defined(a_shape: Shape, b_shape: Shape, transposed: bool) -> None:
    a, b = operands(a_shape, b_shape)
    y = product(a, b, transposed=transposed)
    assert_states(y, expected(a, b))
    assert_same_bits(y, product(a, b, transposed=transposed, threads=2))


@given(*[st.integers(1, 40)] * 2, st.integers(1, 120), st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_numbers_of_rows_and_columns(m: int, n: int, k: int, transposed: bool) -> None:
    a, b = normal(m, k), normal(k, n, seed=1)
    assert_states(product(a, b, transposed=transposed), expected(a, b))


@ways
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((0, 4, 5), (5, 6)),
        ((2, 0, 5), (5, 6)),
        ((2, 4, 5), (0, 2, 5, 6)),
        ((4, 5), (5, 0)),
        ((2, 4, 0), (0, 6)),
    ],
)
def test_nothing_to_multiply(a_shape: Shape, b_shape: Shape, transposed: bool) -> None:
    a, b = np.zeros(a_shape, np.float32), np.zeros(b_shape, np.float32)
    assert_same_bits(product(a, b, transposed=transposed), np.matmul(a, b))


def test_shapes_are_inferred() -> None:
    shapes: Any = {"A": ["batch", 12, "s", 64], "B": ["batch", 1, 64, "t"]}
    assert inferred("MatMul", shapes) == ["batch", 12, "s", "t"]
    shapes = {"A": ["s", 64], "B": [3, "t", 64]}
    assert inferred("MatMul", shapes, transpose_b=1) == [3, "s", "t"]


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "transposed", "message"),
    [
        ((4, 5), (6, 5), 0, r"A has shape \[4, 5\] and B \[6, 5\]: their inner"),
        ((4, 5), (5, 6), 1, r"B \[5, 6\] \(transposed\): their inner"),
        ((5,), (5, 6), 0, r"A has shape \[5\]; .* two dimensions"),
        ((2, 4, 5), (3, 5, 6), 0, r"B has shape \[3\], .* A's \[2\]"),
    ],
)
def test_shapes_that_do_not_fit(
    a_shape: Shape, b_shape: Shape, transposed: int, message: str
) -> None:
    feeds = {"A": np.zeros(a_shape, np.float32), "B": np.zeros(b_shape, np.float32)}
    refuses(message, "MatMul", feeds, transpose_b=transposed)
