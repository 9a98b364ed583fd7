"""Reads and writes .onnx files without copying their weights through protobuf.

In an .onnx file the weights lie as they are (`TensorProto.raw_data`), wrapped in lengths.
`skeleton` walks those lengths over the mapped file and returns the model with each large
initializer replaced by a reference to its place in the same file, so that loading touches none of
the weights.
`write_model` writes the same structure the other way: each tensor goes to the file from where it
lies. What is read and written is plain protobuf (the encoding of protobuf.dev/programming-guides/
encoding and the field numbers of onnx.proto).
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

MODEL_GRAPH = 7  # ModelProto.graph
GRAPH_INITIALIZER = 5  # GraphProto.initializer
TENSOR_RAW_DATA = 9  # TensorProto.raw_data
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LARGE = 1024  # bytes; smaller tensors are parsed as usual
OWN_FILE = "<the model's own file>"  # location of tensors that `skeleton` leaves where they are


class WireError(ValueError):
    """The bytes are no protobuf message, or end too early."""


# docs/notes/onnxruntime.md: "Weights do not pass through protobuf"
def skeleton(path: Path) -> onnx.ModelProto:
    """The model at `path`, its large initializers as references into the file itself (`OWN_FILE`).

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
    """Writes `model`, whose graph has no initializers of its own, with `tensors` as those."""
    graph = model.graph.SerializeToString()
    entries = [_initializer(value) for value in tensors]
    heads = [_head(GRAPH_INITIALIZER, len(head) + size) + head for head, size, _ in entries]
    total = len(graph) + sum(map(len, heads)) + sum(size for _, size, _ in entries)
    model.ClearField("graph")
    file.write(model.SerializeToString())
    file.write(_head(MODEL_GRAPH, total) + graph)
    for head, (_, _, tensor) in zip(heads, entries, strict=True):
        file.write(head)
        if tensor is not None:
            file.write(_raw_data(tensor))  # NumPy's own tofile() hides why a write failed


def _initializer(value: ir.Value) -> tuple[bytes, int, ir.TensorProtocol | None]:
    """A tensor's message but for its raw data, the bytes of that, and where they come from.

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
    return proto.SerializeToString() + _head(TENSOR_RAW_DATA, size), size, tensor


def _raw_data(tensor: ir.TensorProtocol) -> bytes | memoryview:
    """The numbers in the form of the file, not copied where they lie so in memory."""
    if type(tensor) is ir.Tensor and tensor.dtype.bitwidth >= 8 and sys.byteorder == "little":
        array = tensor.numpy()
        if array.flags.c_contiguous:
            return array.reshape(-1).view(np.uint8).data
    return tensor.tobytes()


def _model_parts(data: mmap.mmap) -> Iterator[bytes]:
    for kind, start, body, end in _fields(data, 0, len(data)):
        if kind != _tag(MODEL_GRAPH, BYTES):
            yield data[start:end]
            continue
        parts = list(_graph_parts(data, body, end))
        yield _varint(kind) + _varint(sum(map(len, parts)))
        yield from parts


def _graph_parts(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    for kind, begin, body, stop in _fields(data, start, end):
        if kind == _tag(GRAPH_INITIALIZER, BYTES) and stop - body > LARGE:
            tensor = _tensor_without_data(data, body, stop)
            yield _varint(kind) + _varint(len(tensor)) + tensor
        else:
            yield data[begin:stop]


def _tensor_without_data(data: mmap.mmap, start: int, end: int) -> bytes:
    kept, raw = [], None
    for kind, begin, body, stop in _fields(data, start, end):
        if kind == _tag(TENSOR_RAW_DATA, BYTES):
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


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(tag, its start, start of the body, end) of each field in data[start:end].

    A tag is the field's number and wire type: a known number with a foreign type is another field.
    """
    at = start
    while at < end:
        tag, body = _read_varint(data, at, end)
        wire = tag & 7
        if wire == BYTES:
            length, body = _read_varint(data, body, end)
            stop = body + length
        elif wire == VARINT:
            _, stop = _read_varint(data, body, end)
        elif wire in (FIXED32, FIXED64):
            stop = body + (4 if wire == FIXED32 else 8)
        else:
            raise WireError(f"unknown wire type {wire} at byte {at}")
        if stop > end or tag >> 3 == 0:
            raise WireError(f"a field at byte {at} ends at {stop}, beyond {end}")
        yield tag, at, body, stop
        at = stop


def _read_varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise WireError(f"a number at byte {at} is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _head(number: int, length: int) -> bytes:
    """What stands before the `length` bytes of a field."""
    return _varint(_tag(number, BYTES)) + _varint(length)


def _tag(number: int, wire: int) -> int:
    return number << 3 | wire


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
