"""What recurrent layers are called with: sequences, outputs and lengths, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.core.kernels.buffers import array_of, array_or_tensor, is_tensor


def sequence_of(x: Any, size: int) -> Any:
    """Return `x` float32 [T, B, size] as the C++ core takes it: `x` itself, where that is possible.

    Raises TypeError or ValueError, whose message begins with the argument's name.
    """
    if isinstance(x, np.ndarray):
        _check_input(x.dtype == np.float32, x, size)
        first, second, last = x.strides
        plain = last == x.itemsize and first >= 0 and second >= 0 and x.flags.aligned
        return x if plain else np.array(x, order="C")
    if not is_tensor(x):
        return sequence_of(array_of(x, "x", np.float32), size)
    if x.device.type != "cpu":
        raise TypeError(f"x: is a tensor on {x.device}; needs one on the CPU")
    x = x.detach()
    _check_input(str(x.dtype) == "torch.float32", x, size)
    return x if x.stride(2) == 1 else x.contiguous()


def _check_input(is_float32: bool, x: Any, size: int) -> None:
    if not is_float32:
        raise TypeError(f"x: needs float32, not {x.dtype}; convert it first")
    if x.ndim != 3 or x.shape[2] != size:
        raise ValueError(f"x: needs shape [T, B, {size}], not {tuple(x.shape)}")


def output_of(out: Any, shape: tuple[int, ...], apart_from: dict[str, Any]) -> Any:
    """Return `out`, where float32 of `shape` can be written there, apart from `apart_from`.

    `apart_from` has arguments by name (None: not given). Kernels write items at a time while they
    still read the arguments.
    """
    out = array_or_tensor(out, "out")
    if tuple(out.shape) != shape:
        raise ValueError(f"out: needs shape {shape}, not {tuple(out.shape)}")
    if str(out.dtype).removeprefix("torch.") != "float32":
        raise TypeError(f"out: needs float32, not {out.dtype}")
    if isinstance(out, np.ndarray) and not (out.flags.writeable and out.flags.aligned):
        raise ValueError("out: is read-only or not aligned")
    strides = _strides(out)
    if _misplaced(shape, strides):
        raise ValueError(
            f"out: strides {strides} (elements) of shape {shape}; needs a contiguous last axis, no "
            "negative stride, and no overlap"
        )
    for name, other in apart_from.items():
        if other is not None and _share(out, other):
            raise ValueError(f"out: shares memory with {name}")
    return out


def _strides(x: Any) -> tuple[int, ...]:
    """Return the strides, in elements, of an array or a tensor of float32."""
    return tuple(s // 4 for s in x.strides) if isinstance(x, np.ndarray) else tuple(x.stride())


def _misplaced(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Tell whether [T, B, columns] has a strided last axis, or two places that may be one."""
    steps, items, columns = shape
    if 0 in shape:
        return False
    if columns > 1 and strides[2] != 1:
        return True
    span = columns
    for stride, count in sorted(zip(strides, (steps, items), strict=False)):
        if count > 1 and stride < span:
            return True
        span += max(0, stride) * (count - 1)
    return False


def _share(a: Any, b: Any) -> bool:
    """Tell whether the memory from the first to the last element of each has bytes in common."""
    (first, end), (begin, last) = _extent(a), _extent(b)
    return first < last and begin < end


def _extent(x: Any) -> tuple[int, int]:
    """First byte and end of a float32 array or tensor without negative strides."""
    address = x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()
    if 0 in x.shape:
        return address, address
    reach = sum((n - 1) * s for n, s in zip(x.shape, _strides(x), strict=True))
    return address, address + 4 * (reach + 1)


def lengths_of(lengths: Any, batch: int, steps: int) -> npt.NDArray[np.int64]:
    """int64 [batch], each 0..steps."""
    listed = isinstance(lengths, list | tuple) or is_tensor(lengths)
    array = np.asarray(lengths if listed else array_or_tensor(lengths, "lengths"))
    if array.dtype.kind not in "iu":
        raise TypeError(f"lengths: needs integers, not {array.dtype}")
    if array.shape != (batch,):
        raise ValueError(f"lengths: needs shape ({batch},), one a batch item, not {array.shape}")
    bad = np.flatnonzero((array < 0) | (array > steps))
    if bad.size:
        raise ValueError(f"lengths: item {bad[0]} is {array[bad[0]]}, not in 0..{steps}")
    return np.ascontiguousarray(array, np.int64)
