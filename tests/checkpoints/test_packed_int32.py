"""Layouts of GPTQ, AWQ and compressed-tensors, packed here as their own packages do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.checkpoints.gptq_awq import from_awq, from_compressed, from_gptq, to_compressed
from tests.checkpoints.words import AWQ_ORDER, words


def _numbers(n: int, k: int, group: int, bits: int = 4) -> tuple[Any, Any, Any]:
    """q and zero uint8, scale float16."""
    rng = np.random.default_rng(n + k + group)
    groups = -(-k // (group or k))
    q = rng.integers(0, 2**bits, (n, k), np.uint8)
    zero = rng.integers(1, 2**bits, (n, groups), np.uint8)
    return q, zero, (rng.random((n, groups)) * 0.1 + 0.01).astype(np.float16)


def _exact(q: Any, zero: Any, scale: Any, group: int) -> Any:
    times = group or q.shape[1]
    wide = [np.repeat(v.astype(np.float32), times, axis=1)[:, : q.shape[1]] for v in (zero, scale)]
    return wide[1] * (q - wide[0])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 128, 256, 0], ids=lambda g: f"group-{g}")
@pytest.mark.parametrize("offset", [0, 1], ids=["v2", "v1"])
def test_gptq(bits: int, group: int, offset: int) -> None:
    q, zero, scale = _numbers(16, 256, group, bits)
    qweight = words(q, bits=bits).T.copy()
    zero[::3] = 0  # in version 1 it borrows from the next one of its word
    whole = words(zero.T.copy(), bits=bits).view(np.uint32)
    ones = sum(1 << place for place in range(0, 32, bits))
    qzeros = (whole - np.uint32(offset * ones)).view(np.int32)
    found = from_gptq(qweight, qzeros, scale.T, bits=bits, group=group, offset=offset)
    assert found.format.bits == bits
    assert found.format.group == (32 if group == 32 else 128)
    np.testing.assert_array_equal(found.dequantize(), _exact(q, zero, scale, group))


@pytest.mark.parametrize("stored", [0, 1], ids=["as-v2", "as-v1"])
@pytest.mark.parametrize("said", [0, 1], ids=["v2", "v1"])
@pytest.mark.parametrize("bits", [4, 8])
def test_symmetric_zero_points_tell_the_version(bits: int, said: int, stored: int) -> None:
    q, _, scale = _numbers(16, 64, 32, bits)
    middle = 2 ** (bits - 1)
    qzeros = words(np.full((2, 16), middle - stored, np.uint8), bits=bits)
    given = (words(q, bits=bits).T.copy(), qzeros, scale.T)
    found = from_gptq(*given, bits=bits, group=32, offset=said, symmetric=True)
    assert found.zero is None
    np.testing.assert_array_equal(
        found.dequantize(), _exact(q, np.full((16, 2), middle), scale, 32)
    )
    for other in (middle - 2, middle + 1):
        qzeros.view(np.uint8)[0, 0] = other
        with pytest.raises(ValueError, match="qzeros holds others"):
            from_gptq(*given, bits=bits, group=32, offset=said, symmetric=True)


@pytest.mark.parametrize("group", [64, 0], ids=["group-64", "whole"])
def test_awq(group: int) -> None:
    q, zero, scale = _numbers(24, 192, group)
    qweight, qzeros = words(q.T.copy(), AWQ_ORDER), words(zero.T.copy(), AWQ_ORDER)
    found = from_awq(qweight, qzeros, scale.T, group=group)
    np.testing.assert_array_equal(found.dequantize(), _exact(q, zero, scale, group))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("k", [256, 100])
def test_compressed_tensors(bits: int, k: int) -> None:
    torch = pytest.importorskip("torch")
    packing = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    q, zero, scale = _numbers(12, k, 32, bits)
    middle = 2 ** (bits - 1)

    def pack(values: Any, axis: int) -> Any:
        signed = torch.from_numpy((values.astype(np.int16) - middle).astype(np.int8))
        return packing.pack_to_int32(signed, bits, packed_dim=axis).numpy()

    found = from_compressed(pack(q, 1), scale, pack(zero, 0), k=k, bits=bits, group=32)
    np.testing.assert_array_equal(found.dequantize(), _exact(q, zero, scale, 32))
    weight, scales, zeros = to_compressed(found)
    np.testing.assert_array_equal(weight, pack(q, 1))
    np.testing.assert_array_equal(zeros, pack(zero, 0))
    np.testing.assert_array_equal(scales, scale.astype(np.float32))


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_scales_beyond_float16_keep_their_digits(size: float) -> None:
    q, _, scale = _numbers(8, 64, 32)
    wide = scale.astype(np.float32) * np.float32(size)
    found = from_compressed(words(q), wide, None, k=64, bits=4, group=32)
    exact = _exact(q, np.full((8, 2), 8), wide, 32)
    np.testing.assert_allclose(found.dequantize(), exact, rtol=2.0**-11)


def test_one_scale_a_channel_is_exact_in_float32() -> None:
    q, _, scale = _numbers(8, 64, 0)
    wide = scale.astype(np.float32) * np.float32(1 / 3)
    found = from_compressed(words(q), wide, None, k=64, bits=4, group=0)
    np.testing.assert_array_equal(found.dequantize(), _exact(q, np.full((8, 1), 8), wide, 0))


def test_what_does_not_belong_together_is_refused() -> None:
    q, zero, scale = _numbers(16, 64, 32)
    qzeros = words((zero - 1).T.copy())
    with pytest.raises(ValueError, match=r"groups of 48 inputs; Octavo's have 32, 64, 128"):
        from_gptq(words(q).T.copy(), qzeros, scale.T, bits=4, group=48, offset=1)
    with pytest.raises(ValueError, match=r"scales \(16, 2\) do not belong to a weight \[16, 64\]"):
        from_gptq(words(q).T.copy(), qzeros, scale.T, bits=4, group=64, offset=1)
    scale[3] = np.inf
    with pytest.raises(ValueError, match="output 3 has a scale that is NaN or infinite"):
        from_gptq(words(q).T.copy(), qzeros, scale.T, bits=4, group=32, offset=1)
