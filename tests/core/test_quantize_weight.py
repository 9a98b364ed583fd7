"""The C++ weight quantizer against a float64 statement of its definition, and NumPy's bits."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from octavo.core import kernels
from octavo.core.kernels import QuantizedWeight, quantize_packed, quantize_weight
from octavo.core.qparams import Grid, QParams, qparams_from_range
from tests.core.grids import GRIDS, every_grid
from tests.core.tables import assert_all_same, on_every_table

INT8, AFFINE = GRIDS["int8-symmetric"], GRIDS["uint8-affine"]
PROPERTY = settings(deadline=None, max_examples=20)


@st.composite
def weights(draw: st.DrawFn) -> tuple[np.ndarray, int | None]:
    """A float32 array of any rank up to 4, some sides 0, of any magnitude, and an axis or None."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    unit = st.one_of(st.floats(-1, 1, width=32), st.sampled_from([0.0, 1.0, -1.0, 0.5]))
    w = draw(hnp.arrays(np.float32, shape, elements=unit)).astype(np.float64)
    axis = draw(st.none() | st.integers(0, len(shape) - 1)) if shape else None
    w *= 10.0 ** draw(st.sampled_from([0, 0, -44, -41, -38, -30, -20, -3, 5, 19, 30, 38]))
    if axis is not None and w.size and draw(st.booleans()):
        w.swapaxes(0, axis)[draw(st.integers(0, shape[axis] - 1))] = 0  # an all-zero channel
    return w.astype(np.float32), axis


def channels_first(array: np.ndarray, axis: int | None) -> np.ndarray:
    """[channels, values of the channel]; one channel where axis is None."""
    if axis is None:
        return array.reshape(1, -1)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1 if array.size else 0)


