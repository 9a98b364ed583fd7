"""Blocks of GGUF against gguf's own numbers: the same bits where groups hold them."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest

from octavo.checkpoints.gguf_blocks import groups_of
from octavo.core.kernels import WeightFormat

FORMATS = {
    "Q4_0": WeightFormat.INT4_32,
    "Q4_1": WeightFormat.INT4_32_MINIMUM,
    "Q5_0": WeightFormat.INT8_32,
    "Q8_0": WeightFormat.INT8_32,
}


def _blocks(kind: str, n: int = 24, k: int = 192) -> Any:
    w = np.random.default_rng(1).standard_t(4, size=(n, k)).astype(np.float32) * 0.05
    w[:, :32] = 0  # a group of zeros has the scale 0
    return gguf.quantize(w, gguf.GGMLQuantizationType[kind])


def _of_gguf(kind: str, rows: Any) -> Any:
    return gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])


@pytest.mark.parametrize("kind", FORMATS)
def test_groups_are_the_blocks_bit_for_bit(kind: str) -> None:
    rows = _blocks(kind)
    found = groups_of(kind, rows)
    assert found is not None
    assert found.format is FORMATS[kind]
    np.testing.assert_array_equal(found.dequantize(), _of_gguf(kind, rows))


def test_a_block_of_q4_k_differs_by_the_rounding_of_its_scales() -> None:
    rng = np.random.default_rng(2)
    blocks = rng.integers(0, 256, (48, 144), np.uint8)
    for at in (0, 2):  # of any size: those of a real file are small
        halves = (rng.random(48) * 10.0 ** rng.integers(-4, 0)).astype(np.float16)
        blocks[:, at : at + 2] = halves[:, None].view(np.uint8)
    rows = blocks.reshape(16, -1)
    expected = _of_gguf("Q4_K", rows)
    found = groups_of("Q4_K", rows)
    assert found is not None
    q = found.q.reshape(16, -1, 32)
    first = blocks[0, 16:48]  # the first 64 integers: low halves, then high ones
    np.testing.assert_array_equal(q[0, :2], [first & 15, first >> 4])
    error = np.abs(found.dequantize() - expected).reshape(16, -1, 32).max(axis=2)
    size = np.abs(found.scale.astype(np.float32)) * 15 + np.abs(found.minimum.astype(np.float32))
    smallest = 2.0**-20  # numbers below float16's normal ones lose digits
    assert (error <= (2.0**-11 * size + smallest) * found.channel_scale[:, None]).all()


@pytest.mark.parametrize("kind", ["Q6_K", "Q2_K", "IQ4_NL"])
def test_other_blocks_are_no_groups(kind: str) -> None:
    assert groups_of(kind, np.zeros((2, 210), np.uint8)) is None


@pytest.mark.parametrize("kind", FORMATS)
def test_a_scale_that_is_no_number_is_named_by_its_row(kind: str) -> None:
    rows = _blocks(kind).copy()
    rows[5, :2] = np.float16(np.nan).reshape(1).view(np.uint8)
    with pytest.raises(ValueError, match="row 5 has a scale that is NaN or infinite"):
        groups_of(kind, rows)
