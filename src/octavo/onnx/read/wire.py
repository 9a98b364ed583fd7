"""Reads and writes .onnx files without copying their weights through protobuf.

In an .onnx file the weights lie as they are (`TensorProto.raw_data`), wrapped in lengths.
`skeleton` walks those lengths over the mapped file and returns the model with each large
initializer replaced by a reference to its place in the same file, so that loading touches none of
the weights.
`write_model` writes the same structure the other way: each tensor goes to the file from where it
lies. The numbers of fields are those of onnx.proto.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from octavo.files.protobuf import BYTES, WireError, fields, head, tag, varint

MODEL_GRAPH = 7  # ModelProto.graph
GRAPH_INITIALIZER = 5  # GraphProto.initializer
TENSOR_RAW_DATA = 9  # TensorProto.raw_data
LARGE = 1024  # bytes; smaller tensors are parsed as usual
OWN_FILE = "<the model's own file>"  # location of tensors that `skeleton` leaves where they are


# docs/notes/onnxruntime.md: "Weights do not pass through protobuf"
def skeleton(path: Path) -> onnx.ModelProto:
    """Read the model at `path`, large initializers as references into the file (`OWN_FILE`).

    Raises WireError or protobuf's DecodeError where the file is no model or truncated.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise WireError("the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            parts = list(_model_parts(data))
    model = onnx.ModelProto()
    model.ParseFromString(b"".join(parts))
    return model


def write_model(model: onnx.ModelProto, tensors: Iterable[ir.Value], file: BinaryIO) -> None:
    """Write `model`, whose graph has no initializers of its own, with `tensors` as those."""
    graph = model.graph.SerializeToString()
    entries = [_initializer(value) for value in tensors]
    fronts = [head(GRAPH_INITIALIZER, len(rest) + size) + rest for rest, size, _ in entries]
    total = len(graph) + sum(map(len, fronts)) + sum(size for _, size, _ in entries)
    model.ClearField("graph")
    file.write(model.SerializeToString())
    file.write(head(MODEL_GRAPH, total) + graph)
    for front, (_, _, tensor) in zip(fronts, entries, strict=True):
        file.write(front)
        if tensor is not None:
            file.write(_raw_data(tensor))  # NumPy's own tofile() hides why a write failed


def _initializer(value: ir.Value) -> tuple[bytes, int, ir.TensorProtocol | None]:
    """Return a tensor's message without its raw data, the size of the data, and its source.

    Strings have no raw form, and what lies in another file is only referred to.
    """
    tensor = value.const_value
    assert tensor is not None
    if isinstance(tensor, ir.ExternalTensor) or tensor.dtype is ir.DataType.STRING:
        proto = ir.serde.serialize_tensor(tensor)
        proto.name = value.name or ""
        return bytes(proto.SerializeToString()), 0, None
    proto = onnx.TensorProto(
        name=value.name or "",
        data_type=int(tensor.dtype),
        dims=tensor.shape.numpy(),
        doc_string=tensor.doc_string or None,
    )
    for key, text in tensor.metadata_props.items():
        proto.metadata_props.add(key=key, value=text)
    size = int(tensor.nbytes)
    return proto.SerializeToString() + head(TENSOR_RAW_DATA, size), size, tensor


def _raw_data(tensor: ir.TensorProtocol) -> bytes | memoryview:
    """Return the numbers in the form of the file, not copied where they lie so in memory."""
    if type(tensor) is ir.Tensor and tensor.dtype.bitwidth >= 8 and sys.byteorder == "little":
        array = tensor.numpy()
        if array.flags.c_contiguous:
            return array.reshape(-1).view(np.uint8).data
    return tensor.tobytes()


def _model_parts(data: mmap.mmap) -> Iterator[bytes]:
    for kind, start, body, end in fields(data, 0, len(data)):
        if kind != tag(MODEL_GRAPH, BYTES):
            yield data[start:end]
            continue
        parts = list(_graph_parts(data, body, end))
        yield varint(kind) + varint(sum(map(len, parts)))
        yield from parts


def _graph_parts(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    for kind, begin, body, stop in fields(data, start, end):
        if kind == tag(GRAPH_INITIALIZER, BYTES) and stop - body > LARGE:
            tensor = _tensor_without_data(data, body, stop)
            yield varint(kind) + varint(len(tensor)) + tensor
        else:
            yield data[begin:stop]


def _tensor_without_data(data: mmap.mmap, start: int, end: int) -> bytes:
    kept, raw = [], None
    for kind, begin, body, stop in fields(data, start, end):
        if kind == tag(TENSOR_RAW_DATA, BYTES):
            raw = (begin, body, stop)  # the last one counts, as in any protobuf message
        else:
            kept.append(data[begin:stop])
    if raw is None:
        return b"".join(kept)
    begin, body, stop = raw
    if stop - body < LARGE:
        return b"".join([*kept, data[begin:stop]])
    reference = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, text in (("location", OWN_FILE), ("offset", body), ("length", stop - body)):
        reference.external_data.add(key=key, value=str(text))
    return b"".join(kept) + bytes(reference.SerializeToString())
