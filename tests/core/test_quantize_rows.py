"""Rows to integers, on every instruction set, bit for bit what docs/numbers.md defines."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from octavo.core.kernels import quantize_rows
from tests.core import statement
from tests.core.layers import random_rows
from tests.core.tables import assert_all_same, on_every_table

EDGES = [*range(1, 11), 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257]
GREATEST = np.finfo(np.float32).max
both_groupings = pytest.mark.parametrize("group", [0, 128], ids=["rows", "groups"])


def sizes() -> np.ndarray:
    unit = random_rows(1, 200)[0] / np.float32(1000)
    unit[::7] = 0
    x: np.ndarray = unit.astype(np.float64) * 10.0 ** np.arange(-46, 39)[:, None]
    return x.clip(-GREATEST, GREATEST).astype(np.float32)


def ends(low: float, high: float) -> np.ndarray:
    x = np.random.default_rng(3).uniform(low / 2, high / 2, (3, 300)).astype(np.float32)
    x[:, 5], x[:, 290] = low, high
    return x


def narrow(dtype: Any) -> np.ndarray:
    """NaN, and what is subnormal in float16."""
    x = random_rows(5, 200).astype(dtype)
    x[1, 3] = np.nan
    x[2] /= 1000
    return x


TIES = np.arange(256, dtype=np.float32)[None] - np.float32(0.5)
TIES[0, [0, 255]] = 0, 255  # scale 1, or close to it
ROWS: dict[str, list[np.ndarray]] = {
    "lengths": [random_rows(7, k) for k in EDGES],
    "long": [random_rows(2, k) for k in (32_639, 32_641, 200_000)],
    "sizes": [sizes(), np.abs(sizes()), -np.abs(sizes())],
    "ends": [ends(-GREATEST, GREATEST), ends(0, GREATEST), ends(-GREATEST, 0), ends(-1, 1)],
    "zeros": [ends(0, 0), np.full((1, 130), -0.0, np.float32)],
    "ties": [TIES],
    "16 bits": [narrow(np.float16), narrow(ml_dtypes.bfloat16)],
}


@both_groupings
@pytest.mark.parametrize("rows", ROWS)
def test_rows_have_the_bits_of_the_statement(rows: str, group: int) -> None:
    for x in ROWS[rows]:
        found = on_every_table(lambda _: quantize_rows(x, group), [1])  # noqa: B023
        assert_all_same(found, statement.quantize_rows(x.astype(np.float32), group))


def test_ties_go_to_the_even_integer() -> None:
    q, scale, _ = quantize_rows(np.array([[0, 0.5, 1.5, 2.5, 254.5, 255]], np.float32))
    assert scale[0, 0] == 1
    assert q[0].tolist() == [0, 0, 2, 2, 254, 255]


@both_groupings
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_own_row_or_group(group: int, bad: float) -> None:
    for k in (1, 5, 64, 129, 300):
        for at in {0, k // 2, k - 1}:
            x = random_rows(4, k)
            x[2, at] = bad
            q, scale, zero = quantize_rows(x, group)
            spoilt = at // 128 if group else 0
            assert np.isnan(scale[2, spoilt])
            assert np.isnan(scale).sum() == 1
            assert zero[2, spoilt] == 0
            assert not q[2, spoilt * 128 : spoilt * 128 + 128 if group else k].any()


def test_shapes() -> None:
    for shape in [(5,), (1, 5), (0, 5), (3, 0), (2, 0, 5), (2, 3, 5), (2, 3, 0)]:
        x = np.zeros(shape, np.float32)
        q, scale, zero = quantize_rows(x)
        assert q.shape == shape
        assert scale.shape == zero.shape == (*shape[:-1], 1)
        assert (scale == 1).all()
    q, scale, zero = quantize_rows(np.zeros((2, 3, 257), np.float32), 128)
    assert scale.shape == zero.shape == (2, 3, 3)
    assert quantize_rows(np.zeros((2, 0), np.float32), 128)[1].shape == (2, 1)


def test_what_cannot_be_quantized_says_so() -> None:
    with pytest.raises(TypeError, match=r"x: needs .* not float64"):
        quantize_rows(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="group: 32"):
        quantize_rows(np.zeros((2, 3), np.float32), 32)
    with pytest.raises(ValueError, match=r"x: needs shape .* not \(\)"):
        quantize_rows(np.array(1, np.float32))
