"""The encoding of protobuf messages, for what reads .onnx files without the onnx package.

As in protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Data = mmap.mmap | memoryview | bytes


class WireError(ValueError):
    """The bytes are no protobuf message, or end too early."""


def fields(data: Data, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (tag, its start, start of the body, end) of each field in data[start:end].

    A tag is the field's number and wire type: a known number with a foreign type is another field.
    """
    at = start
    while at < end:
        tag, body = read_varint(data, at, end)
        wire = tag & 7
        if wire == BYTES:
            length, body = read_varint(data, body, end)
            stop = body + length
        elif wire == VARINT:
            _, stop = read_varint(data, body, end)
        elif wire in (FIXED32, FIXED64):
            stop = body + (4 if wire == FIXED32 else 8)
        else:
            raise WireError(f"unknown wire type {wire} at byte {at}")
        if stop > end or tag >> 3 == 0:
            raise WireError(f"a field at byte {at} ends at {stop}, beyond {end}")
        yield tag, at, body, stop
        at = stop


def read_varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return the number (a varint) that begins at data[at], and where it ends."""
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


def head(number: int, length: int) -> bytes:
    """Return the bytes before the contents of a field of `length` bytes: its tag and the length."""
    return varint(tag(number, BYTES)) + varint(length)


def tag(number: int, wire: int) -> int:
    """Return the tag that a field begins with: its number and wire type in one number."""
    return number << 3 | wire


def varint(value: int) -> bytes:
    """Encode a number of 0 or more: seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
