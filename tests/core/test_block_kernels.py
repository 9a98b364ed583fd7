"""Kernels of transformer blocks: norms with a residual, rotary positions, gated linear layers.

Each is compared with its statement in NumPy, and is the same bits on every table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo import _native
from octavo.core.layer_norm import layer_norm
from octavo.core.linear import Linear
from tests.core.statement import ACTIVATIONS, assert_same_bits
from tests.core.tables import on_every_table

Array = np.ndarray[Any, Any]
KIND = {"layer": 0, "rms": 1}
GATES = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4, "sigmoid": 6}


def address(x: Array | None) -> int:
    return 0 if x is None else x.ctypes.data


def draw(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def norm(
    kind: str,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    residual: Array | None = None,
    keep: bool = True,
    threads: int = 1,
) -> list[Array]:
    out, total = np.empty_like(x), np.empty_like(x)
    summed = address(total) if keep and residual is not None else 0
    _native.norm_rows(
        *(KIND[kind], address(x), *x.shape, address(residual), address(weight), address(bias)),
        *(1e-5, summed, address(out), threads),
    )
    return [out, total] if summed else [out]


def norm_stated(kind: str, x: Array, weight: Array | None, bias: Array | None) -> Array:
    wide = x.astype(np.float64)
    if kind == "layer":
        wide = wide - wide.mean(-1, keepdims=True)
    scaled = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * (1 if weight is None else weight) + (0 if bias is None else bias)


@pytest.mark.parametrize("columns", [1, 7, 16, 31, 48, 100, 1025])
@pytest.mark.parametrize("kind", KIND)
@pytest.mark.parametrize("weight,bias", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("residual", ["", "kept", "dropped"])
def test_norms(kind: str, columns: int, weight: bool, bias: bool, residual: str) -> None:
    x, y = draw(9, columns), 2 * draw(9, columns)[::-1].copy()
    gain, shift = (draw(columns) if weight else None, draw(columns)[::-1].copy() if bias else None)
    added, total = (y, x + y) if residual else (None, x)
    found = on_every_table(lambda t: norm(kind, x, gain, shift, added, residual == "kept", t))
    np.testing.assert_allclose(found[0], norm_stated(kind, total, gain, shift), atol=3e-5, rtol=0)
    if residual == "kept":
        assert_same_bits(found[1], total)


COLUMNS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 100, 384, 1024, 1025]


def spread(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r = np.random.default_rng(columns)
    x = r.standard_normal((rows, columns)) * 10.0 ** r.integers(-3, 4, (rows, 1)) + 3
    return tuple(a.astype(np.float32) for a in (x, *r.standard_normal((2, columns))))  # type: ignore[return-value]


@pytest.mark.parametrize("columns", COLUMNS)
def test_layer_norms_of_arrays(columns: int) -> None:
    x, weight, bias = spread(67, columns)
    found = on_every_table(lambda threads: layer_norm(x, weight, bias, threads=threads))
    assert_same_bits(layer_norm(x[9:10], weight, bias), found[9:10])
    # A row's mean is exact to some roundings of its largest value, which its deviation may be far
    # below.
    slack = np.abs(x).max(-1, keepdims=True) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    error = np.abs(found - norm_stated("layer", x, weight, bias))
    assert (error <= 1e-6 * (1 + slack) * (1 + np.abs(weight)) + 1e-6 * np.abs(bias)).all()


def test_not_a_number_stays_in_its_row_of_a_norm() -> None:
    x, weight, bias = spread(4, 33)
    clean = layer_norm(x, weight, bias)
    x[1, 32], x[2, 3] = np.nan, np.inf
    found = layer_norm(x, weight, bias)
    assert np.isnan(found[1]).all()
    assert np.isnan(found[2]).all()
    assert_same_bits(found[[0, 3]], clean[[0, 3]])


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 8), (8,), (2, 3, 8)])
def test_shapes_of_layer_norms(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    one = np.ones(shape[-1], np.float32)
    found = layer_norm(x, one, one * 0)
    assert found.shape == shape
    assert np.allclose(found, norm_stated("layer", x, one, one * 0) if x.size else x, atol=1e-5)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"x": np.zeros((2, 8))}, "x: needs float32"),
        ({"x": np.array(1, np.float32)}, r"x: needs shape \[..., N\]"),
        ({"weight": np.zeros(7, np.float32)}, r"weight: needs shape \(8,\)"),
        ({"bias": np.zeros((1, 8), np.float32)}, r"bias: needs shape \(8,\)"),
        ({"threads": -1}, "threads"),
    ],
    ids=str,
)
def test_arguments_of_layer_norms_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    ones = np.ones(8, np.float32)
    given: dict[str, Any] = {"x": np.ones((2, 8), np.float32), "weight": ones, "bias": ones}
    with pytest.raises((TypeError, ValueError), match=message):
        layer_norm(**(given | change))


def rotary(
    x: Array,
    cos: Array,
    sin: Array,
    turned: int,
    interleaved: bool,
    each: bool,
    threads: int = 1,
    positions: Array | None = None,
) -> Array:
    """Of x [B, H, S, D], whatever its strides; tables [B | 1, S, ...]; the result is contiguous."""
    out = np.empty_like(x, order="C")
    batch, heads, rows, width = x.shape
    strides = [s // 4 for s in (*x.strides[:3], *out.strides[:3])]
    per_item = cos.strides[0] // 4 if cos.shape[0] > 1 else 0
    table = (0 if positions is not None else per_item, cos.strides[1] // 4)
    _native.rotary(
        *(address(x), address(cos), address(sin), address(positions), address(out)),
        (batch, heads, rows, width, turned),
        (*strides, *table, *((rows, 1) if positions is not None else (0, 0))),
        *(interleaved, each, threads),
    )
    return out


def rotary_stated(x: Array, cos: Array, sin: Array, interleaved: bool, each: bool) -> Array:
    """The same in float64; the tables are [B | 1, S, R] or [B | 1, S, R / 2]."""
    if not each:
        cos, sin = (
            np.repeat(a, 2, -1) if interleaved else np.concatenate([a, a], -1) for a in (cos, sin)
        )
    turned = cos.shape[-1]
    part = x[..., :turned].astype(np.float64)
    if interleaved:
        back = np.stack([-part[..., 1::2], part[..., ::2]], -1).reshape(part.shape)
    else:
        back = np.concatenate([-part[..., turned // 2 :], part[..., : turned // 2]], -1)
    whole = part * cos[:, None] + back * sin[:, None]
    return np.concatenate([whole, x[..., turned:]], -1)


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("each", [True, False], ids=["each", "pairs"])
@pytest.mark.parametrize("width,turned", [(2, 2), (64, 64), (80, 20), (6, 4), (70, 66), (8, 0)])
@pytest.mark.parametrize("items", [1, 2])
def test_rotary(interleaved: bool, each: bool, width: int, turned: int, items: int) -> None:
    x = draw(2, 5, 3, width).transpose(0, 2, 1, 3)  # heads of rows, as linear layers leave them
    count = turned if each else turned // 2
    cos, sin = draw(items, 5, count), draw(items, 5, count)[::-1].copy()
    found = on_every_table(lambda t: rotary(x, cos, sin, turned, interleaved, each, threads=t))
    stated = rotary_stated(x, cos, sin, interleaved, each)
    np.testing.assert_allclose(found, stated, atol=2e-6, rtol=0)


def test_rows_of_rotary_have_positions() -> None:
    x, cos, sin = draw(2, 3, 4, 16), draw(1, 50, 8), draw(1, 50, 8)[:, ::-1].copy()
    positions = np.random.default_rng(0).integers(0, 50, (2, 4))
    found = rotary(x, cos, sin, 16, False, False, positions=positions)
    rows = (np.ascontiguousarray(a[0][positions]) for a in (cos, sin))
    assert_same_bits(found, rotary(x, *rows, 16, False, False))


def gated(first: Linear, word: str, second: Linear, x: Array, threads: int = 1) -> Array:
    out = np.full((len(x), first.n + 3), 7, np.float32)
    _native.run_gated(
        *(first.native, GATES[word], second.native, address(x), *x.shape),
        *(address(out), first.n + 3, threads),
    )
    assert (out[:, first.n :] == 7).all()
    return out[:, : first.n].copy()


@pytest.mark.parametrize("word", GATES)
@pytest.mark.parametrize("group", [0, 128])
@pytest.mark.parametrize("rows,k,n", [(1, 64, 48), (1, 200, 33), (5, 129, 100), (70, 300, 300)])
def test_gated_layers(word: str, group: int, rows: int, k: int, n: int) -> None:
    x = draw(rows, k)
    first, second = (
        Linear.from_float(draw(n, k) * factor / k**0.5, draw(n), group) for factor in (1, 2)
    )
    activated = Linear.from_packed(first.weight, first.bias, word)
    expected = activated(x) * second(x)
    assert_same_bits(on_every_table(lambda t: gated(first, word, second, x, t)), expected)
    stated = ACTIVATIONS[word](first(x).astype(np.float64)) * second(x)
    np.testing.assert_allclose(expected, stated, atol=1e-5)


def test_gated_layers_of_many_inputs() -> None:
    """Whose sums do not fit int32."""
    x = draw(3, 33_000)
    layers = [Linear.from_float(draw(5, 33_000)[:: 1 - 2 * i], draw(5)) for i in range(2)]
    expected = Linear.from_packed(layers[0].weight, layers[0].bias, "silu")(x) * layers[1](x)
    assert_same_bits(gated(layers[0], "silu", layers[1], x), expected)
