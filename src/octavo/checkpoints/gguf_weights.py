"""Tensors of a GGUF file: as groups, kept or rounded anew, or as floats; some rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.checkpoints.gguf_blocks import HELD, groups_of
from octavo.checkpoints.gguf_file import GgufFile, GgufTensor
from octavo.core.group_rounding import RoundedGroups, round_groups
from octavo.core.kernels import GroupedWeight, WeightFormat, packed_bytes
from octavo.core.kernels.weight_memory import weight_memory
from octavo.errors import ModelError

FLOATS: Mapping[str, str] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Types of plain floats, in PyTorch's words."""

_CHUNK = 1 << 21  # weights that are worked on at a time
_BLOCK = 16  # outputs that are packed together
_MANY_BITS = 5  # from which on four would lose much

UInt8 = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class StoredGroups:
    """A weight [n, k] of a file, packed as `GroupedWeight.pack` does.

    `kept`: with the file's own integers, scales and zero points; else rounded anew, with `noise`
    beside `signal`: the sums of squares of what changed, and of all.
    """

    packed: UInt8
    channel_scale: npt.NDArray[np.float32]
    shape: tuple[int, int]
    format: WeightFormat
    kept: bool
    signal: float = 0.0
    noise: float = 0.0


def is_float(tensor: GgufTensor) -> bool:
    """Tell whether it holds floats, and no blocks of integers."""
    return tensor.kind.name in FLOATS


def will_hold(tensor: GgufTensor) -> tuple[WeightFormat, bool]:
    """Return the format of the groups that a tensor becomes, and whether its integers stay."""
    kept = HELD.get(tensor.kind.name)
    return (_nearest(tensor), False) if kept is None else (kept, True)


def read_groups(file: GgufFile, tensor: GgufTensor, rows: Rows | None = None) -> StoredGroups:
    """Read a tensor [n, k] in blocks as groups; `rows`: those rows in this order.

    Raises ModelError for a type that cannot be read, and for scales that are NaN or infinite.
    """
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise ModelError(
            f"{file.path}: {tensor.name} ({tensor.kind.name}) has the shape {tensor.shape}; blocks "
            "of integers are a matrix with rows and columns"
        )
    data = _bytes(file, tensor, rows)
    try:
        first = next(data)
        weight = groups_of(tensor.kind.name, first)
        if weight is None:
            values = _dequantized(file, tensor, _again(first, data))
            return _rounded(values, tensor)
        parts = (groups_of(tensor.kind.name, part) for part in data)
        packed, scales = _packed((w for w in _again(weight, parts) if w is not None), tensor.shape)
        n, k = tensor.shape
        return StoredGroups(packed, scales, (n, k), weight.format, kept=True)
    except ValueError as error:
        raise ModelError(f"{file.path}: {tensor.name} ({tensor.kind.name}): {error}") from None


def round_floats(file: GgufFile, values: Any, tensor: GgufTensor) -> StoredGroups:
    """Floats [n, k] that were made of `tensor`'s, in the groups that it would be rounded to.

    Raises ModelError where one is NaN or infinite.
    """
    step = _rows_at_once(values.shape[1])
    try:
        return _rounded((values[i : i + step] for i in range(0, len(values), step)), tensor)
    except ValueError as error:
        raise ModelError(f"{file.path}: {tensor.name} ({tensor.kind.name}): {error}") from None


def read_floats(file: GgufFile, tensor: GgufTensor) -> npt.NDArray[Any]:
    """Its values in its shape: float16 for F16, the bits as uint16 for BF16, float32 for others.

    Raises ModelError for a type that cannot be read.
    """
    as_stored = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}.get(tensor.kind.name)
    if as_stored is not None:
        return file.read(tensor).view(as_stored).reshape(tensor.shape)
    found = np.empty((prod(tensor.shape[:-1]), tensor.shape[-1]), np.float32)
    first = 0
    for part in _dequantized(file, tensor, _bytes(file, tensor)):
        found[first : first + len(part)] = part
        first += len(part)
    return found.reshape(tensor.shape)


def _rows_at_once(k: int) -> int:
    return max(1, _CHUNK // max(1, k) // _BLOCK) * _BLOCK


def _bytes(file: GgufFile, tensor: GgufTensor, rows: Rows | None = None) -> Iterator[UInt8]:
    """Yield the bytes of some rows at a time, in whole blocks; `rows` has all read at once."""
    n, step = prod(tensor.shape[:-1]), _rows_at_once(tensor.shape[-1])
    whole = None if rows is None else file.read(tensor)
    for first in range(0, n, step):
        last = min(n, first + step)
        if whole is None or rows is None:
            yield file.read(tensor, first, last)
        else:
            yield whole[rows[first:last]]


def _again(first: Any, others: Iterable[Any]) -> Iterator[Any]:
    """Yield `first`, and then the others."""
    yield first
    yield from others


def _dequantized(
    file: GgufFile, tensor: GgufTensor, data: Iterable[UInt8]
) -> Iterator[npt.NDArray[np.float32]]:
    from gguf.quants import dequantize

    for part in data:
        try:
            yield np.asarray(dequantize(part, tensor.kind), np.float32)
        except NotImplementedError:
            raise ModelError(
                f"{file.path}: {tensor.name} is of type {tensor.kind.name}, which neither Octavo "
                "nor the installed gguf reads: convert the model to another type with "
                "llama-quantize, such as Q4_0"
            ) from None


def _nearest(tensor: GgufTensor) -> WeightFormat:
    """Return a format of about as many bits, where none holds the tensor's integers."""
    bits = 8 * tensor.bytes / max(1, prod(tensor.shape))
    return WeightFormat.INT8_32 if bits > _MANY_BITS else WeightFormat.INT4_32_AFFINE


def _rounded(parts: Iterable[npt.NDArray[np.float32]], tensor: GgufTensor) -> StoredGroups:
    """Round to groups that come near to blocks of which ours hold none."""
    nearest = _nearest(tensor)
    sums = [0.0, 0.0]

    def counted(found: RoundedGroups) -> GroupedWeight:
        sums[0] += found.signal
        sums[1] += found.noise
        return found.weight

    weights = (counted(round_groups(np.ascontiguousarray(part), nearest)) for part in parts)
    n, k = prod(tensor.shape[:-1]), tensor.shape[-1]
    packed, scales = _packed(weights, (n, k))
    return StoredGroups(packed, scales, (n, k), nearest, False, *sums)


def _packed(
    parts: Iterable[GroupedWeight], shape: tuple[int, ...]
) -> tuple[UInt8, npt.NDArray[np.float32]]:
    """Parts of a weight, whole blocks of outputs but for the last, packed one behind another."""
    n, k = shape
    packed, scales, first = np.empty(0, np.uint8), np.empty(n, np.float32), 0
    for part in parts:
        if not first:
            packed = weight_memory(packed_bytes(n, k, part.format))
        at = packed_bytes(first, k, part.format)
        part.pack(packed[at : at + packed_bytes(part.n, k, part.format)])
        scales[first : first + part.n] = part.channel_scale
        first += part.n
    return packed, scales
