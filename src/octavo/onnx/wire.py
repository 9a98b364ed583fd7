"""Reads and writes .onnx files without copying their weights through protobuf.

In an .onnx file the weights lie as they are (`TensorProto.raw_data`), wrapped in lengths. `skeleton`
walks those lengths over the mapped file and returns the model with each large initializer replaced
by a reference to its place in the same file, so that loading touches none of the weights.
`write_model` writes the same structure the other way: each tensor goes to the file from where it
lies. What is read and written is plain protobuf (the encoding of protobuf.dev/programming-guides/
encoding and the field numbers of onnx.proto).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

MODEL_GRAPH = 7  # ModelProto.graph
GRAPH_INITIALIZER = 5  # GraphProto.initializer
TENSOR_RAW_DATA = 9  # TensorProto.raw_data
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LARGE = 1024  # bytes; smaller tensors are parsed as usual


class WireError(ValueError):
    """The bytes are no protobuf message, or end too early."""


def skeleton(path: Path) -> onnx.ModelProto:
    """The model at `path`, its large initializers as references into the file itself.

    Raises WireError or protobuf's DecodeError where the file is no model or truncated.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise WireError("the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            parts = list(_model_parts(data, str(path.resolve())))
    model = onnx.ModelProto()
    model.ParseFromString(b"".join(parts))
    return model


def write_model(model: onnx.ModelProto, tensors: Iterable[ir.Value], file: BinaryIO) -> None:
    """Writes `model`, whose graph has no initializers of its own, with `tensors` as those."""
    graph = model.graph.SerializeToString()
    entries = [(value, _tensor_head(value)) for value in tensors]
    sizes = [_entry_size(value, head) for value, head in entries]
    total = len(graph) + sum(
        _varint_size(_tag(GRAPH_INITIALIZER, BYTES)) + _varint_size(size) + size for size in sizes
    )
    model.ClearField("graph")
    file.write(model.SerializeToString())
    file.write(_varint(_tag(MODEL_GRAPH, BYTES)) + _varint(total) + graph)
    for (value, head), size in zip(entries, sizes, strict=True):
        file.write(_varint(_tag(GRAPH_INITIALIZER, BYTES)) + _varint(size) + head)
        tensor = value.const_value
        assert tensor is not None
        if not isinstance(tensor, (ir.ExternalTensor, ir.StringTensor)):
            file.write(_varint(_tag(TENSOR_RAW_DATA, BYTES)) + _varint(tensor.nbytes))
            tensor.tofile(file)


def _tensor_head(value: ir.Value) -> bytes:
    """A tensor's message but for its raw data."""
    tensor = value.const_value
    assert tensor is not None
    if isinstance(tensor, (ir.ExternalTensor, ir.StringTensor)):
        proto = ir.serde.serialize_tensor(tensor)
    else:
        proto = onnx.TensorProto(
            data_type=int(tensor.dtype), dims=[int(d) for d in tensor.shape]
        )
    proto.name = value.name or ""
    return bytes(proto.SerializeToString())


def _entry_size(value: ir.Value, head: bytes) -> int:
    tensor = value.const_value
    assert tensor is not None
    if isinstance(tensor, (ir.ExternalTensor, ir.StringTensor)):
        return len(head)
    tag = _varint_size(_tag(TENSOR_RAW_DATA, BYTES))
    return len(head) + tag + _varint_size(tensor.nbytes) + int(tensor.nbytes)


def _model_parts(data: mmap.mmap, name: str) -> Iterator[bytes]:
    for number, start, body, end in _fields(data, 0, len(data)):
        if number != MODEL_GRAPH:
            yield data[start:end]
            continue
        parts = list(_graph_parts(data, body, end, name))
        yield _varint(_tag(MODEL_GRAPH, BYTES)) + _varint(sum(map(len, parts)))
        yield from parts


def _graph_parts(data: mmap.mmap, start: int, end: int, name: str) -> Iterator[bytes]:
    for number, begin, body, stop in _fields(data, start, end):
        if number == GRAPH_INITIALIZER and stop - body > LARGE:
            tensor = _tensor_without_data(data, body, stop, name)
            yield _varint(_tag(GRAPH_INITIALIZER, BYTES)) + _varint(len(tensor)) + tensor
        else:
            yield data[begin:stop]


def _tensor_without_data(data: mmap.mmap, start: int, end: int, name: str) -> bytes:
    kept, place = [], None
    for number, begin, body, stop in _fields(data, start, end):
        if number == TENSOR_RAW_DATA and stop - body >= LARGE:
            place = (body, stop - body)
        else:
            kept.append(data[begin:stop])
    if place is None:
        return b"".join(kept)
    reference = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, text in (("location", name), ("offset", place[0]), ("length", place[1])):
        reference.external_data.add(key=key, value=str(text))
    return b"".join(kept) + bytes(reference.SerializeToString())


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, start of its tag, start of its body, end) of each field in data[start:end]."""
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
        yield tag >> 3, at, body, stop
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


def _tag(number: int, wire: int) -> int:
    return number << 3 | wire


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_size(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
