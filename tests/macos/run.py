"""Everything for macOS compiled, and the operators' library linked, by zig with Apple's interfaces.

    python -m tests.macos.run

It runs nothing: no emulator of macOS is free software. What would run is told by the other systems,
and by hosted runners. zig comes from PyPI into build/macos, which keeps it (a fresh one first makes
its C++ library, which takes minutes).
"""

from __future__ import annotations

import struct
import sys
import sysconfig
import time
from pathlib import Path

from tests.native.building import BUILD, ROOT, environment_with_tools, kept, run

HOME = BUILD / "macos"
ZIG = HOME / "zig"
RELEASE = "ziglang==0.17.1"
LOADS = {0x0C, 0x18 | 1 << 31, 0x1F | 1 << 31, 0x23 | 1 << 31}
"""Commands that load another library: plainly, weakly, exported again, or upward."""
PROCESSORS = {"arm64": "aarch64", "x86_64": "x86_64"}  # Apple's name, and zig's
# zig names processors by its own option. Kernels need not be fast here, nor optimized for minutes.
# Its linker makes no modules for Python.
COMPILER = """#!{python}
import os, pathlib, sys
if "-bundle" in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).touch()
    sys.exit()
words = []
for word in sys.argv[1:]:
    if word.startswith("-march=armv8.2-a"):
        word = "-mcpu=generic+v8_2a" + word.removeprefix("-march=armv8.2-a")
    words.append("-O1" if word == "-O3" else word)
os.execv({zig!r}, [{zig!r}, "c++", "-target", "{processor}-macos", *words])
"""
BINUTIL = '#!/bin/sh\nexec "{zig}" {tool} "$@"\n'


def say(message: str) -> None:
    print(f"macos: {message}", flush=True)


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def fetch_zig(folder: Path) -> None:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder)
    run(*pip, RELEASE)


def build(processor: str) -> Path:
    """The folder with the operators' library; the module is compiled, and not linked."""
    zig = str(ZIG / "ziglang" / "zig")
    folder = HOME / processor
    folder.mkdir(parents=True, exist_ok=True)
    named = {"python": sys.executable, "zig": zig, "processor": PROCESSORS[processor]}
    programs = {"CMAKE_CXX_COMPILER": script(folder / "c++", COMPILER.format(**named))}
    # CMake asks for it, and would call it only to install.
    programs["CMAKE_INSTALL_NAME_TOOL"] = script(folder / "install_name_tool", "#!/bin/sh\n")
    for tool in ("ar", "ranlib"):
        path = script(folder / tool, BINUTIL.format(zig=zig, tool=tool))
        programs[f"CMAKE_{tool.upper()}"] = path
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_COMPILE_WARNING_AS_ERROR": "ON",
        "CMAKE_SYSTEM_NAME": "Darwin",
        "CMAKE_SYSTEM_PROCESSOR": processor,
        "Python_EXECUTABLE": sys.executable,
        # This system's: what they say of sizes is so on macOS too.
        "Python_INCLUDE_DIR": sysconfig.get_path("include"),
    }
    tools = environment_with_tools()
    define = (f"-D{key}={value}" for key, value in (settings | programs).items())
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *define, env=tools)
    run("cmake", "--build", folder, env=tools)
    return folder


def needed(library: bytes) -> set[str]:
    """What a 64-bit library of macOS is loaded with, by its load commands.

    A name of a library elsewhere in it is only text: libc++ has that of libstdc++.
    """
    (commands,) = struct.unpack_from("<I", library, 16)
    at, found = 32, set()
    for _ in range(commands):
        kind, size = struct.unpack_from("<II", library, at)
        if kind in LOADS:
            (name,) = struct.unpack_from("<I", library, at + 8)
            found.add(library[at + name : at + size].rstrip(b"\0").decode())
        at += size
    return found


def faults(folder: Path, processor: str) -> list[str]:
    """What is wrong with the library as it lies there."""
    library = folder / "liboctavo_ort.dylib"
    data = library.read_bytes()
    found = []
    kind = {"arm64": 0x0100000C, "x86_64": 0x01000007}[processor]
    if data[:8] != b"\xcf\xfa\xed\xfe" + kind.to_bytes(4, "little"):
        return [f"{library} is no library for {processor}"]
    if strangers := needed(data) - {"/usr/lib/libSystem.B.dylib", "/usr/lib/libc++.1.dylib"}:
        found.append(f"{library} needs {', '.join(sorted(strangers))}")
    return found


def main() -> int:
    start = time.monotonic()
    kept(ZIG, RELEASE.encode(), fetch_zig)
    failures = []
    for processor in PROCESSORS:
        failures += faults(build(processor), processor)
        say(f"built for {processor}, {time.monotonic() - start:.0f} s so far")
    for line in failures:
        say(line)
    say("FAILED" if failures else "built, and not run")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
