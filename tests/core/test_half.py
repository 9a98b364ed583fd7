"""float16 and bfloat16: conversions, and weights of them; rows of them: test_linear."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from octavo import _native
from octavo.core.half_linear import HalfLinear
from octavo.core.kernels import aligned
from octavo.core.kernels.buffers import FLOATS
from tests.core import statement
from tests.core.layers import random_rows
from tests.core.statement import ACTIVATIONS, EPS, TINY, assert_same_bits, assert_states
from tests.core.tables import on_every_table

TYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
both_types = pytest.mark.parametrize("name", TYPES)
PATTERNS = np.arange(65536, dtype=np.uint16)


def widen(name: str, bits: np.ndarray) -> np.ndarray:
    y = np.full(bits.size + 1, 7, np.float32)
    _native.widen(FLOATS[name], bits, y[:-1])
    assert y[-1] == 7
    return y[:-1]


def narrow(name: str, x: np.ndarray) -> np.ndarray:
    bits = np.full(x.size + 1, 7, np.uint16)
    _native.narrow(FLOATS[name], x, bits[:-1])
    assert bits[-1] == 7
    return bits[:-1]


def quietly(x: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def bits_of_float32() -> np.ndarray:
    """Every value of both types, what lies beside and halfway between them, and random bits."""
    wide = [quietly(PATTERNS.view(t), np.float32).view(np.uint32) for t in TYPES.values()]
    halves = (0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFFFFFF)
    near = [values + np.uint32(step) for values in wide for step in halves]
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 300_000, dtype=np.uint32)
    subnormal = random.uniform(-(2.0**-13), 2.0**-13, 50_000).astype(np.float32).view(np.uint32)
    return np.concatenate([*near, bits, subnormal]).view(np.float32)


@both_types
def test_every_value_widens_as_numpy_widens_it(name: str) -> None:
    found = on_every_table(lambda _: widen(name, PATTERNS), [1])
    assert_same_bits(found, quietly(PATTERNS.view(TYPES[name]), np.float32))


@both_types
def test_values_narrow_to_the_nearest_and_ties_to_the_even(name: str) -> None:
    x = bits_of_float32()
    found = on_every_table(lambda _: narrow(name, x), [1])  # NaN's bits too
    numbers = ~np.isnan(x)
    assert_same_bits(found[numbers], quietly(x, TYPES[name]).view(np.uint16)[numbers])


@both_types
def test_nan_stays_nan_and_is_quiet(name: str) -> None:
    payloads = np.array([1, 0x1FFF, 0x2000, 0x3FFFFF, 0x400000, 0x7FFFFF], np.uint32)
    for sign in (0, 0x80000000):
        x = (payloads | np.uint32(0x7F800000 | sign)).view(np.float32)
        bits = narrow(name, x)
        assert np.isnan(bits.view(TYPES[name])).all()
        assert (bits & (0x200 if name == "float16" else 0x40)).all()
        assert ((bits >> 15) == sign >> 31).all()


@both_types
def test_every_length_converts_and_writes_nothing_else(name: str) -> None:
    bits = PATTERNS[5000:5040]
    wide = widen(name, bits)
    for n in range(40):
        assert_same_bits(widen(name, bits[:n]), wide[:n])
        assert_same_bits(narrow(name, wide[:n]), bits[:n])


def bits_in(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


def random_half(n: int, k: int, name: str, **options: Any) -> HalfLinear:
    r = np.random.default_rng([n, k])
    w = (r.standard_normal((n, k)) / np.sqrt(k + 1)).astype(np.float32)
    return HalfLinear.from_float(w, r.standard_normal(n).astype(np.float32), name, **options)


def stated(layer: HalfLinear, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The outputs, float64 [M, N], and how far a chain of float32 operations may be from each."""
    wide, w = x.astype(np.float64), layer.weights().astype(np.float64)
    bias = np.zeros(layer.n) if layer.bias is None else layer.bias.astype(np.float64)
    y = wide @ w.T + bias
    error = (layer.k + 1) * (EPS * (np.abs(wide) @ np.abs(w).T + np.abs(bias)) + TINY)
    y = ACTIVATIONS[layer.activation.value](y)
    if layer.activation.value != "none":
        error = statement.STEEPEST * error + statement.ACTIVATION_ERROR * np.maximum(1, np.abs(y))
    return y, error * 1.01


