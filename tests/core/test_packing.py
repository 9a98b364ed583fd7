"""The packed layout of weights, against its definition."""

import itertools
from typing import Any

import numpy as np
import pytest

from octavo import _native
from octavo.core.kernels import (
    PackedWeight,
    WeightFormat,
    aligned,
    pack,
    packed_bytes,
    unpack,
)
from octavo.core.kernels.weight_memory import weight_memory

LONG = [(1, 200_000), (3000, 2), (517, 1031), (2065, 2112), (2048, 2050)]
"""The last two are so large that results go past the caches."""
SIZES = [*range(1, 11), 15, 16, 17, 31, 32, 33, 63, 64, 65]


def plainly_packed(q: np.ndarray) -> np.ndarray:
    """`[ceil(N/16)][ceil(K/4)][16][4]`, zero padded."""
    n, k = q.shape
    padded = np.zeros((-(-n // 16) * 16, -(-k // 4) * 4), np.int8)
    padded[:n, :k] = q
    blocks = padded.reshape(padded.shape[0] // 16, 16, padded.shape[1] // 4, 4)
    return blocks.transpose(0, 2, 1, 3).reshape(-1).view(np.uint8)


def integers(n: int, k: int) -> np.ndarray:
    return np.random.default_rng([n, k]).integers(-128, 128, (n, k)).astype(np.int8)


@pytest.mark.usefixtures("isa")
def test_packing_is_the_layout_and_unpacking_its_inverse() -> None:
    for n, k in (*itertools.product(SIZES, SIZES), *LONG):
        q = integers(n, k)
        packed = pack(q)
        assert packed.ctypes.data % 64 == 0
        assert packed.size == packed_bytes(n, k)
        assert np.array_equal(packed, plainly_packed(q))
        assert np.array_equal(unpack(packed, n, k), q)


@pytest.mark.parametrize("shape", [(0, 0), (0, 7), (7, 0)], ids=str)
def test_nothing_packs_to_nothing(shape: tuple[int, int]) -> None:
    q = np.empty(shape, np.int8)
    assert pack(q).size == packed_bytes(*shape) == 0
    assert unpack(pack(q), *shape).shape == shape


def test_other_strides_pack_the_same() -> None:
    q = integers(20, 30)
    for view in (np.asfortranarray(q), np.repeat(q, 2, axis=1)[:, ::2], q[::-1][::-1]):
        assert np.array_equal(pack(view), pack(q))


@pytest.mark.parametrize("begins_at", [0, 1, 63])
@pytest.mark.parametrize("shape", [(17, 5), (2065, 2112), (2048, 2050), (70_000, 61)], ids=str)
def test_unpacking_writes_nothing_else(shape: tuple[int, int], begins_at: int) -> None:
    """Rows of the last three go past the caches, in lines that they do not begin with."""
    q = integers(*shape)
    room = np.full(q.size + 256, 0x5B, np.int8)
    start = -room.ctypes.data % 64 + begins_at
    _native.unpack(pack(q), room[start : start + q.size].reshape(shape))
    assert np.array_equal(room[start : start + q.size].reshape(shape), q)
    assert (room[:start] == 0x5B).all()
    assert (room[start + q.size :] == 0x5B).all()


@pytest.mark.parametrize("alignment", [64, 4096])
@pytest.mark.parametrize("nbytes", [1, 64, 1000])
def test_memory_is_aligned(nbytes: int, alignment: int) -> None:
    memory = aligned(nbytes, alignment)
    assert (memory.size, memory.ctypes.data % alignment) == (nbytes, 0)


@pytest.mark.parametrize("nbytes", [1, 65, 100_001, 40 << 20])
def test_memory_of_weights_is_aligned_and_nobody_elses(nbytes: int) -> None:
    first, second = weight_memory(nbytes), weight_memory(nbytes)
    first[:], second[:] = 1, 2
    assert (first.size, first.ctypes.data % 64, first.flags.writeable) == (nbytes, 0, True)
    assert (first == 1).all()


def test_weights_lie_behind_one_another() -> None:
    """Where both fit a region: at most one of three pairs goes over an end."""
    memory = [weight_memory(1 << 20) for _ in range(4)]
    gaps = [b.ctypes.data - a.ctypes.data for a, b in itertools.pairwise(memory)]
    assert gaps.count(1 << 20) >= 2


def test_what_cannot_be_packed_says_so() -> None:
    refusals: list[tuple[type[Exception], str, Any]] = [
        (TypeError, "q: needs int8", lambda: pack(np.zeros((2, 2), np.uint8))),  # type: ignore[arg-type]
        (ValueError, r"q: shape \(4,\)", lambda: pack(np.zeros(4, np.int8))),
        (ValueError, r"packed: .*\(64,\)", lambda: unpack(np.zeros(3, np.uint8), 1, 1)),
        (TypeError, "packed: .*uint8", lambda: unpack(np.zeros(64, np.int8), 1, 1)),  # type: ignore[arg-type]
        (ValueError, r"\[-1, 2\]", lambda: packed_bytes(-1, 2)),
    ]
    for error, named, call in refusals:
        with pytest.raises(error, match=named):
            call()


def test_formats_have_the_names_that_the_core_knows() -> None:
    for known in WeightFormat:
        assert WeightFormat.parse(known.value) is known
        assert _native.packed_bytes(3, 5, known.value) == packed_bytes(3, 5, known)


def test_an_unknown_format_is_refused_by_name() -> None:
    message = "the format 'int3', which this release of Octavo does not know .it knows int8"
    packed, scale = pack(integers(3, 5)), np.ones(3, np.float32)
    rows, halves = np.zeros((3, 5), np.uint8), np.zeros((3, 1), np.uint16)
    filters = _native.ConvShape(3, 5, 1, [1, 1], [1, 1], [1, 1], [0, 0], [0, 0], [1, 1])
    for refused in (
        lambda: WeightFormat.parse("int3"),
        lambda: _native.packed_bytes(3, 5, "int3"),
        lambda: _native.pack_groups(rows, halves, None, packed, "int3"),
        lambda: _native.unpack_groups(packed, rows, halves, None, "int3"),
        lambda: _native.Linear(packed, 3, 5, 0, scale, None, None, 0, False, "int3"),
        lambda: _native.Matrix.int8(packed, 3, 5, scale, None, "int3"),
        lambda: _native.Conv(filters, packed, scale, None, 0, "int3"),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
    for layer in (
        lambda: _native.Matrix.int8(packed, 3, 5, scale, None, "int4-32"),
        lambda: _native.Conv(filters, packed, scale, None, 0, "int4-32"),
    ):
        with pytest.raises(ValueError, match="weights in groups are for linear layers"):
            layer()


def test_a_packed_weight_checks_its_fields() -> None:
    q, one, zero = integers(3, 5), np.ones(3, np.float32), np.zeros(3, np.int32)
    packed = pack(q)
    assert np.array_equal(PackedWeight(packed, 3, 5, one, zero, 128).unpack(), q)
    shifted = aligned(packed.size + 64)[8:][: packed.size]
    refusals: list[tuple[type[Exception], str, tuple[Any, ...]]] = [
        (ValueError, r"packed: .*\(64,\)", (packed, 3, 4, one)),
        (TypeError, "packed: .*uint8, not bytes", (b"", 3, 5, one)),
        (ValueError, r"scale: .*\(4,\)", (pack(integers(4, 5)), 4, 5, one)),
        (TypeError, "scale: .*float32", (packed, 3, 5, np.ones(3))),
        (TypeError, "zero_point: .*int32", (packed, 3, 5, one, np.zeros(3, np.int64))),
        (ValueError, "zero_point: .*-128", (packed, 3, 5, one, zero - 129)),
        (ValueError, "zero_point: .*127", (packed, 3, 5, one, zero + 128)),
        (ValueError, "group: 64", (packed, 3, 5, one, zero, 64)),
        (ValueError, "packed: begins 8 bytes behind a multiple of 64", (shifted, 3, 5, one)),
    ]
    for error, named, arguments in refusals:
        with pytest.raises(error, match=named):
            PackedWeight(*arguments)
