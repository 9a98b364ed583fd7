"""Who compiles Octavo without what that needs is told what to install."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.building import ROOT, TOOLS


def configured(folder: Path, *settings: str, **variables: str) -> str:
    """What CMake says of the sources, as one line; it has to fail."""
    cmake = TOOLS / "bin" / "cmake"
    command = [sys.executable, str(cmake)] if cmake.exists() else [shutil.which("cmake") or ""]
    environment = os.environ | variables | {"PYTHONPATH": str(TOOLS)}
    ninja = shutil.which("ninja", path=f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if not command[-1] or not ninja:
        pytest.skip("NOT TESTED: there is no CMake or ninja; `make aarch64` fetches them")
    if Path(command[-1]).read_bytes().startswith(b"#!") and not cmake.exists():
        pytest.skip(f"NOT TESTED: {command[-1]} is a script, which wants what these tests hide")
    done = subprocess.run(
        [*command, "-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", ROOT, "-B", folder, *settings],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode != 0
    return " ".join(done.stderr.split())


def test_without_a_compiler(tmp_path: Path) -> None:
    said = configured(tmp_path / "build", PATH=str(tmp_path))
    assert "there is no C++ compiler" in said and "apt install g++" in said


def test_with_a_compiler_that_is_too_old(tmp_path: Path) -> None:
    compiler = tmp_path / "old-g++"
    compiler.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=9 "$@"\n')
    compiler.chmod(0o755)
    said = configured(tmp_path / "build", CXX=str(compiler))
    assert f"{compiler} is GCC 9." in said and "11 or newer" in said


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64's instructions")
def test_with_an_assembler_that_is_too_old(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do\n'
        '    case "$word" in *.cxx) grep -q vpdpbusd "$word" && exit 1 ;; esac\n'
        "done\n"
        'exec /usr/bin/env -u CXX g++ "$@"\n'
    )
    compiler.chmod(0o755)
    said = configured(tmp_path / "build", CXX=str(compiler))
    assert f"The assembler of {compiler} does not know AVX-VNNI" in said
    assert "GNU binutils 2.36 or newer" in said
