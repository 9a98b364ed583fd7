"""How many cycles ARM's products take, as llvm-mca models processors: nothing of it was timed.

`python -m benchmarks.cycles_arm`. The tables are cross-compiled into a program that calls a product
(cycles_arm.cpp). QEMU says which instructions that executes, one by one, and llvm-mca how long a
processor takes for them, if every load is from the L1 cache and every branch is foreseen. Beside
that stands what the multiplications alone take on the pipes that have them.

Needs Debian's g++-aarch64-linux-gnu, qemu-user and llvm-19 (llvm-mca 17 or newer knows Neoverse).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.results import REPOSITORY, Row, result, say, write

COMPILER, DISASSEMBLER, EMULATOR = (
    "aarch64-linux-gnu-g++",
    "aarch64-linux-gnu-objdump",
    "qemu-aarch64",
)
MODELS = ("llvm-mca-22", "llvm-mca-19", "llvm-mca")
FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-ffp-contract=off", "-fno-schedule-insns", "-static")
DOT = "-march=armv8.2-a+dotprod"
TABLES = {"neon_mull": (), "neon": (DOT,), "neon_i8mm": (f"{DOT}+i8mm",)}
PROCESSORS = {
    "neoverse-v1": "Neoverse-V1",
    "neoverse-n1": "Neoverse-N1",
    "apple-m1": "Apple M1",
    "cortex-a72": "Cortex-A72",
}
LACK = {"neon": ("cortex-a72",), "neon_i8mm": ("neoverse-n1", "apple-m1", "cortex-a72")}
"""Which processors do not have a table's instructions."""
LEAST = 0.85  # of the tile's loop, on Neoverse-V1
LOOP, CALL = "The loop of a tile", "A product with its outputs"

Instruction = tuple[str, str]  # mnemonic, operands


@dataclass(frozen=True)
class Product:
    """A product of `m` rows of `k` inputs by `n` outputs, and what its table multiplies with."""

    table: str
    m: int
    words: str
    bits: int = 8
    group: int = 0
    k: int = 768
    n: int = 32

    @property
    def multiplies(self) -> tuple[str, int]:
        """The instruction, and how many multiply-accumulates one of it makes."""
        return {
            "neon_mull": ("smull v0.8h, v1.8b, v2.8b", 8),
            "neon": ("sdot v0.4s, v1.16b, v2.4b[0]", 16),
            "neon_i8mm": ("smmla v0.4s, v1.16b, v2.16b", 32),
        }[self.table]

    @property
    def arguments(self) -> list[str]:
        """Of the program."""
        each = ["each"] if self.group else []
        return [self.table, *map(str, (self.m, self.k, self.n, self.bits, self.group)), *each]


PRODUCTS = (
    Product("neon", 48, "int8, 48 rows"),
    Product("neon_i8mm", 48, "int8, 48 rows", n=128),  # for which inputs are turned once
    Product("neon_mull", 48, "int8, 48 rows", n=16),
    Product("neon", 1, "int8, one row"),
    Product("neon", 48, "4 bits in groups of 32, 48 rows", 4, 32),
    Product("neon", 1, "4 bits in groups of 32, one row", 4, 32),
)


def tool(names: Sequence[str]) -> str:
    """The first that is there. Ends the program where none is."""
    for name in names:
        if found := shutil.which(name):
            return found
    needs = "g++-aarch64-linux-gnu qemu-user llvm-19"
    sys.exit(f"{' or '.join(names)} is not there: apt-get install {needs}")


