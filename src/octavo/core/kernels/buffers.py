"""How rows of numbers come in and go out: any buffer on the CPU, copied only where it must be.

Taken are NumPy arrays, PyTorch tensors (through their address: NumPy lacks bfloat16) and whatever
else has `__dlpack__` or Python's buffer protocol (`memoryview`, `array.array`); neither PyTorch nor
anything else is imported for it. The last axis has to be
contiguous and the others have to have one stride together; an input that is otherwise is copied.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from octavo import _native

DLPACK_CPU = 1


class FloatType(IntEnum):
    """The dtypes of rows; the values are the C++ core's."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2

    @property
    def bytes(self) -> int:
        """Bytes of one value."""
        return 4 if self is FloatType.FLOAT32 else 2


FLOATS = {kind.name.lower(): kind for kind in FloatType}
"""By the names that NumPy, ml_dtypes and PyTorch give them."""


class Rows(NamedTuple):
    """Rows in memory: `rows` times `columns` numbers, `stride` of them from row to row."""

    address: int
    dtype: FloatType
    rows: int
    columns: int
    stride: int
    shape: tuple[int, ...]
    """As it came: `[..., columns]`."""
    owner: Any
    """Keeps the memory alive: what came, or its copy."""


def rows_of(x: Any, name: str, columns: int | None = None) -> Rows:
    """Return `x` [..., columns] as rows, read only: float32, float16 or bfloat16.

    Raises TypeError for another dtype, device or kind of object, ValueError for another shape; the
    message begins with `name`.
    """
    view = _view(x, name)
    _check_columns(view.shape, name, columns)
    stride = _row_stride(view)
    if stride is None:
        view = _view(view.contiguous(), name)
        stride = view.shape[-1]
    return _rows(view, stride)


def output_rows(out: Any, name: str, shape: tuple[int, ...], dtype: FloatType | None) -> Rows:
    """Return `out` as rows to write, of exactly this shape and (unless None) dtype.

    Raises TypeError or ValueError as `rows_of` does, and ValueError where it is read-only or would
    have to be copied: its rows overlap or lie at uneven distances, or its last axis is strided.
    """
    view = _view(out, name)
    if dtype is not None and view.dtype is not dtype:
        raise TypeError(f"{name}: needs {_name(dtype)}, as the input, not {_name(view.dtype)}")
    if view.shape != shape:
        raise ValueError(f"{name}: needs shape {shape}, not {view.shape}")
    if not view.writable:
        raise ValueError(f"{name}: is read-only")
    stride = _row_stride(view)
    found = _rows(view, shape[-1] if stride is None else stride)
    if stride is None or (found.rows > 1 and stride < found.columns):
        raise ValueError(
            f"{name}: strides {view.strides} (bytes) of shape {view.shape}; needs a contiguous "
            "last axis, one stride for all rows, and no overlap"
        )
    return found


def new_like(x: Any, shape: tuple[int, ...], dtype: FloatType) -> Any:
    """Allocate an output of `x`'s kind: a tensor for a tensor, else an array."""
    if is_tensor(x):
        return x.new_empty(shape)
    return np.empty(shape, x.dtype if isinstance(x, np.ndarray) else _NUMPY_TYPES[dtype])


def overlap(a: Rows, b: Rows) -> bool:
    """Tell whether the memory from the first to the last row of each has bytes in common."""
    return a.address < _end(b) and b.address < _end(a)


def interleave(a: Rows, b: Rows) -> bool:
    """Tell whether `a` and `b`, of one stride, lie side by side as columns of one larger array."""
    step = a.stride * a.dtype.bytes
    if step != b.stride * b.dtype.bytes or not step:
        return False
    between = (b.address - a.address) % step
    return a.columns * a.dtype.bytes <= between and between + b.columns * b.dtype.bytes <= step


def output_apart(out: Any, name: str, shape: tuple[int, ...], x: Rows) -> Rows:
    """Return `output_rows` of `x`'s dtype, apart from `x`: kernels read `x` while they write."""
    to = output_rows(out, name, shape, x.dtype)
    if overlap(to, x):
        raise ValueError(f"{name}: shares memory with x")
    return to


