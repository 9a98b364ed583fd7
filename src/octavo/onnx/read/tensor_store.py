"""Where quantized tensors go while a model is converted: memory, or straight into the data file.

Small results stay one file. Where the result needs external data, each tensor is appended to the
data file as soon as it exists and only its place is kept, so that converting a model takes little
more memory than its largest tensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from octavo.graph.analysis.walk import graphs_of
from octavo.onnx.read import map_types
from octavo.onnx.read.validate import tensors_of
from octavo.onnx.stored_weight import unmap

ALIGNMENT = 64  # bytes; keeps mapped tensors on cache lines
INLINE_BELOW = 1024  # bytes; smaller tensors stay in the model file in any case


class TensorStore:
    """Keeps tensors in memory (`path=None`) or appends them to the data file at `path`."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: BinaryIO | None = None if path is None else path.open("wb")

    def put(
        self, array: npt.NDArray[Any], name: str, dtype: ir.DataType | None = None
    ) -> ir.TensorProtocol:
        """Store the numbers of `array` as a tensor, under `name`."""
        if self._file is None or array.nbytes < INLINE_BELOW:
            # Not ascontiguousarray: it makes a scalar a vector.
            return ir.Tensor(np.asarray(array, order="C"), name=name, dtype=dtype)
        offset = self._aligned()
        kept = dtype if dtype is not None else ir.DataType.from_numpy(array.dtype)
        if kept.bitwidth < 8:  # two in a byte
            packed = ir.Tensor(array, dtype=kept).tobytes()
            self._file.write(packed)
            return self._external(name, kept, array.shape, offset, len(packed))
        self._file.write(np.ascontiguousarray(array).data)
        return self._external(name, kept, array.shape, offset, array.nbytes)

    def adopt(self, tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
        """Return the same tensor, moved into the data file, in pieces, where it is large."""
        if tensor.dtype is ir.DataType.STRING:
            return tensor
        if self._file is None or tensor.nbytes < INLINE_BELOW:
            return self._inline(tensor, name)
        if isinstance(tensor, ir.ExternalTensor) and Path(tensor.path) == self.path:
            return tensor
        offset = self._aligned()
        if isinstance(tensor, ir.ExternalTensor):
            tensor.tofile(self._file)
            unmap(tensor)
        else:
            self._file.write(tensor.tobytes())  # NumPy's own tofile() hides why a write failed
        moved = self._external(
            name, tensor.dtype, tuple(tensor.shape.numpy()), offset, tensor.nbytes
        )
        return _documented(moved, tensor)

    def spill(self, path: Path) -> None:
        """Send new tensors to a data file at `path`; `adopt` moves the earlier ones there."""
        self.path, self._file = path, path.open("wb")

    def close(self) -> None:
        """Write out what is buffered and close the data file."""
        if self._file is not None:
            self._file.close()

    def _inline(self, tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
        if not isinstance(tensor, ir.ExternalTensor):
            return tensor
        array = np.array(tensor.numpy())
        dtype = tensor.dtype
        unmap(tensor)
        return _documented(ir.Tensor(array, name=name, dtype=dtype), tensor)

    def _aligned(self) -> int:
        assert self._file is not None
        gap = -self._file.tell() % ALIGNMENT
        self._file.write(b"\0" * gap)
        return self._file.tell()

    def _external(
        self, name: str, dtype: ir.DataType, shape: tuple[int, ...], offset: int, length: int
    ) -> ir.ExternalTensor:
        assert self.path is not None
        return ir.ExternalTensor(
            self.path.name,
            offset,
            length,
            dtype,
            shape=ir.Shape(shape),
            name=name,
            base_dir=self.path.parent,
        )


def _documented(tensor: ir.TensorProtocol, like: ir.TensorProtocol) -> ir.TensorProtocol:
    tensor.doc_string = like.doc_string
    tensor.metadata_props.update(like.metadata_props)
    return tensor


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Convert the model to a message; tensors in files are referred to."""
    proto = ir.serde.serialize_model(model)
    map_types.restore_types(model, proto)
    return proto


def self_contained(model: ir.Model) -> onnx.ModelProto:
    """Convert the model to one message, which holds all its tensors."""
    inline_attributes(model)
    for graph in graphs_of(model):
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                value.const_value = TensorStore(None).adopt(value.const_value, name)
    return to_proto(model)


def inline_attributes(model: ir.Model) -> None:
    """Brings tensors of attributes that lie in a file into the model: a node has them at hand."""
    for graph in graphs_of(model):
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if any(isinstance(t, ir.ExternalTensor) for t in tensors_of(attribute)):
                    held = [TensorStore(None).adopt(t, t.name or "") for t in tensors_of(attribute)]
                    one = attribute.type is ir.AttributeType.TENSOR
                    node.attributes[name] = ir.Attr(name, attribute.type, held[0] if one else held)
