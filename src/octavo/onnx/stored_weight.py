"""Integers of a file as the float weight that they stand for, and tensors of files.

A layer that is quantized takes the integers as they are (`kept_integers`); one that stays float
takes the float numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.stored_integers import as_int8
from octavo.errors import ModelError


class StoredWeight(ir.LazyTensor):
    """`scale * (q - zero_point)` in float32, made when somebody asks for it and never kept.

    `stored` are q, int8 or uint8; `scale` and `zero_point` broadcast with them. `form` says how it
    was stored, such as "uint8 per tensor".
    """

    def __init__(
        self,
        stored: ir.TensorProtocol,
        scale: npt.NDArray[np.float32],
        zero_point: npt.NDArray[Any],
        form: str,
        *,
        name: str,
    ) -> None:
        super().__init__(
            lambda: ir.Tensor(self.floats()),
            dtype=ir.DataType.FLOAT,
            shape=ir.Shape(stored.shape.numpy()),
            name=name,
        )
        self.stored, self.form = stored, form
        self._scale, self._zero_point = scale, zero_point

    @property
    def affine(self) -> bool:
        """Tell whether its int8 integers have zero points."""
        return bool(np.any(self.zero_point))

    @property
    def zero_point(self) -> npt.NDArray[np.int8]:
        """Return the zero point or points of the int8 integers."""
        return as_int8(np.zeros(0, self._zero_point.dtype), self._zero_point)[1]

    def integers(self) -> npt.NDArray[np.int8]:
        """q as int8: uint8 ones are moved down by 128."""
        stored = read_numbers(self.stored, self.name)
        return as_int8(stored, np.zeros(0, stored.dtype))[0]

    def scales(self) -> npt.NDArray[np.float32]:
        """Return the scales, one for each integer."""
        return np.broadcast_to(self._scale, self.shape.numpy())

    def zero_points(self) -> npt.NDArray[np.int8]:
        """Return the zero points, one for each int8 integer."""
        return np.broadcast_to(self.zero_point, self.shape.numpy())

    def floats(self) -> npt.NDArray[np.float32]:
        """Return the weight as float32."""
        found = read_numbers(self.stored, self.name).astype(np.float32)
        if np.any(self._zero_point):
            found -= self._zero_point.astype(np.float32)
        found *= self._scale
        self.unmap()
        return found

    def unmap(self) -> None:
        """Give back what was mapped to read the integers."""
        if isinstance(self.stored, ir.ExternalTensor):
            unmap(self.stored)


def unmap(tensor: ir.ExternalTensor) -> None:
    """Give the tensor's mapped memory back, now or when the last view of it is gone."""
    try:
        tensor.release()
    except BufferError:
        tensor.raw = None


def read_numbers(tensor: ir.TensorProtocol, name: str | None) -> npt.NDArray[Any]:
    """Return the numbers of `tensor`. Raises ModelError where the file that holds them fails."""
    try:
        return tensor.numpy()
    except FileNotFoundError as error:
        raise ModelError(
            f"external data of tensor {name!r} is missing: {error.filename}; "
            "put the file beside the model, under the name that the model states"
        ) from error
    except (ValueError, OSError) as error:
        raise ModelError(f"tensor {name!r} cannot be read: {error}; get the file again") from error
