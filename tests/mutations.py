"""Small damages of files, each chosen by a random number generator: the same for the same one."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Mutation = Callable[[bytes, Random], bytes]

VALUES: tuple[Any, ...] = (
    *([], [1], [[1]], ["x"], [None], {}, {"a": 1}, None, "x", "", "\0", True, False, 0, -1, 1, 3),
    *(10**6, 2**31, 2**63, 10**30, 1.5, float("nan"), float("inf")),
)
"""What stands in the place of a value in JSON and YAML."""
WORDS = (0, 1, 3, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)
NUMBERS = (0, 1, -1, 2, 7, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 10**6)
FLOATS = (float("nan"), float("inf"), -1.0, 0.0, 1e38)
TEXTS = ("", "x", "\0", "é" * 40, "../x")


def in_bytes(raw: bytes, random: Random) -> bytes:
    """Cuts the file, flips a bit, or overwrites or puts in some bytes, mostly near its begin."""
    most = len(raw) if random.random() < 0.3 else min(len(raw), 4096)
    at, kind = random.randrange(most), random.randrange(5)
    if kind == 0:
        return raw[:at]
    if kind == 1:
        return raw[:at] + bytes([raw[at] ^ 1 << random.randrange(8)]) + raw[at + 1 :]
    if kind == 2:
        return raw[:at] + random.randbytes(random.randrange(1, 9)) + raw[at:]
    return (raw[:at] + (bytes(8), b"\xff" * 8)[kind - 3] + raw[at + 8 :])[: len(raw)]


def in_words(end: int) -> Mutation:
    """Overwrites one number among the first `end` bytes."""

    def mutate(raw: bytes, random: Random) -> bytes:
        at, code = random.randrange(4, end - 8), random.choice("BIQ")
        size = struct.calcsize(code)
        word = random.choice(WORDS) % (1 << 8 * size)
        return raw[:at] + struct.pack(f"<{code}", word) + raw[at + size :]

    return mutate


def in_json(*keys: str) -> Mutation:
    """Changes one value below `keys`; YAML is read of JSON too."""

    def mutate(raw: bytes, random: Random) -> bytes:
        return json.dumps(_below(json.loads(raw), keys, random)).encode()

    return mutate


def in_header(raw: bytes, random: Random) -> bytes:
    """Changes one value in the header of a safetensors file."""
    return _with_header(raw, lambda header: _changed(header, random))


def in_metadata(key: str) -> Mutation:
    """Changes one value in the JSON that a safetensors file has in its metadata."""

    def mutate(raw: bytes, random: Random) -> bytes:
        def change(header: Any) -> Any:
            said = header["__metadata__"]
            said[key] = json.dumps(_changed(json.loads(said[key]), random))
            return header

        return _with_header(raw, change)

    return mutate


def in_model(raw: bytes, random: Random) -> bytes:
    """Changes, clears, repeats or drops one field of an ONNX model."""
    model = onnx.load_from_string(raw)
    message, field = random.choice([(m, f) for m in _messages(model) for f, _ in m.ListFields()])
    kind = random.randrange(4)
    value = getattr(message, field.name)
    if kind == 0:
        message.ClearField(field.name)
    elif not field.is_repeated:
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            setattr(message, field.name, _other(field, value, random))
    elif kind == 1:
        value.append(value[random.randrange(len(value))])
    elif kind == 2 or field.type == FieldDescriptor.TYPE_MESSAGE:
        del value[random.randrange(len(value))]
    else:
        value[random.randrange(len(value))] = _other(field, value[0], random)
    return bytes(model.SerializeToString())


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def _other(field: FieldDescriptor, value: Any, random: Random) -> Any:
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return random.choice(FLOATS)
    if field.type == FieldDescriptor.TYPE_STRING:
        return random.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return random.choice([entry.number for entry in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.choice([b"", value[:-1], value + b"\0", b"\xff" * len(value)])
    wide = field.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
    least = 0 if field.type == FieldDescriptor.TYPE_UINT64 else -(2**63 if wide else 2**31)
    return random.choice([n for n in NUMBERS if least <= n and (wide or n < 2**31)])


def _with_header(raw: bytes, change: Callable[[Any], Any]) -> bytes:
    start = 8 + int.from_bytes(raw[:8], "little")
    text = json.dumps(change(json.loads(raw[8:start]))).encode()
    return len(text).to_bytes(8, "little") + text + raw[start:]


def _below(data: Any, keys: tuple[str, ...], random: Random) -> Any:
    if not keys:
        return _changed(data, random)
    return {**data, keys[0]: _below(data[keys[0]], keys[1:], random)}


def _changed(data: Any, random: Random) -> Any:
    places = [*_places(data)]
    at = random.choice(places[1:] or places)
    data = copy.deepcopy(data)
    if not at:
        return random.choice(VALUES)
    parent = data
    for key in at[:-1]:
        parent = parent[key]
    kind = random.randrange(8)
    if kind == 0:
        del parent[at[-1]]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(0, parent[at[-1]])
    elif kind == 1:
        parent["another key"] = parent[at[-1]]
    else:
        parent[at[-1]] = random.choice(VALUES)
    return data


def _places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _places(value, (*at, key))
    elif isinstance(data, list):
        for i, value in enumerate(data[:6]):
            yield from _places(value, (*at, i))
