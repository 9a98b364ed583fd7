"""What Octavo finds on processors that are not here, by the answers that were recorded on them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.native.building import ROOT

COMPILER = os.environ.get("CXX", "g++")
YMM, ZMM, TILES = 0x7, 0xE7, 0x600E7  # XCR0 of systems that save up to these registers


class Answers(NamedTuple):
    """Words of CPUID, and XCR0, in the order of `X86Answers`."""

    leaf1_ecx: int
    leaf7_ebx: int
    leaf7_ecx: int = 0
    leaf7_edx: int = 0
    leaf7_1_eax: int = 0
    xcr0: int = YMM


# The words are of InstLatx64's collection, but for Zen 4's, which a virtual machine gave.
HASWELL = Answers(0x7FFAFBBF, 0x000027AB)
SKYLAKE_X = Answers(0x7FFEFBFF, 0xD39FFFFB, 0x00000008, 0x9C000400, xcr0=ZMM)
ALDER_LAKE = Answers(0x7FFAFBBF, 0x239CA7EB, 0x984007AC, 0xFC18C410, 0x00400810)
ALDER_LAKE_AVX512 = Answers(0x7FFAFBBF, 0xF3BFA7EB, 0x98C07FEE, 0xFC9CC510, 0x00401C30, ZMM)
SAPPHIRE_RAPIDS = Answers(0x7FFEFBFF, 0xF3BFBFFB, 0xFB417FFE, 0xFFDD4432, 0x00001C30, TILES)
ZEN_3 = Answers(0x7ED8320B, 0x219C97A9, 0x0040068C)
ZEN_4 = Answers(0xFFFA3203, 0xF1BF07AB, 0x00405FC6, 0x00000010, 0x00000020, ZMM)

BASE = {"sse2"}
AVX2 = BASE | {"fma", "f16c", "avx2"}
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl"}
VNNI = AVX512 | {"avx512vnni", "avx512bf16"}

CASES = {
    "Haswell": (HASWELL, AVX2),
    "Skylake-X": (SKYLAKE_X, AVX512),
    "Alder Lake": (ALDER_LAKE, AVX2 | {"avxvnni"}),
    "Alder Lake, efficient cores off": (ALDER_LAKE_AVX512, VNNI | {"avxvnni"}),
    "Sapphire Rapids": (SAPPHIRE_RAPIDS, VNNI | {"avxvnni", "amxint8"}),
    "Zen 3": (ZEN_3, AVX2),
    "Zen 4": (ZEN_4, VNNI),
    # What a system does not save it destroys at the next switch of programs.
    "Sapphire Rapids, tiles not saved": (SAPPHIRE_RAPIDS._replace(xcr0=ZMM), VNNI | {"avxvnni"}),
    "Sapphire Rapids, zmm not saved": (SAPPHIRE_RAPIDS._replace(xcr0=YMM), AVX2 | {"avxvnni"}),
    "Zen 4, masks not saved": (ZEN_4._replace(xcr0=ZMM & ~0x20), AVX2),
    "Zen 4, upper sixteen zmm not saved": (ZEN_4._replace(xcr0=ZMM & ~0x80), AVX2),
    "Alder Lake, ymm not saved": (ALDER_LAKE._replace(xcr0=0x3), BASE),
    "Alder Lake, no way to ask": (ALDER_LAKE._replace(xcr0=0), BASE),
    # A hypervisor hides single bits.
    "Alder Lake without leaf 7.1": (ALDER_LAKE._replace(leaf7_1_eax=0), AVX2),
    "Sapphire Rapids without AVX512F": (
        SAPPHIRE_RAPIDS._replace(leaf7_ebx=0xF3BEBFFB),
        AVX2 | {"avxvnni", "amxint8"},
    ),
    "Sapphire Rapids without AMX-TILE": (
        SAPPHIRE_RAPIDS._replace(leaf7_edx=0xFEDD4432),
        VNNI | {"avxvnni"},
    ),
    "Alder Lake without AVX2": (
        ALDER_LAKE._replace(leaf7_ebx=0x239CA7CB),
        BASE | {"fma", "f16c"},
    ),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which(COMPILER):
        pytest.skip(f"NOT TESTED: there is no compiler {COMPILER}")
    to = tmp_path_factory.mktemp("x86") / "features"
    source = ROOT / "tests/native/x86_features.cpp"
    warnings = ("-Wall", "-Wextra", "-Werror")
    command = [COMPILER, "-std=c++17", *warnings, f"-I{ROOT}/native", str(source), "-o", str(to)]
    subprocess.run(command, check=True)
    return to


@pytest.mark.parametrize(("answers", "wanted"), CASES.values(), ids=CASES)
def test_what_a_processor_runs(program: Path, answers: Answers, wanted: set[str]) -> None:
    words = [f"{word:x}" for word in answers]
    assert sorted(subprocess.check_output([program, *words], text=True).split()) == sorted(wanted)
