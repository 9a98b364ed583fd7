"""The core as clang compiles it: built, its loops looked at, and the kernel tests run on it.

    python -m tests.clang.run [pytest's arguments]

Warnings are errors. Where GCC needs inline assembly to keep sums in registers, clang is given
intrinsics: the loops that multiply may touch no stack. Needs Debian's clang, which it installs
itself where it may; the build is kept in build/clang.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.native.building import (
    BUILD,
    HERE,
    ROOT,
    environment_with_tools,
    have_tools,
    run,
    status_without_tools,
)
from tests.native.table_objects import table_faults

HOME = BUILD / "clang"
COMPILER = "clang++"
TESTS = ("tests/test_kernels.py", "tests/core")
# The module is none that was installed, and clang's moves of structures take vector registers.
LEFT_OUT = ("tests/test_kernels.py::test_import_and_first_call_take_less_than_50_ms",)
PRODUCTS = {"avx512vnni": ("vpdpbusd", 24), "avx2": ("vpmaddubsw", 10)}
"""Instruction of a table's product, and how many a step of its widest int8 tile has."""
Instruction = tuple[int, str]


def say(message: str) -> None:
    print(f"clang: {message}", flush=True)


def build() -> Path:
    """The module."""
    tools = environment_with_tools()
    define = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_COMPILER": COMPILER,
        "CMAKE_COMPILE_WARNING_AS_ERROR": "ON",
        "Python_EXECUTABLE": sys.executable,
    }
    settings = (f"-D{key}={value}" for key, value in define.items())
    run("cmake", "-S", ROOT, "-B", HOME, "-G", "Ninja", *settings, env=tools)
    run("cmake", "--build", HOME, "--target", "_native", "octavo_ort", env=tools)
    (module,) = HOME.glob("_native.*.so")
    return module


# --- the loops that multiply ---


def functions(program: Path) -> Iterator[list[Instruction]]:
    """Address and text of each instruction, a list for each function."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(program)]
    found: list[Instruction] = []
    for line in subprocess.check_output(command, text=True).splitlines():
        if line.endswith(">:"):
            yield found
            found = []
        elif instruction := re.match(r"\s+([0-9a-f]+):\t(.*)", line):
            found.append((int(instruction[1], 16), instruction[2].strip()))
    yield found


def loops(function: Sequence[Instruction]) -> Iterator[list[str]]:
    """What is between a jump backwards and its target, where no more than three jump."""
    at = {address: i for i, (address, _) in enumerate(function)}
    for i, (address, text) in enumerate(function):
        jump = re.match(r"j\w+\s+([0-9a-f]+)", text)
        first = at.get(int(jump[1], 16)) if jump and int(jump[1], 16) <= address else None
        if first is not None:
            body = [text for _, text in function[first : i + 1]]
            if sum(text.startswith("j") for text in body) <= 3:
                yield body


def spilling(isa: str, product: str, products: int) -> str:
    """What is wrong with the loops of a table's widest tile; empty if nothing is."""
    (program,) = HOME.glob(f"CMakeFiles/core.dir/native/isa/table_{isa}.cpp.*")
    widest = [
        body
        for function in functions(program)
        for body in loops(function)
        if sum(text.startswith(product) for text in body) == products
    ]
    if not widest:
        return f"{isa} has no loop of {products} {product}"
    spills = [b for b in widest if any(re.search(r"%[xyz]mm\d+,.*\(%r[sb]p", t) for t in b)]
    say(f"{isa}: {len(widest)} loops of {products} products, {len(spills)} spill sums")
    return f"{len(spills)} loops of {isa} keep sums in memory" if spills else ""


def main(arguments: Sequence[str]) -> int:
    if not have_tools("clang", "the core is NOT TESTED as clang compiles it", {COMPILER: "clang"}):
        return status_without_tools()
    start = time.monotonic()
    module = build()
    say(f"built after {time.monotonic() - start:.0f} s")
    failures = [line for isa, of in PRODUCTS.items() if (line := spilling(isa, *of))]
    failures += table_faults(HOME)
    left_out = [f"--deselect={test}" for test in LEFT_OUT]
    own = {"PYTHONPATH": str(HERE / "preload"), "OCTAVO_NATIVE": str(module), "CI": "true"}
    command = [sys.executable, "-m", "pytest", "-n", "2", *left_out, *(arguments or TESTS)]
    if subprocess.run(command, cwd=ROOT, env=os.environ | own, check=False).returncode != 0:
        failures.append("tests failed")
    for line in failures:
        say(line)
    say(f"{'FAILED' if failures else 'passed'}, {time.monotonic() - start:.0f} s in all")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