def residual_rows(residual: Any, shape: tuple[int, ...], to: Rows) -> Rows:
    """Return the residual as rows of the kind of `to`; address 0 where there is none.

    The residual may be all of the memory of `to`, but no part of it. Raises TypeError or
    ValueError.
    """
    if residual is None:
        return to._replace(address=0, stride=0)
    rows = rows_of(residual, "residual", shape[-1])
    if rows.shape != shape:
        raise ValueError(f"residual: needs shape {shape}, not {rows.shape}")
    if rows.dtype is not to.dtype:
        raise TypeError(
            f"residual: needs {to.dtype.name.lower()}, as the output, not {rows.dtype.name.lower()}"
        )
    if overlap(rows, to) and (rows.address, rows.stride) != (to.address, to.stride):
        raise ValueError("out: shares part of its memory with residual; needs all of it, or none")
    return rows


def array_of(
    x: Any, name: str, dtype: npt.DTypeLike, shape: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """Return `x` as a contiguous array of `dtype`, for what is small or read once: weights, scales.

    Floating point of 16 bits is widened where float32 is asked for; nothing else is converted.
    Raises TypeError or ValueError, whose message begins with `name`.
    """
    wanted = np.dtype(dtype)
    array = _array(x, name, widen=wanted == np.float32)
    if wanted == np.float32 and FLOATS.get(array.dtype.name) is not None:
        array = array.astype(np.float32, copy=False)
    if array.dtype != wanted:
        raise TypeError(f"{name}: needs {wanted}, not {array.dtype}; convert it first")
    if shape is not None and array.shape != tuple(shape):
        raise ValueError(f"{name}: needs shape {tuple(shape)}, not {array.shape}")
    return np.require(array, requirements=["C", "A"])


def array_or_tensor(x: Any, name: str) -> Any:
    """Return `x` itself where it is an array or a tensor, else an array over its memory.

    Raises TypeError, whose message begins with `name`.
    """
    return x if isinstance(x, np.ndarray) or is_tensor(x) else _foreign(x, name)


def is_tensor(x: Any) -> bool:
    """Tell whether `x` is a PyTorch tensor; where PyTorch was not imported, nothing is."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(x, tensor)


_NUMPY_TYPES: dict[FloatType, np.dtype[Any]] = {
    FloatType.FLOAT32: np.dtype(np.float32),
    FloatType.FLOAT16: np.dtype(np.float16),
}
# Looking a dtype's name up takes NumPy ten times as long as all the rest here. It grows by the
# bfloat16 of ml_dtypes.
_FLOAT_TYPES = {d: t for t, d in _NUMPY_TYPES.items()}


class _View(NamedTuple):
    """What an array and a tensor have in common."""

    address: int
    dtype: FloatType
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    writable: bool
    owner: Any

    def contiguous(self) -> Any:
        if isinstance(self.owner, np.ndarray):
            return np.array(self.owner, order="C")  # ascontiguousarray keeps a wrong alignment
        return self.owner.contiguous()


def _view(x: Any, name: str) -> _View:
    if isinstance(x, np.ndarray):
        return _array_view(x, name)
    if is_tensor(x):
        return _tensor_view(x, name)
    return _array_view(_foreign(x, name), name)


def _array_view(x: npt.NDArray[Any], name: str) -> _View:
    dtype = _FLOAT_TYPES.get(x.dtype)
    if dtype is None:
        if not x.dtype.isnative or x.dtype.name not in FLOATS:
            raise TypeError(f"{name}: {_allowed(x.dtype)}")
        dtype = _FLOAT_TYPES[x.dtype] = FLOATS[x.dtype.name]
    address = int(x.__array_interface__["data"][0])
    return _View(address, dtype, x.shape, x.strides, x.flags.writeable, x)


def _tensor_view(x: Any, name: str) -> _View:
    if x.device.type != "cpu" or str(x.layout) != "torch.strided":
        raise TypeError(
            f"{name}: is a {str(x.layout).removeprefix('torch.')} tensor on {x.device}; needs a "
            "strided one on the CPU"
        )
    if x.is_neg():
        raise TypeError(f"{name}: is negated lazily; call resolve_neg() first")
    dtype = FLOATS.get(str(x.dtype).removeprefix("torch."))
    if dtype is None:
        raise TypeError(f"{name}: {_allowed(x.dtype)}")
    strides = tuple(s * dtype.bytes for s in x.stride())
    return _View(x.data_ptr(), dtype, tuple(x.shape), strides, True, x)


def _foreign(x: Any, name: str) -> npt.NDArray[Any]:
    if hasattr(x, "__dlpack__"):
        return _from_dlpack(x, name)
    try:
        return np.asarray(memoryview(x))
    except (TypeError, ValueError, NotImplementedError):
        raise TypeError(
            f"{name}: is a {type(x).__name__}; needs a NumPy array, a PyTorch tensor, an object "
            "with __dlpack__ or a buffer of numbers"
        ) from None


def _from_dlpack(x: Any, name: str) -> npt.NDArray[Any]:
    device = x.__dlpack_device__()[0]
    if int(device) != DLPACK_CPU:
        raise TypeError(f"{name}: is on DLPack device {device}; needs one on the CPU (1)")
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError) as error:
        found = _bfloat16(x, name)
        if found is None:
            raise TypeError(f"{name}: cannot be read through DLPack: {error}") from error
        return found


def _bfloat16(x: Any, name: str) -> npt.NDArray[Any] | None:
    """Return `x` as an array where it is bfloat16, else None.

    NumPy does not read bfloat16 through DLPack, and has the dtype of ml_dtypes.
    """
    try:
        bits: npt.NDArray[np.uint16] = _native.bfloat16_bits(x)
    except (TypeError, ValueError):
        return None
    ml_dtypes = sys.modules.get("ml_dtypes")
    if ml_dtypes is None:
        raise TypeError(f"{name}: is bfloat16, which NumPy has of ml_dtypes: import that first")
    found: npt.NDArray[Any] = bits.view(ml_dtypes.bfloat16)
    _NUMPY_TYPES[FloatType.BFLOAT16] = found.dtype
    return found


def _array(x: Any, name: str, widen: bool) -> npt.NDArray[Any]:
    if isinstance(x, np.ndarray):
        return x
    if not is_tensor(x):
        return _foreign(x, name)
    if x.device.type != "cpu":
        raise TypeError(f"{name}: is a tensor on {x.device}; needs one on the CPU")
    x = x.detach()
    if widen and str(x.dtype) == "torch.bfloat16":
        x = x.float()
    try:
        array: npt.NDArray[Any] = x.numpy()
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    return array


def _check_columns(shape: tuple[int, ...], name: str, columns: int | None) -> None:
    if not shape or (columns is not None and shape[-1] != columns):
        needs = "[..., inputs]" if columns is None else f"[..., {columns}]"
        raise ValueError(f"{name}: needs shape {needs}, not {shape}")


def _rows(view: _View, stride: int) -> Rows:
    rows = 1
    for size in view.shape[:-1]:
        rows *= size
    return Rows(view.address, view.dtype, rows, view.shape[-1], stride, view.shape, view.owner)


def _row_stride(view: _View) -> int | None:
    """Elements from row to row; None where one number cannot tell, or an element is misplaced."""
    size, columns = view.dtype.bytes, view.shape[-1]
    if 0 in view.shape:  # NumPy's strides are then 0
        return columns
    if view.address % size or (columns > 1 and view.strides[-1] != size):
        return None
    if len(view.shape) == 1:
        return columns
    step: int | None = None
    span = 0
    for count, stride in zip(reversed(view.shape[:-1]), reversed(view.strides[:-1]), strict=True):
        if count == 1:
            continue
        if step is None:
            step = stride
        elif stride != span:
            return None
        span = stride * count
    if step is None:
        return columns
    return None if step < 0 or step % size else step // size


def _end(x: Rows) -> int:
    if not x.rows or not x.columns:
        return x.address
    return x.address + ((x.rows - 1) * x.stride + x.columns) * x.dtype.bytes


def _name(dtype: FloatType) -> str:
    return dtype.name.lower()


def _allowed(found: Any) -> str:
    return f"needs float32, float16 or bfloat16, not {found}; convert it first"
