"""float16 and bfloat16: conversions, rows of them through int8 layers, and weights of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from octavo import _native
from octavo.core.half_linear import HalfLinear
from octavo.core.kernels import aligned, isa, use_isa
from octavo.core.kernels.buffers import FLOATS
from octavo.core.linear import Linear
from tests.core import statement
from tests.core.layers import packed, random_layer, random_rows
from tests.core.statement import ACTIVATIONS, EPS, TINY, assert_same_bits, assert_states

TYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
both_types = pytest.mark.parametrize("name", TYPES)
PATTERNS = np.arange(65536, dtype=np.uint16)
SHAPES = [
    *[(m, 5, n) for m in (1, 2, 3, 6, 7, 12, 13, 25) for n in (1, 15, 16, 17, 48, 130)],
    *[(1, k, 33) for k in (0, 1, 2, 63, 64, 65, 300)],
    (70, 33, 300),
    (3, 5000, 20),
    (60, 40, 5),
    (2, 129, 700),
]


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


def on_reference(f: Callable[[], Any]) -> Any:
    """What `f` gives with the scalar kernels."""
    before = isa()
    use_isa("reference")
    try:
        return f()
    finally:
        use_isa(before)


# --- conversions ---


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
def test_every_value_widens_as_numpy_widens_it(isa: str, name: str) -> None:
    expected = quietly(PATTERNS.view(TYPES[name]), np.float32)
    assert_same_bits(widen(name, PATTERNS), expected)
    assert_same_bits(on_reference(lambda: widen(name, PATTERNS)), widen(name, PATTERNS))


@both_types
def test_values_narrow_to_the_nearest_and_ties_to_the_even(isa: str, name: str) -> None:
    x = bits_of_float32()
    found = narrow(name, x)
    numbers = ~np.isnan(x)
    assert_same_bits(found[numbers], quietly(x, TYPES[name]).view(np.uint16)[numbers])
    assert_same_bits(found, on_reference(lambda: narrow(name, x)))  # NaN's bits too


@both_types
def test_nan_stays_nan_and_is_quiet(isa: str, name: str) -> None:
    payloads = np.array([1, 0x1FFF, 0x2000, 0x3FFFFF, 0x400000, 0x7FFFFF], np.uint32)
    for sign in (0, 0x80000000):
        x = (payloads | np.uint32(0x7F800000 | sign)).view(np.float32)
        bits = narrow(name, x)
        assert np.isnan(bits.view(TYPES[name])).all()
        assert (bits & (0x200 if name == "float16" else 0x40)).all()
        assert ((bits >> 15) == sign >> 31).all()


@both_types
def test_every_length_converts_and_writes_nothing_else(isa: str, name: str) -> None:
    bits = PATTERNS[5000:5040]
    wide = widen(name, bits)
    for n in range(40):
        assert_same_bits(widen(name, bits[:n]), wide[:n])
        assert_same_bits(narrow(name, wide[:n]), bits[:n])


# --- rows of 16 bits through int8 layers ---


@both_types
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (70, 129, 300), (200, 64, 64)], ids=str)
def test_int8_layers_take_and_give_rows_of_16_bits(
    isa: str, shape: tuple[int, int, int], threads: int, name: str
) -> None:
    m, k, n = shape
    for group in (0, 128):
        layer = packed(random_layer(n, k, group=group, activation="gelu"))
        x = random_rows(m, k + 3).astype(TYPES[name])[:, :k]
        residual = random_rows(m, n + 5).astype(TYPES[name])[:, :n]
        wide = layer(x.astype(np.float32), residual.astype(np.float32))
        plain = layer(x.astype(np.float32))
        room = np.full((m, n + 2), 9, TYPES[name])
        layer(x, residual, out=room[:, :n], threads=threads)
        assert_same_bits(bits_in(room[:, :n]), bits_in(quietly(wide, TYPES[name])))
        assert (room[:, n:] == 9).all()
        assert_same_bits(bits_in(layer(x, threads=threads)), bits_in(quietly(plain, TYPES[name])))


def bits_in(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint16)


@both_types
def test_int8_layers_keep_a_row_that_is_not_finite_to_itself(isa: str, name: str) -> None:
    layer = packed(random_layer(20, 40))
    x = random_rows(5, 40).astype(TYPES[name])
    clean = layer(x)
    x[2, 7] = np.inf
    y = layer(x)
    assert np.isnan(y[2].astype(np.float32)).all()
    for row in (0, 1, 3, 4):
        assert_same_bits(bits_in(y[row]), bits_in(clean[row]))


# --- weights of 16 bits ---


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


@both_types
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_a_layer_computes_what_is_defined(isa: str, shape: tuple[int, int, int], name: str) -> None:
    m, k, n = shape
    layer = random_half(n, k, name)
    x = random_rows(m, k)
    y = layer(x)
    assert_states(y, stated(layer, x))
    assert_same_bits(y, on_reference(lambda: layer(x)))
    assert_same_bits(y, layer(x, threads=2))
    residual = random_rows(m, n)
    given = residual.copy()
    assert layer(x, given, out=given) is given
    assert_same_bits(given, y + residual)
    assert_same_bits(layer(x, residual), given)


EDGES = [15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]
GRIDS = {
    "small": list(itertools.product(range(1, 11), repeat=3)),
    "powers of two": [
        (EDGES[i % len(EDGES)], *pair)
        for i, pair in enumerate(itertools.product(EDGES, EDGES))
        if i % 5 == 0
    ],
    "deep, shallow, tall": [(2, 70_000, 5), (40, 1, 500), (1, 3, 3000), (1500, 20, 5), (1, 900, 1)],
}


@both_types
@pytest.mark.parametrize("grid", GRIDS)
def test_bits_are_those_of_the_reference(isa: str, grid: str, name: str) -> None:
    layers = {(k, n): random_half(n, k, name) for _, k, n in GRIDS[grid]}
    for m, k, n in GRIDS[grid]:
        x = random_rows(m, k)
        wanted = on_reference(lambda layer=layers[k, n], x=x: layer(x))
        assert_same_bits(layers[k, n](x, threads=1 + m % 3), wanted)


@both_types
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(isa: str, activation: str, name: str) -> None:
    layer = random_half(33, 70, name, activation=activation)
    x = np.random.default_rng(2).standard_normal((9, 70)).astype(np.float32)
    y = layer(x)
    assert_states(y, stated(layer, x))
    assert_same_bits(y, on_reference(lambda: layer(x)))


@both_types
def test_a_large_layer_on_several_threads(isa: str, name: str) -> None:
    deep, few = (100, 5) if isa == "reference" else (300, 13)
    wide, narrow_one = random_half(1000, deep, name), random_half(40, 2 * deep, name)
    for layer, rows in ((wide, few), (narrow_one, 90)):
        x = random_rows(rows, layer.k)
        one = layer(x, threads=1)
        assert_same_bits(one, on_reference(lambda layer=layer, x=x: layer(x)))
        for threads in (2, 3):
            assert_same_bits(layer(x, threads=threads), one)


@both_types
@pytest.mark.parametrize("rows", TYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_16_bits_in_and_out(isa: str, threads: int, rows: str, name: str) -> None:
    for m, k, n in [(1, 5, 7), (70, 100, 300), (500, 3000, 2), (3, 0, 4)]:
        layer = random_half(n, k, name)
        x = (random_rows(m, k + 3) / np.float32(1000)).astype(TYPES[rows])[:, :k]
        wide = layer(x.astype(np.float32))
        assert_same_bits(bits_in(layer(x, threads=threads)), bits_in(wide.astype(TYPES[rows])))


@both_types
@pytest.mark.parametrize("rows", ["float32", *TYPES])
def test_a_residual_is_added_last(isa: str, rows: str, name: str) -> None:
    m, k, n = 50, 33, 300
    layer = random_half(n, k, name, activation="tanh")
    dtype = TYPES.get(rows, np.float32)
    x = (random_rows(m, k) / np.float32(1000)).astype(dtype)
    residual = (random_rows(m, n) / np.float32(1000)).astype(dtype)
    expected = layer(x.astype(np.float32)) + residual.astype(np.float32)
    out = np.empty((m, n), dtype)
    layer.run(x.ctypes.data, m, k, out.ctypes.data, n, FLOATS[rows], residual.ctypes.data, n, 2)
    assert_same_bits(out.view(f"u{out.itemsize}"), expected.astype(dtype).view(f"u{out.itemsize}"))


@both_types
def test_a_row_depends_on_itself_alone(isa: str, name: str) -> None:
    layer = random_half(50, 70, name)
    x = random_rows(30, 70)
    x[3, 4], x[9, 1] = np.nan, np.inf
    y = layer(x)
    for m in range(30):
        assert_same_bits(layer(x[m]), y[m])
    finite = np.isfinite(y).all(axis=1)
    assert np.flatnonzero(~finite).tolist() == [3, 9]


def test_strides_and_outputs() -> None:
    layer = random_half(20, 12, "float16")
    x = random_rows(24, 12)
    y = layer(x)
    assert_same_bits(layer(x.reshape(2, 3, 4, 12)), y.reshape(2, 3, 4, 20))
    assert_same_bits(layer(x[::3]), y[::3])
    assert_same_bits(layer(np.asfortranarray(x)), y)
    room = np.full((24, 30), 7, np.float32)
    assert layer(x, out=room[:, 5:25]) is not None
    assert_same_bits(room[:, 5:25], y)
    assert (room[:, :5] == 7).all()
    assert (room[:, 25:] == 7).all()
    for shape in [(0, 12), (2, 0, 12)]:
        assert layer(np.empty(shape, np.float32)).shape == (*shape[:-1], 20)


def test_packed_weights_are_used_where_they_lie() -> None:
    layer = random_half(20, 12, "bfloat16", activation="relu")
    again = HalfLinear(layer.packed, 20, 12, "bfloat16", layer.bias, "relu")
    x = random_rows(3, 12)
    assert again.packed is layer.packed
    assert_same_bits(again(x), layer(x))
    assert repr(again) == "HalfLinear(12 -> 20, bfloat16, bias=True, activation=relu)"


def test_int8_and_half_layers_agree() -> None:
    """Both are near the float layer, so a wrong layout of either would show."""
    r = np.random.default_rng(5)
    w = r.uniform(-1, 1, (40, 64)).astype(np.float32)
    x = r.uniform(-1, 1, (10, 64)).astype(np.float32)
    exact = x @ w.T
    # 64 inputs with an error of half a step each, of both factors or of the weights alone.
    steps = {"int8": 1 / 127 + 2 / 255, "float16": 2.0**-11, "bfloat16": 2.0**-8}
    layers: dict[str, Any] = {"int8": Linear.from_float(w)}
    layers |= {name: HalfLinear.from_float(w, dtype=name) for name in TYPES}
    for name, layer in layers.items():
        assert np.abs(layer(x) - exact).max() < 64 / 2 * steps[name]


def test_what_cannot_be_says_so() -> None:
    w = np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"dtype: 'float8' is not a type of 16 bits.* Known: bf"):
        HalfLinear.from_float(w, dtype="float8")
    with pytest.raises(ValueError, match="dtype: 'float32' is not a type of 16 bits"):
        HalfLinear.from_float(w, dtype="float32")
    with pytest.raises(TypeError, match="w: needs float32, not float64"):
        HalfLinear.from_float(w.astype(np.float64))
    with pytest.raises(ValueError, match=r"w: needs shape \[N, K\], not \(4,\)"):
        HalfLinear.from_float(w[0])
    with pytest.raises(ValueError, match=r"bias: needs shape \(3,\), not \(4,\)"):
        HalfLinear.from_float(w, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="unknown activation 'rleu'"):
        HalfLinear.from_float(w, activation="rleu")
    layer = HalfLinear.from_float(w)
    x = np.zeros((8, 4), np.float32)
    with pytest.raises(ValueError, match=r"x: needs shape \[..., 4\], not \(4, 8\)"):
        layer(x.T)
    with pytest.raises(ValueError, match="out: shares memory with x"):
        layer(x, out=x[:, :3])
    with pytest.raises(TypeError, match="out: needs float32"):
        layer(x, out=np.zeros((8, 3), np.float16))
    with pytest.raises(ValueError, match="threads: -1"):
        layer(x, threads=-1)


def test_weights_that_16_bits_do_not_hold_are_refused() -> None:
    w = np.zeros((3, 4), np.float32)
    w[1, 2], w[2, 0] = 65519, -65520  # the first still rounds to 65504
    message = r"w: 1 values are beyond float16, the first -65520.0 at \[2, 0\]; take bfloat16"
    with pytest.raises(ValueError, match=message):
        HalfLinear.from_float(w)
    assert HalfLinear.from_float(w, dtype="bfloat16").weights()[2, 0] == -65536
    w[1, 1] = 3.4e38
    with pytest.raises(ValueError, match=r"w: 1 values are beyond bfloat16, the first 3.4.*at \[1"):
        HalfLinear.from_float(w, dtype="bfloat16")
    w[0, 3] = np.nan
    with pytest.raises(ValueError, match=r"w: holds NaN or infinity, the first at \[0, 3\]"):
        HalfLinear.from_float(w)


def test_packed_weights_are_checked() -> None:
    packed_weights = HalfLinear.from_float(np.zeros((3, 4), np.float32)).packed
    with pytest.raises(ValueError, match=r"packed: shape \(64,\).*needs contiguous \(80,\)"):
        HalfLinear(packed_weights, 3, 5)
    with pytest.raises(TypeError, match="packed: needs a NumPy array of uint16, not int16"):
        HalfLinear(packed_weights.view(np.int16), 3, 4)
    with pytest.raises(ValueError, match=r"\[-3, 4\] cannot be"):
        HalfLinear(packed_weights, -3, 4)
    room = aligned(256).view(np.uint16)
    with pytest.raises(ValueError, match="packed: begins 2 bytes behind a multiple of 64"):
        HalfLinear(room[1:65], 3, 4)
