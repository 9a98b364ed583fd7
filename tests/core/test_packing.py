"""The packed layout of weights, against its definition."""

import itertools

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
@pytest.mark.parametrize("n", SIZES)
def test_packing_is_the_layout_and_unpacking_its_inverse(n: int) -> None:
    for k in SIZES:
        q = integers(n, k)
        packed = pack(q)
        assert packed.ctypes.data % 64 == 0
        assert packed.size == packed_bytes(n, k)
        assert np.array_equal(packed, plainly_packed(q))
        assert np.array_equal(unpack(packed, n, k), q)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_long_weights(shape: tuple[int, int]) -> None:
    q = integers(*shape)
    assert np.array_equal(pack(q), plainly_packed(q))
    assert np.array_equal(unpack(pack(q), *shape), q)


@pytest.mark.parametrize("shape", [(0, 0), (0, 7), (7, 0)], ids=str)
def test_nothing_packs_to_nothing(shape: tuple[int, int]) -> None:
    q = np.empty(shape, np.int8)
    assert pack(q).size == packed_bytes(*shape) == 0
    assert unpack(pack(q), *shape).shape == shape


def test_other_strides_pack_the_same() -> None:
    q = integers(20, 30)
    for view in (np.asfortranarray(q), np.repeat(q, 2, axis=1)[:, ::2], q[::-1][::-1]):
        assert np.array_equal(pack(view), pack(q))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("shape", [(17, 5), (2065, 2112)], ids=str)
def test_packing_writes_nothing_else(shape: tuple[int, int]) -> None:
    q, size = integers(*shape), packed_bytes(*shape)
    room = np.full(size + 128, 0xAB, np.uint8)
    start = -room.ctypes.data % 64
    _native.pack(q, room[start : start + size])
    assert (room[:start] == 0xAB).all()
    assert (room[start + size :] == 0xAB).all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("begins_at", [0, 1, 16, 63])
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
    with pytest.raises(TypeError, match=r"q: needs int8, not uint8"):
        pack(np.zeros((2, 2), np.uint8))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"q: shape \(4,\) must be \[N, K\]"):
        pack(np.zeros(4, np.int8))
    with pytest.raises(ValueError, match=r"packed: shape \(3,\).*needs contiguous \(64,\)"):
        unpack(np.zeros(3, np.uint8), 1, 1)
    with pytest.raises(TypeError, match="packed: needs a NumPy array of uint8, not int8"):
        unpack(np.zeros(64, np.int8), 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\[-1, 2\] cannot be"):
        packed_bytes(-1, 2)


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
    q = integers(3, 5)
    one, zero = np.ones(3, np.float32), np.zeros(3, np.int32)
    weight = PackedWeight(pack(q), 3, 5, one, zero, 128)
    assert np.array_equal(weight.unpack(), q)
    with pytest.raises(ValueError, match=r"packed: shape \(128,\).*needs contiguous \(64,\)"):
        PackedWeight(pack(q), 3, 4, one)
    with pytest.raises(TypeError, match="packed: needs a NumPy array of uint8, not bytes"):
        PackedWeight(b"", 3, 5, one)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"scale: shape \(3,\).*needs contiguous \(4,\)"):
        PackedWeight(pack(integers(4, 5)), 4, 5, one)
    with pytest.raises(TypeError, match="scale: needs a NumPy array of float32, not float64"):
        PackedWeight(pack(q), 3, 5, np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="zero_point: needs a NumPy array of int32, not int64"):
        PackedWeight(pack(q), 3, 5, one, np.zeros(3, np.int64))  # type: ignore[arg-type]
    for value in (-129, 128):
        with pytest.raises(ValueError, match=r"zero_point: holds values outside -128\.\.127"):
            PackedWeight(pack(q), 3, 5, one, np.array([0, value, 0], np.int32))
    with pytest.raises(ValueError, match="group: 64 must be 0"):
        PackedWeight(pack(q), 3, 5, one, zero, 64)
    room = aligned(packed_bytes(3, 5) + 64)
    with pytest.raises(ValueError, match="packed: begins 8 bytes behind a multiple of 64"):
        PackedWeight(room[8 : 8 + packed_bytes(3, 5)], 3, 5, one)
