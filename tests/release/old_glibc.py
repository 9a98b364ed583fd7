"""Makes what a compiler of a newer Linux links with: the symbols of glibc 2.28, and no newer ones.

A library asks, when it is loaded, for the versions that its symbols had where it was linked. So
wheels for older systems are linked with libraries that hold no code, only the names that glibc
2.28 has, each at its version of then and in its library of then: glibc 2.34 has moved threads and
dlopen. What is newer is an error of the linker, but for the few functions of `nonshared.c` that
headers and the static C++ library of a newer system take for granted.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NEWEST = (2, 28)
MOVED = (2, 34)
"""In which libpthread and libdl became parts of libc."""
OLD_HOMES = {"pthread_": "libpthread.so.0", "sem_": "libpthread.so.0", "dl": "libdl.so.2"}
NONSHARED = Path(__file__).with_name("nonshared.c")
# Name, version and whether it is the default one, of a line of `readelf --dyn-syms`.
SYMBOL = re.compile(
    r" (?P<kind>FUNC|IFUNC|OBJECT) +(?:GLOBAL|WEAK) +DEFAULT +\d+ "
    r"(?P<name>\w+)@(?P<default>@?)GLIBC_(?P<version>[\d.]+)"
)


class Symbol(NamedTuple):
    kind: str
    version: tuple[int, ...]


def link_folder(folder: Path, compiler: str) -> Path:
    """Fills `folder`, to be named by `-L` when the C++ compiler `compiler` links."""
    folder.mkdir(parents=True, exist_ok=True)
    libraries: dict[str, dict[str, Symbol]] = defaultdict(dict)
    for real in real_libraries(compiler):
        for library, name, symbol in old_symbols(real):
            libraries[library][name] = symbol
    for library, symbols in libraries.items():
        make_library(folder, library, symbols, compiler)
    static = folder / "nonshared.o"
    run(compiler.replace("g++", "gcc"), "-O2", "-fPIC", "-c", NONSHARED, "-o", static)
    archive = folder / "liboctavo_nonshared.a"
    archive.unlink(missing_ok=True)
    run(compiler.replace("g++", "ar"), "rcs", archive, static)
    linked = [folder / name for name in libraries if not name.startswith(("libc.", "libm."))]
    needed = " ".join(str(path) for path in linked)
    own = found(compiler, "libc_nonshared.a")
    (folder / "libc.so").write_text(
        f"GROUP ( {folder}/libc.so.6 {archive} {own} AS_NEEDED ( {needed} ) )\n"
    )
    (folder / "libm.so").write_text(f"INPUT ( {folder}/libm.so.6 )\n")
    return folder


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def found(compiler: str, file: str) -> Path:
    return Path(run(compiler, f"-print-file-name={file}").strip())


def real_libraries(compiler: str) -> Iterator[Path]:
    yield from (found(compiler, name) for name in ("libc.so.6", "libm.so.6"))
    script = found(compiler, "libc.so").read_text()
    (loader,) = re.findall(r"AS_NEEDED \( (\S+) \)", script)
    yield Path(loader)


def old_symbols(library: Path) -> Iterator[tuple[str, str, Symbol]]:
    """The library that each name was in, the name, and its newest version that is old enough."""
    versions: dict[str, list[Symbol]] = defaultdict(list)
    newest: dict[str, tuple[int, ...]] = {}
    for line in SYMBOL.finditer(run("readelf", "--wide", "--dyn-syms", library)):
        version = tuple(int(part) for part in line["version"].split("."))
        versions[line["name"]].append(Symbol(line["kind"], version))
        if line["default"]:
            newest[line["name"]] = version
    for name, known in versions.items():
        old = [symbol for symbol in known if symbol.version <= (*NEWEST, 999)]
        if not old:
            continue
        home: str | None = library.name
        if newest.get(name) == MOVED:
            homes = (to for start, to in OLD_HOMES.items() if name.strip("_").startswith(start))
            home = next(homes, None)  # the other libraries that were taken in nobody here asks for
        if home:
            yield home, name, max(old, key=lambda symbol: symbol.version)


def make_library(folder: Path, library: str, symbols: dict[str, Symbol], compiler: str) -> None:
    """A library of that name with these symbols, which hold nothing."""
    nodes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    lines = [".data"]
    for name, symbol in symbols.items():
        nodes[symbol.version].append(name)
        kind = "object" if symbol.kind == "OBJECT" else "function"
        lines += [f".globl {name}", f".type {name}, %{kind}", f".size {name}, 8"]
        lines += [f"{name}: .quad 0"]
    source, script = folder / f"{library}.s", folder / f"{library}.map"
    source.write_text("\n".join(lines) + "\n")
    script.write_text(
        "\n".join(
            f"GLIBC_{'.'.join(map(str, version))} {{ global: {'; '.join(names)}; }};"
            for version, names in sorted(nodes.items())
        )
    )
    run(
        *(compiler.replace("g++", "gcc"), "-shared", "-nostdlib", source, "-o", folder / library),
        *(f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"),
    )
