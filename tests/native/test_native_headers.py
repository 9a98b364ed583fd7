"""Every header of the C++ core compiles alone, so that the order of includes means nothing."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.native.building import ROOT, TOOLS

NATIVE = ROOT / "native"
HEADERS = sorted(str(header.relative_to(NATIVE)) for header in NATIVE.rglob("*.h"))
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "vl", "dq")))
VNNI = (*AVX512, "-mavx512vnni")
DOT = "-march=armv8.2-a+dotprod"
ARM64_FLAGS: dict[str, tuple[str, ...]] = {
    "neon_i8mm": (f"{DOT}+i8mm",),
    "neon_mull": (),
    "neon": (DOT,),
}
X86_FLAGS = {
    "avx2": AVX2,
    "avxvnni": AVX2,
    "vnni_avx512": VNNI,
    "avx512": AVX512,
    "amx": (*VNNI, "-mamx-tile", "-mamx-int8"),
}
ISA_FLAGS = X86_FLAGS | ARM64_FLAGS
"""As CMakeLists.txt has them, by the instruction set that a file's name tells."""
X86 = platform.machine() in ("x86_64", "AMD64")
ARM64 = platform.machine() in ("aarch64", "arm64")
COMPILER = os.environ.get("CXX", "g++")
CROSS_COMPILER = "aarch64-linux-gnu-g++"


def isa_of(header: str) -> str | None:
    return next((isa for isa in ISA_FLAGS if re.search(rf"_{isa}(_|\.)", header)), None)


def bindings_flags() -> list[str]:
    """Where nanobind (of `make setup`, or of `make sanitize`) and Python have their headers."""
    found = importlib.util.find_spec("nanobind")
    folders = [*(found.submodule_search_locations or () if found else ()), str(TOOLS / "nanobind")]
    for folder in folders:
        if (Path(folder) / "include").is_dir():
            return [f"-isystem{folder}/include", f"-isystem{sysconfig.get_path('include')}"]
    pytest.skip("NOT TESTED: headers of the bindings need nanobind; run `make setup` again")


@pytest.mark.sweep(30)
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header: str) -> None:
    isa = isa_of(header)
    compiler = CROSS_COMPILER if isa in ARM64_FLAGS and not ARM64 else COMPILER
    if not shutil.which(compiler):
        pytest.skip(f"NOT TESTED: there is no compiler {compiler}")
    if isa in X86_FLAGS and not X86:
        pytest.skip(f"NOT TESTED: {isa} is not of {platform.machine()}")
    flags = list(ISA_FLAGS[isa]) if isa else []
    if header.startswith("python/"):
        flags += bindings_flags()
    if X86 and compiler == COMPILER:
        flags.append("-DOCTAVO_X86")
    warnings = ("-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
    done = subprocess.run(
        [compiler, "-std=c++17", "-fsyntax-only", *warnings, *flags, f"-I{NATIVE}", "-xc++", "-"],
        input=2 * f'#include "{header}"\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("header", [h for h in HEADERS if h.startswith("isa/") and not isa_of(h)])
def test_an_instruction_set_is_told_by_the_name_of_its_file(header: str) -> None:
    text = (NATIVE / header).read_text()
    assert not re.search(r"immintrin\.h|arm_neon\.h|defined\(__(AVX|ARM|AMX)|_mm\d*_", text)
