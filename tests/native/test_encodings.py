"""What AVX-VNNI processors run is tested on AVX512-VNNI, but for two instructions' encoding."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.building import ROOT

COMPILER = "g++"  # Clang is told of AVX512 and may use it elsewhere
FLAGS = ("-O3", "-ffp-contract=off", "-mavx2", "-mfma", "-mf16c", "-fvisibility=hidden")
VEX, EVEX = "Encoding)0", "Encoding)1"
SUMS, LOADS = 12, 8  # two vectors of weights, six inputs


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The instructions of a tile of six rows, by encoding, without the places they jump to."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("NOT TESTED: the instructions are x86-64's")
    if not (shutil.which(COMPILER) and shutil.which("objdump")):
        pytest.skip(f"NOT TESTED: there is no {COMPILER} or no objdump")
    to = tmp_path_factory.mktemp("encodings") / "tiles.o"
    source = ROOT / "tests/native/encodings.cpp"
    command = [COMPILER, "-std=c++17", *FLAGS, "-DOCTAVO_X86", f"-I{ROOT}/native", str(source)]
    subprocess.run([*command, "-c", "-o", str(to)], check=True)
    text = subprocess.check_output(["objdump", "-dC", "--no-show-raw-insn", str(to)], text=True)
    functions = {}
    for part in text.split("\n\n"):
        name = re.match(r"\s*[0-9a-f]+ <(.*)>:", part)
        for encoding in (VEX, EVEX):
            if name and f"{encoding}> >::row_tile<6, 1" in name[1]:
                functions[encoding] = instructions(part)
    return functions


def instructions(function: str) -> list[str]:
    lines = re.findall(r"^\s*[0-9a-f]+:\t(.*?)\s*$", function, re.MULTILINE)
    jumps = [re.sub(r"^(j\w+|call)\s.*", r"\1", line) for line in lines]
    constants = [re.sub(r"0x[0-9a-f]+\(%rip\).*", "(%rip)", line) for line in jumps]
    # What aligns loops depends on how long the instructions before them are.
    padding = ("nop", "cs nop", "data16", "xchg   %ax,%ax")
    return [line for line in constants if not line.startswith(padding)]


def products(lines: list[str]) -> list[str]:
    return [line for line in lines if "vpdp" in line]


def test_the_encodings_are_avx_vnni_and_avx512_and_otherwise_one_program(
    tiles: dict[str, list[str]],
) -> None:
    assert all(line.startswith("{vex} ") for line in products(tiles[VEX]))
    assert [line.removeprefix("{vex} ") for line in tiles[VEX]] == tiles[EVEX]
    assert len(products(tiles[EVEX])) >= SUMS
    assert not re.search(r"%[xyz]mm(1[6-9]|2\d|3[01])|%zmm|%k[0-7]", "\n".join(tiles[EVEX]))


def test_all_sums_of_the_loop_stay_in_registers(tiles: dict[str, list[str]]) -> None:
    """Between two jumps: a step's products, and nothing but weights and inputs from memory."""
    for lines in tiles.values():
        blocks = re.split(r"^j\w+$", "\n".join(lines), flags=re.MULTILINE)
        loops = [block for block in blocks if len(products(block.splitlines())) == SUMS]
        assert loops
        for loop in loops:
            memory = [line for line in loop.splitlines() if re.search(r"\(.*mm|mm.*\(", line)]
            assert len(memory) == LOADS


@pytest.mark.slow
def test_the_library_has_the_encoding_of_avx_vnni() -> None:
    """As it is built here, whatever the compiler."""
    from octavo import _native

    if platform.machine() not in ("x86_64", "AMD64") or not shutil.which("objdump"):
        pytest.skip("NOT TESTED: the instructions are x86-64's, and objdump shows them")
    library = Path(_native.__file__)
    with subprocess.Popen(["objdump", "-d", str(library)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = sum(b"{vex} vpdpbusd" in line for line in process.stdout)
    assert found > 100
