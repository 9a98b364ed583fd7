"""Tensors of a GGUF file: as groups, kept or rounded anew, or as floats; some rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.checkpoints.gguf_blocks import groups_of
from octavo.checkpoints.gguf_file import GgufFile, GgufTensor
from octavo.core.group_rounding import round_groups
from octavo.core.kernels import GroupedWeight, WeightFormat
from octavo.errors import ModelError

FLOATS: Mapping[str, str] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Types of plain floats, in PyTorch's words."""

_CHUNK = 1 << 22  # weights that are floats at a time
_MANY_BITS = 5  # from which on four would lose much


@dataclass(frozen=True)
class StoredGroups:
    """A weight [n, k] of a file. `kept`: with the file's own integers, scales and zero points; else
    rounded anew, with `noise` beside `signal`: the sums of squares of what changed, and of all."""

    weight: GroupedWeight
    kept: bool
    signal: float = 0.0
    noise: float = 0.0


def is_float(tensor: GgufTensor) -> bool:
    """Whether it holds floats, and no blocks of integers."""
    return tensor.kind.name in FLOATS


def read_groups(
    file: GgufFile, tensor: GgufTensor, rows: npt.NDArray[np.intp] | None = None
) -> StoredGroups:
    """A tensor [n, k] in blocks as groups; `rows`: those in this order.

    Raises ModelError for a type that cannot be read, and for scales that are NaN or infinite.
    """
    data = file.read(tensor)
    if rows is not None:
        data = data[rows]
    try:
        weight = groups_of(tensor.kind.name, data)
        if weight is not None:
            return StoredGroups(weight, kept=True)
        return _rounded(_chunks(file, tensor, data), _nearest(tensor))
    except ValueError as error:
        raise ModelError(f"{file.path}: {tensor.name} ({tensor.kind.name}): {error}") from None


def round_floats(values: Any, tensor: GgufTensor) -> StoredGroups:
    """Floats [n, k] that were made of `tensor`'s, in the groups that it would be rounded to."""
    n = max(1, _CHUNK // max(1, values.shape[1]))
    parts = [values[first : first + n] for first in range(0, len(values), n)]
    return _rounded(parts, _nearest(tensor))


def read_floats(file: GgufFile, tensor: GgufTensor) -> npt.NDArray[Any]:
    """Its values in its shape: float16 for F16, the bits as uint16 for BF16, float32 for others.

    Raises ModelError for a type that cannot be read.
    """
    data = file.read(tensor)
    as_stored = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}.get(tensor.kind.name)
    if as_stored is not None:
        return data.view(as_stored).reshape(tensor.shape)
    found = np.empty((len(data), tensor.shape[-1]), np.float32)
    first = 0
    for part in _chunks(file, tensor, data):
        found[first : first + len(part)] = part
        first += len(part)
    return found.reshape(tensor.shape)


def _nearest(tensor: GgufTensor) -> WeightFormat:
    """Groups that come near to blocks of which ours hold none."""
    bits = 8 * tensor.bytes / max(1, prod(tensor.shape))
    return WeightFormat.INT8_32 if bits > _MANY_BITS else WeightFormat.INT4_32_AFFINE


def _chunks(
    file: GgufFile, tensor: GgufTensor, data: npt.NDArray[np.uint8]
) -> Iterator[npt.NDArray[np.float32]]:
    """Rows as float32, some at a time."""
    from gguf.quants import dequantize

    rows = max(1, _CHUNK // max(1, tensor.shape[-1]))
    for first in range(0, len(data), rows):
        part = np.ascontiguousarray(data[first : first + rows])
        try:
            yield np.asarray(dequantize(part, tensor.kind), np.float32)
        except NotImplementedError:
            raise ModelError(
                f"{file.path}: {tensor.name} is of type {tensor.kind.name}, which neither Octavo "
                "nor the installed gguf reads: convert the model to another type with "
                "llama-quantize, such as Q4_0"
            ) from None


def _rounded(parts: Iterable[npt.NDArray[np.float32]], weight_format: WeightFormat) -> StoredGroups:
    found = [round_groups(np.ascontiguousarray(part), weight_format) for part in parts]
    weights = [one.weight for one in found]
    zeros = [weight.zero for weight in weights if weight.zero is not None]
    whole = GroupedWeight(
        np.concatenate([weight.q for weight in weights]),
        np.concatenate([weight.scale for weight in weights]),
        np.concatenate(zeros) if zeros else None,
        np.concatenate([weight.channel_scale for weight in weights]),
        weight_format,
    )
    signal, noise = sum(one.signal for one in found), sum(one.noise for one in found)
    return StoredGroups(whole, kept=False, signal=signal, noise=noise)