@both_types
def test_weights_are_the_rounded_ones(name: str) -> None:
    for n, k in [(1, 1), (5, 7), (16, 64), (17, 65), (33, 200), (0, 3), (3, 0)]:
        w = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
        layer = HalfLinear.from_float(w, None, name)
        assert_same_bits(layer.weights(), w.astype(TYPES[name]).astype(np.float32))
        padded = np.zeros((-(-n // 16) * 16, k), np.uint16)
        padded[:n] = w.astype(TYPES[name]).view(np.uint16)
        blocks = padded.reshape(len(padded) // 16, 16, k).transpose(0, 2, 1)
        assert_same_bits(layer.packed, blocks.reshape(-1))
        same = HalfLinear.from_float(w.astype(TYPES[name]), None, name)
        assert_same_bits(same.packed, layer.packed)


EDGES = [15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]
SHAPES = {
    "small": list(itertools.product(range(1, 11), repeat=3))[::7],
    "rows": [(m, 5, n) for m in (1, 2, 3, 6, 7, 12, 13, 25) for n in (1, 15, 16, 17, 48, 130)],
    "powers of two": [
        (EDGES[i % len(EDGES)], *pair)
        for i, pair in enumerate(itertools.product(EDGES, EDGES))
        if i % 5 == 0
    ],
    "inputs": [(1, k, 33) for k in (0, 1, 2, 63, 64, 65, 300)],
    "deep, shallow, tall": [(2, 70_000, 5), (40, 1, 500), (1, 3, 3000), (1500, 20, 5), (1, 900, 1)],
    "shared by threads": [(5, 100, 1000), (13, 300, 1000), (90, 600, 40)],
}


@both_types
@pytest.mark.parametrize("shapes", SHAPES)
def test_every_table_computes_what_is_defined(shapes: str, name: str) -> None:
    for m, k, n in SHAPES[shapes]:
        layer, x, residual = random_half(n, k, name), random_rows(m, k), random_rows(m, n)
        y = on_every_table(lambda threads: layer(x, threads=threads))  # noqa: B023
        assert_states(y, stated(layer, x))
        assert_same_bits(layer(x, residual), y + residual)
        assert layer(x, residual, out=residual) is residual
        assert_same_bits(residual, layer(x, random_rows(m, n)))


@both_types
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str, name: str) -> None:
    layer = random_half(33, 70, name, activation=activation)
    x = np.random.default_rng(2).standard_normal((9, 70)).astype(np.float32)
    assert_states(on_every_table(lambda _: layer(x), [1]), stated(layer, x))


@both_types
@pytest.mark.parametrize("rows", ["float32", *TYPES])
def test_rows_of_other_types_and_a_residual_that_is_added_last(rows: str, name: str) -> None:
    dtype = TYPES.get(rows, np.float32)
    for m, k, n in [(1, 5, 7), (70, 100, 300), (500, 3000, 2), (3, 0, 4)]:
        layer = random_half(n, k, name, activation="tanh")
        x = (random_rows(m, k + 3) / np.float32(1000)).astype(dtype)[:, :k]
        residual = (random_rows(m, n) / np.float32(1000)).astype(dtype)
        wide = layer(x.astype(np.float32))
        for threads in (1, 2):
            assert_same_bits(bits_in(layer(x, threads=threads)), bits_in(wide.astype(dtype)))
        expected = wide + residual.astype(np.float32)
        out = np.empty((m, n), dtype)
        add = residual.ctypes.data, n
        layer.run(x.ctypes.data, m, k + 3, out.ctypes.data, n, FLOATS[rows], *add, 2)
        assert_same_bits(bits_in(out), bits_in(expected.astype(dtype)))


@both_types
def test_a_row_depends_on_itself_alone(name: str) -> None:
    layer = random_half(50, 70, name)
    x = random_rows(30, 70)
    x[3, 4], x[9, 1] = np.nan, np.inf
    y = layer(x)
    for m in range(30):
        assert_same_bits(layer(x[m]), y[m])
    finite = np.isfinite(y).all(axis=1)
    assert np.flatnonzero(~finite).tolist() == [3, 9]


def test_packed_weights_are_used_where_they_lie() -> None:
    layer = random_half(20, 12, "bfloat16", activation="relu")
    again = HalfLinear(layer.packed, 20, 12, "bfloat16", layer.bias, "relu")
    x = random_rows(3, 12)
    assert again.packed is layer.packed
    assert_same_bits(again(x), layer(x))
    assert repr(again) == "HalfLinear(12 -> 20, bfloat16, bias=True, activation=relu)"


W = np.zeros((3, 4), np.float32)
PACKED = HalfLinear.from_float(W).packed


@pytest.mark.parametrize(
    ("error", "named", "call"),
    [
        (ValueError, "dtype: 'float8' .* Kno", lambda: HalfLinear.from_float(W, dtype="float8")),
        (TypeError, "w: needs float32", lambda: HalfLinear.from_float(W.astype(np.float64))),
        (ValueError, r"w: needs shape \[N, K\]", lambda: HalfLinear.from_float(W[0])),
        (ValueError, r"bias: needs shape \(3,\)", lambda: HalfLinear.from_float(W, W[0])),
        (ValueError, "activation 'rleu'", lambda: HalfLinear.from_float(W, activation="rleu")),
        (ValueError, r"packed: .* contiguous \(80,\)", lambda: HalfLinear(PACKED, 3, 5)),
        (TypeError, "packed: .* uint16", lambda: HalfLinear(PACKED.view(np.int16), 3, 4)),
        (ValueError, r"\[-3, 4\] cannot be", lambda: HalfLinear(PACKED, -3, 4)),
        (
            *(ValueError, "packed: begins 2 bytes behind a multiple of 64"),
            lambda: HalfLinear(aligned(256).view(np.uint16)[1:65], 3, 4),
        ),
    ],
)
def test_what_cannot_be_says_so(error: type[Exception], named: str, call: Any) -> None:
    with pytest.raises(error, match=named):
        call()


def test_weights_that_16_bits_do_not_hold_are_refused() -> None:
    w = W.copy()
    w[1, 2], w[2, 0] = 65519, -65520  # the first still rounds to 65504
    with pytest.raises(ValueError, match=r"w: 1 .* -65520.0 at \[2, 0\]; take bfloat16"):
        HalfLinear.from_float(w)
    assert HalfLinear.from_float(w, dtype="bfloat16").weights()[2, 0] == -65536
    w[1, 1] = 3.4e38
    with pytest.raises(ValueError, match=r"w: 1 values are beyond bfloat16, .* 3.4.*at \[1"):
        HalfLinear.from_float(w, dtype="bfloat16")
    w[0, 3] = np.nan
    with pytest.raises(ValueError, match=r"w: holds NaN or infinity, the first at \[0, 3\]"):
        HalfLinear.from_float(w)
