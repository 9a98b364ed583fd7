"""What a library of macOS is loaded with is read from its load commands alone."""

from __future__ import annotations

import struct

import pytest

from tests.macos.run import needed

pytestmark = pytest.mark.slow


def command(kind: int, name: bytes) -> bytes:
    text = name + b"\0" * (8 - len(name) % 8)
    return struct.pack("<6I", kind, 24 + len(text), 24, 0, 0, 0) + text


def test_names_in_the_text_of_a_library_do_not_count() -> None:
    commands = [
        command(0x0D, b"@rpath/own.dylib"),
        command(0x0C, b"/usr/lib/libSystem.B.dylib"),
        command(0x18 | 1 << 31, b"/usr/lib/libweak.dylib"),
    ]
    header = b"\xcf\xfa\xed\xfe" + struct.pack("<7I", 0x0100000C, 0, 6, len(commands), 0, 0, 0)
    library = header + b"".join(commands) + b"/usr/lib/libstdc++.6.dylib\0"
    assert needed(library) == {"/usr/lib/libSystem.B.dylib", "/usr/lib/libweak.dylib"}
