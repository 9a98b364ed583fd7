"""Integers of 4 and 8 bits that other quantizers pack into int32, as groups.

GPTQ                qweight [k/8, n], qzeros [groups, n/8], scales [groups, n]: words of inputs
AWQ                 qweight [k, n/8], qzeros [groups, n/8], scales [groups, n]: of outputs
compressed-tensors  weight_packed [n, k/8], weight_zero_point [n/8, g.], weight_scale [n, g.]

With 8 bits a word holds 4 integers in place of 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.kernels import GroupedWeight, WeightFormat

Int32 = npt.NDArray[np.int32]
UInt8 = npt.NDArray[np.uint8]
Floats = npt.NDArray[Any]

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The output that each half byte of a word of AWQ holds, of eight."""

_GROUPS = (128, 64, 32)


def from_gptq(
    qweight: Int32,
    qzeros: Int32,
    scales: Floats,
    *,
    bits: int,
    group: int,
    offset: int,
    symmetric: bool = False,
) -> GroupedWeight:
    """Build a grouped weight from one of GPTQ.

    `offset` is what is to be added to stored zero points: 1 in version 1, 0 in 2. `group` inputs
    share a scale, all of a row where it is 0. `scales` [groups, n] are floats of any width. Where
    the file says `symmetric`, all zero points are in the middle, and tell the version that the file
    does not say, or says wrongly. Raises ValueError for shapes that do not belong together, groups
    that kernels have not, zero points that are not symmetric in either version, and scales that are
    not finite.
    """
    q = _unpacked(np.ascontiguousarray(qweight.T), bits)
    zero = _gptq_zeros(qzeros, bits, offset)
    middle = 2 ** (bits - 1)
    if symmetric and not (zero == middle).all():
        zero = _gptq_zeros(qzeros, bits, 1 - offset)
        if not (zero == middle).all():
            raise ValueError(
                f"sym is true, so that all zero points are {middle}, but qzeros holds others, as "
                f"{int(zero[zero != middle][0])}; correct sym, if the weights are asymmetric"
            )
    return _weight(q, scales.T, zero[:, : len(q)].T, bits, group)


def _gptq_zeros(qzeros: Int32, bits: int, offset: int) -> UInt8:
    """Version 1 is stored as 1 less in each place of a word, with what is borrowed between them."""
    ones = np.uint32(0x11111111 if bits == 4 else 0x01010101)
    words = np.ascontiguousarray(qzeros).view(np.uint32) + np.uint32(offset) * ones
    return _unpacked(words.view(np.int32), bits)


def from_awq(qweight: Int32, qzeros: Int32 | None, scales: Floats, *, group: int) -> GroupedWeight:
    """Build a grouped weight from one of AWQ in the order "gemm", 4 bits.

    Raises ValueError as `from_gptq` does.
    """
    q = _ordered(_unpacked(qweight, 4)).T
    zero = None if qzeros is None else _ordered(_unpacked(qzeros, 4)).T
    return _weight(q, scales.T, zero, 4, group)


def from_compressed(
    weight_packed: Int32,
    scale: Floats,
    zero_point: Int32 | None,
    *,
    k: int,
    bits: int,
    group: int,
) -> GroupedWeight:
    """Build a grouped weight from compressed-tensors' format pack-quantized.

    Raises ValueError as `from_gptq` does.
    """
    q = _unpacked(weight_packed, bits)[:, :k]
    zero = None
    if zero_point is not None:
        zero = _unpacked(np.ascontiguousarray(zero_point.T), bits)[:, : len(q)].T
    return _weight(q, scale, zero, bits, group)


def to_compressed(weight: GroupedWeight) -> tuple[Int32, Floats, Int32 | None]:
    """Return the tensors of compressed-tensors' format pack-quantized.

    They are `weight_packed`, `weight_scale` float32 and `weight_zero_point`.
    """
    bits = weight.format.bits
    scale = weight.scale.astype(np.float32) * weight.channel_scale[:, None]
    zero = None if weight.zero is None else _packed(weight.zero.T, bits).T
    return _packed(weight.q, bits), scale, None if zero is None else np.ascontiguousarray(zero)


