"""Which machine gave the figures of a plot, and with which of Octavo's kernel tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmarks.docs.figures import link, result
from benchmarks.results import Machine, Result

_TABLES = (
    *(("amxint8", "amx"), ("avx512vnni", "avx512vnni"), ("avxvnni", "avxvnni")),
    *(("avx512bw", "avx512"), ("avx2", "avx2")),
    *(("i8mm", "neon_i8mm"), ("dotprod", "neon"), ("neon", "neon_mull")),
)
"""What a processor has, and the kernel table for it: the fastest first."""


def processor(machine: Machine) -> str:
    """Its name without signs and words that say nothing."""
    return re.sub(r"\(R\)|\(TM\)| Processor\b| CPU\b", "", machine.cpu)


def kernel_tables(found: Result) -> str:
    """Those that sections or the command name, else the one that Octavo takes of itself there."""
    sections = "\n".join(row.section for row in found.rows)
    named = dict.fromkeys(re.findall(r"\(octavo: (\w+)\)", sections))
    if asked := re.match(r"OCTAVO_ISA=(\w+) ", found.command):
        named.setdefault(asked[1])
    own = (table for needs, table in _TABLES if needs in found.machine.instruction_sets)
    return ", ".join(named) or next(own, "reference")


def caption(results: Iterable[str], *, compares_tables: bool = False) -> str:
    """A sentence: each machine, the kernel table, and links to the results.

    A plot that `compares_tables` names them itself.
    """
    by_machine: dict[str, list[str]] = {}
    for name in results:
        found = result(name)
        words = f"{processor(found.machine)}, {found.machine.cores} cores"
        if not compares_tables:
            words += f", instruction set {kernel_tables(found)}"
        by_machine.setdefault(words, []).append(link(name, name))
    return "; ".join(f"{words}: {', '.join(links)}" for words, links in by_machine.items()) + "."
