"""Scales and zero points against DESIGN's definition, stated a second time in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.qparams import Grid, QParams, QType, qparams_from_range
from octavo.errors import RecipeError
from tests.core.grids import GRIDS, every_grid

PROPERTY = settings(deadline=None, max_examples=30)

FINITE = st.one_of(
    st.floats(-4, 4, width=32),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(-(2.0**-126), 2.0**-126, width=32),  # subnormal
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 3.4028234663852886e38, -3.4028234663852886e38]),
)


def stated(lo: float, hi: float, grid: Grid) -> tuple[np.float32, int]:
    """The definition, one channel at a time. The quotient of two float32 that is rounded to float64
    and then to float32 is the float32 quotient, so that the bits can be compared."""
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    steps = float(grid.qmax - grid.qmin)
    if grid.symmetric:
        scale = np.float32(max(-lo, hi) / (steps / 2))
        return (scale if scale > 0 else np.float32(1)), grid.zero_point
    scale = np.float32(float(np.float32(hi / steps)) - float(np.float32(lo / steps)))
    scale = scale if scale > 0 else np.float32(1)
    quotient = float(np.float32(-lo / float(scale)))
    return scale, min(max(grid.qmin + round(quotient), grid.qmin), grid.qmax)


def float32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@every_grid
@PROPERTY
@given(pairs=st.lists(st.tuples(FINITE, FINITE), max_size=5))
def test_scale_and_zero_point_are_the_stated_ones(grid: Grid, pairs: list) -> None:
    lo = float32(*(min(p) for p in pairs))
    hi = float32(*(max(p) for p in pairs))
    got = qparams_from_range(lo, hi, grid, axis=1)
    want = [stated(a, b, grid) for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
    assert got.axis == 1
    assert got.scale.dtype == np.float32
    assert got.zero_point.dtype == np.int32
    assert got.scale.tolist() == [float(scale) for scale, _ in want]
    assert got.zero_point.tolist() == [zero for _, zero in want]


@every_grid
@PROPERTY
@given(a=FINITE, b=FINITE)
def test_scales_are_usable_and_zero_is_exact(grid: Grid, a: float, b: float) -> None:
    params = qparams_from_range(float32(min(a, b)), float32(max(a, b)), grid, None)
    assert 0 < params.scale[0] < math.inf
    assert grid.qmin <= params.zero_point[0] <= grid.qmax
    zero = params.quantize(float32(0.0), grid)
    assert zero.tolist() == params.zero_point.tolist()
    assert params.dequantize(zero).tolist() == [0.0]


@pytest.mark.parametrize(
    ("grid", "qmin", "qmax", "zero"),
    [
        ("int8-symmetric", -127, 127, 0),
        ("int8-affine", -128, 127, 0),
        ("uint8-symmetric", 1, 255, 128),
        ("uint8-affine", 0, 255, 0),
        ("int8-symmetric-7bit", -64, 64, 0),
        ("int8-affine-7bit", -64, 63, 0),
        ("uint8-symmetric-7bit", 0, 128, 64),
        ("uint8-affine-7bit", 0, 127, 0),
    ],
)
def test_grids(grid: str, qmin: int, qmax: int, zero: int) -> None:
    got = GRIDS[grid]
    assert (got.qmin, got.qmax, got.zero_point) == (qmin, qmax, zero)
    assert np.iinfo(got.dtype).min <= qmin < qmax <= np.iinfo(got.dtype).max


@pytest.mark.parametrize(
    ("grid", "lo", "hi", "scale", "zero"),
    [  # by hand, from DESIGN's formulas; powers of two make them exact
        ("int8-symmetric", -3.0, 254.0, 2.0, 0),
        ("uint8-symmetric", -127.0, 3.0, 1.0, 128),
        ("int8-symmetric-7bit", -16.0, 8.0, 0.25, 0),
        ("uint8-affine", -25.5, 102.0, 0.5, 51),
        ("int8-affine", -64.0, 191.0, 1.0, -64),
        ("uint8-affine", 3.0, 255.0, 1.0, 0),  # widened to 0..255
        ("uint8-affine", -255.0, -3.0, 1.0, 255),  # widened to -255..0
        ("uint8-affine", -2.5, 252.5, 1.0, 2),  # half to even
        ("uint8-affine-7bit", -63.5, 63.5, 1.0, 64),  # half to even
        ("int8-symmetric", 0.0, 0.0, 1.0, 0),
        ("int8-affine", 0.0, 0.0, 1.0, -128),
        ("uint8-symmetric", 0.0, 0.0, 1.0, 128),
    ],
)
def test_golden_parameters(grid: str, lo: float, hi: float, scale: float, zero: int) -> None:
    params = qparams_from_range(float32(lo), float32(hi), GRIDS[grid], None)
    assert (params.scale.tolist(), params.zero_point.tolist()) == ([scale], [zero])


def test_quantize_rounds_half_to_even_and_clips() -> None:
    params = QParams(float32(0.5), np.array([0], np.int32), None)
    grid = GRIDS["int8-symmetric"]
    w = float32(0.25, 0.75, 1.25, -0.25, -0.75, 63.5, 1e9, -1e9)
    assert params.quantize(w, grid).tolist() == [0, 2, 2, 0, -2, 127, 127, -127]


def test_parameters_run_along_their_axis() -> None:
    params = QParams(float32(1, 2, 4), np.array([0, 1, -1], np.int32), axis=1)
    q = np.full((2, 3), 3, np.int8)
    assert params.dequantize(q).tolist() == [[3.0, 4.0, 16.0]] * 2
    assert params.quantize(params.dequantize(q), GRIDS["int8-affine"]).tolist() == q.tolist()


def test_a_float_type_has_no_grid() -> None:
    with pytest.raises(RecipeError, match="a grid needs int8 or uint8, not 'float16'"):
        Grid.of(QType.FLOAT16, symmetric=True)