def observed(w: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    rows = channels_first(w, axis)
    lo = [min([0.0, *row]) for row in rows.tolist()]
    hi = [max([0.0, *row]) for row in rows.tolist()]
    return np.array(lo, np.float32), np.array(hi, np.float32)


def check_sums(w: np.ndarray, got: QuantizedWeight) -> None:
    exact = w.astype(np.float64)
    noise = exact - got.qparams.dequantize(got.q).astype(np.float64)
    assert got.signal == pytest.approx(float((exact**2).sum()), rel=1e-5, abs=0)
    assert got.noise == pytest.approx(float((noise**2).sum()), rel=1e-5, abs=0)


def check(w: np.ndarray, grid: Grid, got: QuantizedWeight, want: QParams) -> None:
    assert (got.q.shape, got.q.dtype) == (w.shape, grid.dtype)
    assert got.qparams.axis == want.axis
    assert got.qparams.scale.tolist() == want.scale.tolist()
    assert got.qparams.zero_point.tolist() == want.zero_point.tolist()
    assert np.array_equal(got.q, want.quantize(w, grid))
    check_sums(w, got)


@every_grid
@PROPERTY
@given(case=weights())
def test_every_shape_axis_and_magnitude(grid: Grid, case: Any) -> None:
    w, axis = case
    before = w.copy()
    got = quantize_weight(w, grid, axis)
    check(w, grid, got, qparams_from_range(*observed(w, axis), grid, axis))
    assert np.array_equal(w, before)
    back = got.qparams.dequantize(got.q)
    assert (back[w == 0] == 0).all()
    rows, error = channels_first(w, axis), channels_first(np.abs(w - back), axis)
    for scale, row, errors in zip(got.qparams.scale.tolist(), rows, error, strict=True):
        if not row.any():
            assert scale == 1.0
        # A subnormal scale has too few bits to promise anything of the sort.
        elif row.size and scale >= np.finfo(np.float32).smallest_normal and scale != 1.0:
            assert errors.max() <= scale * (0.5 + 1e-4)


@pytest.mark.sweep(3)
@every_grid
@PROPERTY
@given(case=weights(), shrink=st.floats(0.01, 2.0))
def test_given_ranges_replace_the_observed_ones(grid: Grid, case: Any, shrink: float) -> None:
    w, axis = case
    lo, hi = (np.float32(shrink) * bound for bound in observed(w, axis))
    got = quantize_weight(w, grid, axis, (lo, hi))
    check(w, grid, got, qparams_from_range(lo, hi, grid, axis))


every_axis = pytest.mark.parametrize("axis", [None, 0, 1, 2], ids=["whole", "first", "mid", "last"])


@pytest.mark.sweep(3)
@every_grid
@every_axis
def test_bits_at_vector_boundaries(grid: Grid, axis: int | None) -> None:
    rng = np.random.default_rng(0)
    for side in (*range(1, 19), 31, 32, 33, 1025):
        for shape in ((1, 1, side), (1, side, 1), (side, 1, 1), (2, 3, side), (2, side, 3)):
            w = rng.standard_normal(shape, dtype=np.float32)
            got = quantize_weight(w, grid, axis)
            check(w, grid, got, qparams_from_range(*observed(w, axis), grid, axis))


@every_axis
@pytest.mark.parametrize("name", ["int8-symmetric", "uint8-affine"])
def test_every_table_gives_the_same_bits_and_sums(name: str, axis: int | None) -> None:
    """In several chunks, which threads take as they come; the last of each is a short one."""
    rng = np.random.default_rng(7)

    def quantized(w: np.ndarray) -> list[Any]:
        got = quantize_weight(w, GRIDS[name], axis)
        sums = np.array([got.signal, got.noise])
        return [got.q, got.qparams.scale, got.qparams.zero_point, sums]

    shapes = [(2, 3, side) for side in (1, 7, 16, 17, 33, 1023, 1024)]
    for shape in (*shapes, (3, 700, 401), (1, 5, 200_003), (2, 300_001, 1), (1, 1, 1)):
        w = rng.standard_normal(shape, dtype=np.float32) * np.float32(1e-3)
        on_every_table(lambda _: quantized(w), [1])  # noqa: B023
        w[-1, -1, -1] = np.nan
        with pytest.raises(ValueError, match="holds NaN"):
            quantize_weight(w, GRIDS[name], axis)


@pytest.mark.parametrize("axis", [None, 0], ids=["whole", "first"])
@pytest.mark.parametrize("name", ["int8-symmetric", "int8-affine"])
def test_packed_at_once_is_what_packing_makes(name: str, axis: int | None) -> None:
    """Rows and inputs that fill no block, several strips of inputs, work for several threads."""
    rng = np.random.default_rng(3)
    sides = (0, 1, 3, 4, 15, 16, 17, 63, 64, 65)
    shapes = [(n, k) for n in sides for k in sides]
    for shape in (*shapes, (5, 4097), (33, 8191), (16, 8192), (1100, 4100)):
        w = rng.standard_normal(shape, dtype=np.float32)
        want = quantize_weight(w, GRIDS[name], axis)
        packed = [kernels.pack(want.q), want.qparams.scale, want.qparams.zero_point]

        def at_once(w: np.ndarray = w, want: QuantizedWeight = want) -> list[Any]:
            got = quantize_packed(w, GRIDS[name], axis)
            assert (got.signal, got.noise) == pytest.approx((want.signal, want.noise), rel=1e-12)
            return [got.q, got.qparams.scale, got.qparams.zero_point]

        assert_all_same(on_every_table(lambda _: at_once(), [1]), packed)


def test_ranges_of_ones_own_are_kept_to_when_packed() -> None:
    w = np.random.default_rng(4).standard_normal((20, 70), dtype=np.float32)
    ranges = (np.full(20, -1, np.float32), np.linspace(0.5, 2, 20, dtype=np.float32))
    got, want = (f(w, GRIDS["int8-affine"], 0, ranges) for f in (quantize_packed, quantize_weight))
    assert np.array_equal(kernels.unpack(got.q, 20, 70), want.q)
    assert (want.q == 127).any() and np.array_equal(got.qparams.scale, want.qparams.scale)


def test_what_cannot_be_packed_at_once_is_refused() -> None:
    w, infinite = np.ones((4, 6), np.float32), np.ones((4, 6), np.float32)
    infinite[2, 3] = np.inf
    for named, other, grid, axis in [
        (r"a weight \[n, k\], axis 0 or None and an int8", w[None], INT8, 0),
        (r"a weight \[n, k\], axis 0 or None and an int8", w, INT8, 1),
        (r"a weight \[n, k\], axis 0 or None and an int8", w, AFFINE, 0),
        ("takes float32, not float64", w.astype(np.float64), INT8, 0),
        ("channel 2 along axis 0 holds NaN or infinity", infinite, INT8, 0),
    ]:
        with pytest.raises(ValueError, match=named):
            quantize_packed(other, grid, axis)


def test_the_order_of_memory_does_not_matter() -> None:
    w = np.random.default_rng(1).standard_normal((6, 10), dtype=np.float32)
    want = quantize_weight(w, INT8, 0)
    for other in (np.asfortranarray(w), w[::-1][::-1], w.T.copy().T):
        assert np.array_equal(quantize_weight(other, INT8, 0).q, want.q)
    turned = quantize_weight(w.T, INT8, 1)
    assert np.array_equal(turned.q.T, want.q)
    frozen = w.copy()
    frozen.flags.writeable = False
    assert np.array_equal(quantize_weight(frozen, INT8, 0).q, want.q)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=["nan", "inf", "-inf"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("own_ranges", [True, False], ids=["observed", "given"])
def test_non_finite_weights_name_the_first_channel(
    value: float, axis: int, own_ranges: bool
) -> None:
    w = np.zeros((4, 5, 19), np.float32)
    w[3, 2, 17] = w[2, 3, 18] = value
    ranges = None if own_ranges else (-np.ones(w.shape[axis], np.float32),) * 2
    first = (2, 2, 17)[axis]
    with pytest.raises(ValueError, match=f"channel {first} along axis {axis} holds NaN or infin"):
        quantize_weight(w, INT8, axis, ranges)


def test_non_finite_whole_tensors_and_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="it holds NaN or infinity"):
        quantize_weight(np.array([1, np.nan], np.float32), INT8, None)
    with pytest.raises(ValueError, match="takes float32, not float64; convert it first"):
        quantize_weight(np.zeros(3), INT8, None)
    for axis in (2, -1):
        with pytest.raises(ValueError, match=rf"axis {axis} is not in 0\.\.1 of shape \(2, 3\)"):
            quantize_weight(np.zeros((2, 3), np.float32), INT8, axis)


@pytest.mark.parametrize(
    ("lo", "hi", "message"),
    [
        ([0.0], [1.0], r"shape \(2,\), one element a channel; got \(1,\) and \(1,\)"),
        ([0.0, 0.0], [1.0], r"got \(2,\) and \(1,\)"),
        ([0.0, 2.0], [1.0, 1.0], r"range of channel 1 is 2\.0\.\.1\.0"),
        ([0.0, math.nan], [1.0, 1.0], r"range of channel 1 is nan\.\.1\.0: not finite"),
        ([-math.inf, 0.0], [1.0, 1.0], r"range of channel 0 is -inf\.\.1\.0: not finite"),
    ],
)
def test_ranges_that_do_not_fit_are_refused(lo: list, hi: list, message: str) -> None:
    ranges = (np.array(lo, np.float32), np.array(hi, np.float32))
    with pytest.raises(ValueError, match=message):
        quantize_weight(np.ones((2, 3), np.float32), INT8, 0, ranges)