def run(*command: str | Path, stdin: str = "") -> str:
    """What it printed. Ends the program with its errors if it fails."""
    done = subprocess.run(
        list(map(str, command)),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    if done.returncode != 0:
        sys.exit(f"`{' '.join(map(str, command[:6]))} ...` failed:\n{done.stderr[-2000:]}")
    return done.stdout


# --- which instructions a product executes ---


def build(folder: Path) -> Path:
    """The program that makes one product."""
    common = (tool([COMPILER]), *FLAGS, "-DOCTAVO_ARM64", "-Inative")
    objects = []
    for table, flags in TABLES.items():
        objects.append(folder / f"{table}.o")
        run(*common, *flags, "-c", f"native/isa/table_{table}.cpp", "-o", objects[-1])
    program = folder / "one_product"
    system = ("native/runtime/cpu.cpp", "native/runtime/system_linux.cpp")
    run(*common, "benchmarks/cycles_arm.cpp", *system, *objects, "-o", program)
    return program


class Program:
    """What its addresses hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.instructions: dict[int, Instruction] = {}
        self.start = 0
        for line in run(tool([DISASSEMBLER]), "-d", "--no-show-raw-insn", path).splitlines():
            if line.endswith("<traced>:"):
                self.start = int(line.split()[0], 16)
            if found := re.match(r"\s+([0-9a-f]+):\s+(\S+)\s*(.*)$", line):
                self.instructions[int(found[1], 16)] = (found[2], found[3])

    def trace(self, product: Product) -> list[int]:
        """The addresses of the second call, which makes nothing that is made once."""
        log = self.path.with_name("trace")
        one_by_one = ("-singlestep", "-d", "exec,nochain", "-D", log)
        run(tool([EMULATOR]), "-cpu", "max", *one_by_one, self.path, *product.arguments)
        passed = [
            int(line.split("/")[1], 16) for line in log.read_text().splitlines() if "/" in line
        ]
        first = [i for i, address in enumerate(passed) if address == self.start][1]
        end = next(a for a in sorted(self.instructions) if a >= self.start and self.of(a) == "ret")
        return passed[first : passed.index(end, first)]

    def of(self, address: int) -> str:
        return self.instructions[address][0]

    def text(self, addresses: Sequence[int]) -> str:
        return "\n".join(filter(None, (_assembly(*self.instructions[a]) for a in addresses)))


def _assembly(name: str, operands: str) -> str:
    """As llvm-mca takes it: a jump that is always taken is nothing, and others go nowhere."""
    operands = re.sub(r"\s*(//.*|<.*)", "", operands)
    if name in ("b", "bl", "br", "blr", "ret"):
        return ""
    if name.startswith("b."):
        return f"{name} #0"
    if name in ("cbz", "cbnz", "tbz", "tbnz", "adr", "adrp"):
        return f"{name} {operands.rpartition(',')[0]}, #0"
    return f"{name} {operands}"


def loop(program: Program, addresses: Sequence[int], multiply: str) -> list[int]:
    """The loop that makes most of the multiplications."""
    turns = Counter((b, a) for a, b in pairwise(addresses) if b < a)
    executed = set(addresses)

    def made(ends: tuple[int, int]) -> int:
        body = range(ends[0], ends[1] + 4, 4)
        outer = any(ends != o and ends[0] <= o[0] and o[1] <= ends[1] for o in turns)
        if outer or not executed.issuperset(body):  # as between a call and what returns from it
            return 0
        return turns[ends] * sum(program.of(a) == multiply for a in body)

    first, last = max(turns, key=made)
    return list(range(first, last + 4, 4))


# --- how long they take ---


def cycles(processor: str, assembly: str, iterations: int) -> float:
    """Of one iteration."""
    arguments = (f"-mcpu={processor}", "-mattr=+dotprod,+i8mm", f"-iterations={iterations}")
    said = run(tool(MODELS), "-mtriple=aarch64", *arguments, stdin=assembly)
    found = re.search(r"Total Cycles:\s+(\d+)", said)
    return int(found[1]) / iterations if found else float("nan")


def pipes(processor: str, instruction: str) -> int:
    """How many of these begin in a cycle."""
    many = "\n".join(instruction.replace("v0.", f"v{i}.") for i in range(3, 31))
    return round(28 / cycles(processor, many, 100))


def rows(program: Program, product: Product) -> Iterator[Row]:
    """Loop and call on each processor that has the table."""
    instruction, size = product.multiplies
    name = instruction.split()[0]
    passed = program.trace(product)
    body = loop(program, passed, name)
    in_loop = sum(program.of(a).startswith(name) for a in body)
    in_call = product.m * product.k * product.n / size
    for processor, title in PROCESSORS.items():
        if processor in LACK.get(product.table, ()):
            continue
        width = pipes(processor, instruction)
        for section, addresses, count in ((LOOP, body, in_loop), (CALL, passed, in_call)):
            took = cycles(processor, program.text(addresses), 100 if addresses is body else 1)
            asked = (
                section == LOOP
                and processor == "neoverse-v1"
                and product.m > 1
                and not product.group
            )
            yield Row(
                f"{product.table}, {product.words}, {title}",
                count / width / took,
                "of the multiplying pipes",
                at_least=LEAST if asked and product.table != "neon_mull" else None,
                section=section,
                note=f"{took:,.1f} cycles for {len(addresses):,} instructions; "
                f"{count:,.0f} are {name}, on {width} pipes",
            )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(build(Path(folder)))
        found = [row for product in PRODUCTS for row in rows(program, product)]
    title = "ARM: cycles by llvm-mca, not timed on hardware"
    found.sort(key=lambda row: row.section, reverse=True)
    outcome = result("cycles_arm", title, found)
    write(outcome)
    say(outcome.to_markdown())
    return len(outcome.missed)


if __name__ == "__main__":
    sys.exit(main())
