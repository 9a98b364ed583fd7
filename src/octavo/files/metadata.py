"""Reads what an .onnx file says about itself, without reading its weights. Needs nothing else."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from octavo.errors import ModelError
from octavo.files.lookup import suggest_file
from octavo.files.wrong_file import misread

# onnx.proto: ModelProto.graph is 7, .metadata_props 14; StringStringEntryProto.key is 1, .value 2.
_GRAPH, _METADATA_PROPS, _KEY, _VALUE = 7, 14, 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the `metadata_props` of the ONNX file at `path`, without reading its weights.

    Raises ModelError where `path` is not an ONNX file.
    """
    name = os.fspath(path)
    if Path(name).is_dir():
        raise ModelError(misread(Path(name), ""))
    try:
        with Path(name).open("rb") as file:
            return _read_metadata(file)
    except FileNotFoundError:
        raise ModelError(
            f"{name} does not exist; give the path of an .onnx file.{suggest_file(Path(name))}"
        ) from None
    except OSError as error:
        raise ModelError(
            f"{name} cannot be read: {error.strerror or error}; give a file that you may read"
        ) from error
    except ValueError as error:
        raise ModelError(misread(Path(name), error)) from None


def metadata_of(model: bytes) -> dict[str, str]:
    """Return the `metadata_props` of a serialized model. Raises ModelError for other bytes."""
    try:
        return _read_metadata(BytesIO(model))
    except ValueError as error:
        raise ModelError(
            f"the {len(model)} bytes that were given are no ONNX model: {error}; give the bytes of "
            "an .onnx file, or its path"
        ) from None


def _read_metadata(file: BinaryIO) -> dict[str, str]:
    """Read `metadata_props` of the outermost protobuf message, seeking past all other fields."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    found: dict[str, str] = {}
    has_graph = False
    while file.tell() < end:
        field, length = _next_field(file, end)
        if field == _METADATA_PROPS:
            key, value = _read_entry(file, file.tell() + length)
            found[key] = value
        else:
            has_graph = has_graph or field == _GRAPH
            file.seek(length, os.SEEK_CUR)
    if not has_graph:
        raise ValueError("it holds no graph")
    return found


def _read_entry(file: BinaryIO, end: int) -> tuple[str, str]:
    strings = {_KEY: "", _VALUE: ""}
    while file.tell() < end:
        field, length = _next_field(file, end)
        strings[field] = file.read(length).decode()
    return strings[_KEY], strings[_VALUE]


def _next_field(file: BinaryIO, end: int) -> tuple[int, int]:
    """Return number and byte length of the next field; leave the file at that field's content."""
    tag = _varint(file)
    field, wire = tag >> 3, tag & 7
    if wire == _BYTES:
        length = _varint(file)
    elif wire == _VARINT:
        _varint(file)
        length = 0
    elif wire in (_FIXED32, _FIXED64):
        length = 4 if wire == _FIXED32 else 8
    else:
        raise ValueError(f"it holds a field of the unknown wire type {wire}")
    if length > end - file.tell():
        raise ValueError("it ends in the middle of a field")
    return field, length


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise ValueError("it ends in the middle of a number")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("it holds a number longer than 10 bytes")