def _unpacked(words: Int32, bits: int) -> UInt8:
    """int32 [rows, words] to uint8 [rows, integers], the lowest bits first."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return octets
    found = np.empty((*octets.shape, 2), np.uint8)
    np.bitwise_and(octets, 15, out=found[..., 0])
    np.right_shift(octets, 4, out=found[..., 1])
    return found.reshape(len(octets), -1)


def _packed(values: UInt8, bits: int) -> Int32:
    """uint8 [rows, integers] to int32 [rows, words]."""
    rows, count = values.shape
    per_word = 32 // bits
    wide = np.zeros((rows, -(-count // per_word) * per_word), np.uint8)
    wide[:, :count] = values
    octets = wide if bits == 8 else wide[:, ::2] | (wide[:, 1::2] << np.uint8(4))
    found: Int32 = np.ascontiguousarray(octets).view(np.int32)
    return found


def _ordered(values: UInt8) -> UInt8:
    """Integers of each word of AWQ in the order of outputs."""
    words = values.reshape(len(values), -1, len(AWQ_ORDER))
    return words[..., np.argsort(AWQ_ORDER)].reshape(len(values), -1)


def _weight(q: UInt8, scale: Floats, zero: UInt8 | None, bits: int, group: int) -> GroupedWeight:
    """Build a weight in groups that kernels have: a longer one becomes several with one scale."""
    n, k = q.shape
    ours = next((g for g in _GROUPS if group % g == 0), None)
    if ours is None:
        raise ValueError(
            f"groups of {group} inputs; Octavo's have {', '.join(map(str, sorted(_GROUPS)))}, or "
            "multiples of these"
        )
    weight_format = WeightFormat.grouped(bits, ours, False)
    groups = -(-k // group) if group else 1
    for name, values in (("scales", scale), ("zero points", zero)):
        if values is not None and values.shape != (n, groups):
            raise ValueError(
                f"{name} {values.shape} do not belong to a weight [{n}, {k}] in groups of "
                f"{group or k}, which has {(n, groups)}"
            )
    if zero is not None and not (zero == 2 ** (bits - 1)).all():
        weight_format = WeightFormat.grouped(bits, ours, True)
    else:
        zero = None
    halves, channel = _as_halves(np.asarray(scale, np.float32))
    times = group // ours if group else weight_format.groups(k)

    def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        wide = np.repeat(values, times, axis=1)[:, : weight_format.groups(k)]
        return np.ascontiguousarray(wide)

    zeros = None if zero is None else spread(zero)
    return GroupedWeight(np.ascontiguousarray(q), spread(halves), zeros, channel, weight_format)


def _as_halves(scale: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float16], Any]:
    """Scales as float16, and a factor above 0 for each channel that keeps them in its range.

    A scale of float32 or bfloat16 that has more digits is rounded; where a channel has one scale,
    that is exact.
    """
    if not np.isfinite(scale).all():
        row = int(np.argwhere(~np.isfinite(scale))[0][0])
        raise ValueError(f"output {row} has a scale that is NaN or infinite")
    ones = np.ones(len(scale), np.float32)
    if _exact(scale):
        return scale.astype(np.float16), ones
    if scale.shape[1] == 1:
        size = np.abs(scale[:, 0])  # the channel's own is above 0; the sign stays with the group's
        return np.sign(scale).astype(np.float16), np.where(size, size, ones)
    _, exponent = np.frexp(np.abs(scale).max(axis=1))
    channel = np.ldexp(ones, exponent)
    return (scale / channel[:, None]).astype(np.float16), channel


def _exact(scale: npt.NDArray[np.float32]) -> bool:
    """Tell whether float16 has all of them."""
    with np.errstate(over="ignore"):
        return bool((scale.astype(np.float16).astype(np.float32) == scale).all())
