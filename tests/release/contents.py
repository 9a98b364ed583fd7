"""What a wheel and an sdist of Octavo hold, and must not hold; each fault is a sentence."""

from __future__ import annotations

import email.message
import email.parser
import email.policy
import re
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "src/octavo/"
BINARIES = ("octavo/_native", "octavo/liboctavo_ort")
"""Of a wheel; each once, and no other file that is not text."""
TYPED = ("octavo/py.typed", "octavo/_native.pyi")
BESIDE = ("CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml")
"""In an sdist, beside `src/octavo` and `native`."""
LARGEST = 10_000_000  # bytes of a wheel
NEWEST_GLIBC = (2, 28)
SANITIZERS = (b"__asan_", b"__tsan_", b"__ubsan_")


def tracked(*folders: str) -> set[str]:
    """The repository's own files below `folders`, as git knows them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


def sdist_faults(sdist: Path, version: str) -> Iterator[str]:
    """The sdist holds what a build needs, and nothing else."""
    root = f"octavo-{version}/"
    with tarfile.open(sdist) as archive:
        members = {m.name: m for m in archive.getmembers()}
        names = {name.removeprefix(root) for name in members}
        information = archive.extractfile(members[f"{root}PKG-INFO"])
        assert information is not None
        yield from metadata_faults(information.read(), version)
    yield from _differences(names, tracked("src/octavo", "native") | set(BESIDE))


def wheel_faults(wheel: Path, version: str, places: Iterable[Path]) -> Iterator[str]:
    """The wheel holds the package, its metadata and two clean binaries, and nothing else.

    `places` are folders of this machine that no binary may name.
    """
    yield from tag_faults(wheel)
    if wheel.stat().st_size > LARGEST:
        yield f"it has {wheel.stat().st_size} bytes, more than {LARGEST}"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        notes = {name for name in names if name.startswith(f"octavo-{version}.dist-info/")}
        binaries = {name for name in names - notes if name.endswith(".so")}
        expected = {name.removeprefix("src/") for name in tracked("src/octavo")}
        yield from _differences(names - notes - binaries, expected | set(TYPED))
        for start in BINARIES:
            found = [name for name in binaries if name.startswith(start)]
            if len(found) != 1:
                yield f"it has {len(found)} files {start}*.so, not one"
        for name in sorted(binaries):
            for fault in binary_faults(archive.read(name), places):
                yield f"{name} {fault}"
        if not any(name.endswith("/LICENSE") for name in notes):
            yield "it has no LICENSE"
        information = archive.read(f"octavo-{version}.dist-info/METADATA")
        yield from metadata_faults(information, version)


def tag_faults(wheel: Path) -> Iterator[str]:
    """Whether the wheel's name promises a glibc that is old enough."""
    promised = re.findall(r"manylinux_(\d+)_(\d+)_", wheel.name)
    if not promised:
        yield "it has no manylinux tag"
    elif min(tuple(map(int, version)) for version in promised) > NEWEST_GLIBC:
        yield f"it needs a newer glibc than {'.'.join(map(str, NEWEST_GLIBC))}"


def _differences(names: set[str], expected: set[str]) -> Iterator[str]:
    yield from (f"{name} is not in it" for name in sorted(expected - names))
    yield from (f"{name} does not belong in it" for name in sorted(names - expected))


def metadata_faults(information: bytes, version: str) -> Iterator[str]:
    """What PKG-INFO or METADATA says of the version, the license and the description."""
    parser = email.parser.BytesParser(email.message.EmailMessage, policy=email.policy.compat32)
    said = parser.parsebytes(information)
    expected = {
        "Name": "octavo",
        "Version": version,
        "Description-Content-Type": "text/markdown",
        "License-Expression": "MIT",
        "License-File": "LICENSE",
        "Requires-Python": ">=3.10",
    }
    for key, value in expected.items():
        if said[key] != value:
            yield f"its {key} is {said[key]!r}, not {value!r}"
    described = said.get_payload(decode=True)
    if not isinstance(described, bytes) or described.strip() != (
        (ROOT / "README.md").read_bytes().strip()
    ):
        yield "its description is not README.md"


def binary_faults(binary: bytes, places: Iterable[Path]) -> Iterator[str]:
    """Whether a shared library has symbols, debug data, a sanitizer, or paths of this machine.

    And whether it asks for functions that no library of the system gives: a linker lets those pass.
    """
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(binary)
        file.flush()
        command = ["readelf", "--wide", "--section-headers", "--dynamic", "--dyn-syms", file.name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if ".symtab" in said:
        yield "is not stripped"
    if ".debug_" in said:
        yield "has debug sections"
    if "RPATH" in said or "RUNPATH" in said:
        yield "names folders to look for libraries in"
    for name in re.findall(r" GLOBAL +DEFAULT +UND (\w+)$", said, re.MULTILINE):
        if not name.startswith(("Py", "_Py")):
            yield f"asks for {name}, which no library gives"
    yield from (f"has {s.decode()} in it" for s in SANITIZERS if s in binary)
    for place in places:
        if f"{place}/".encode() in binary:
            yield f"names the folder {place} of the machine it was built on"
