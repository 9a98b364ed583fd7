"""The kernel tables that Octavo has for processors, and how fast one is beside another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.results.diagnosis import Finding, KernelTable, times

RUNS, IN_USE, NOT_HERE = "runs here", "in use", "not on this processor"
REFUSED = "this processor has it, but not this build or system"


@dataclass(frozen=True)
class _Table:
    """A kernel table, the machine architecture it is for, and who has what it needs.

    `speed` is that of linear layers over the table of AVX2, for one row and for 32 rows and more:
    the means of `benchmarks.kernel_tables` on an Intel Xeon, which runs every table. `amd` is that
    on AMD's Zen 4 where it has the table. None: it was not timed, or is there for another reason
    than speed.
    """

    name: str
    machine: str
    processors: str
    speed: tuple[float, float] | None = None
    amd: tuple[float, float] | None = None
    feature: str = ""
    """What a processor has that was made for this table, where a build or system may lack it."""


_X86, _ARM = "x86-64", "arm64"
TABLES = (
    _Table("amx", _X86, "Intel Xeon since 2023", (1.39, 10.87), feature="amxint8"),
    _Table(
        "avx512vnni", _X86, "Intel Xeon since 2019, AMD since Zen 4", (1.42, 4.70), (1.33, 2.52)
    ),
    _Table("avxvnni", _X86, "Intel Core since 2021", (1.32, 2.44)),
    _Table("avx512vnni256", _X86, "those of avx512vnni, by OCTAVO_ISA, in 256-bit vectors"),
    _Table("avx512", _X86, "Intel Xeon since 2017", (1.02, 1.32), (1.18, 1.15)),
    _Table("avx2", _X86, "Intel since 2013, AMD since 2017", (1.0, 1.0), (1.0, 1.0)),
    _Table("neon_i8mm", _ARM, "ARM's servers since 2021, Apple since 2022"),
    _Table("neon", _ARM, "most 64-bit ARM since 2018"),
    _Table("neon_mull", _ARM, "every 64-bit ARM"),
)
"""The fastest of an architecture first. "reference", plain C++ that runs anywhere, is not one."""


def kernel_tables(
    runnable: Sequence[str], in_use: str, features: Sequence[str] = (), *, amd: bool = False
) -> tuple[KernelTable, ...]:
    """List the tables of this processor's architecture, where each runs and what it would gain.

    `runnable`, `in_use` and `features` are `isas()`, `isa()` and `cpu_features()` of
    `octavo.core.kernels`; `amd` says that this processor is one of AMD's.
    """

    def speed(table: _Table) -> tuple[float, float] | None:
        return (amd and table.name in runnable and table.amd) or table.speed

    machine = next((t.machine for t in TABLES if t.name in runnable), "")
    own = next((speed(t) for t in TABLES if t.name == in_use), None)
    found = []
    for table in TABLES:
        if table.machine != machine:
            continue
        state = IN_USE if table.name == in_use else RUNS if table.name in runnable else NOT_HERE
        if state == NOT_HERE and table.feature in features:
            state = REFUSED
        one = many = None
        its = speed(table)
        if own and its:
            one, many = (there / here for there, here in zip(its, own, strict=True))
        found.append(KernelTable(table.name, state, table.processors, one, many))
    if in_use == "reference" or not found:
        state = IN_USE if in_use == "reference" else RUNS
        found.append(KernelTable("reference", state, "every processor, without vectors"))
    return tuple(found)


def slower_by_choice(runnable: Sequence[str], in_use: str) -> Iterable[Finding]:
    """Yield a warning where OCTAVO_ISA or a call of `use_isa` keeps the fastest table from use."""
    if not runnable or in_use == runnable[0]:
        return
    wanted = os.environ.get("OCTAVO_ISA") == in_use
    by = f"OCTAVO_ISA={in_use} keeps" if wanted else f"use_isa({in_use!r}) in this process keeps"
    yield Finding(
        "warning",
        f"{by} Octavo's kernels from {runnable[0]}, which this processor runs and which is faster",
        "unset OCTAVO_ISA" if wanted else f"use_isa({runnable[0]!r})",
    )


def work_of_layers(macs: int, tables: Sequence[KernelTable], gops: float) -> list[str]:
    """Say what `macs` multiply-accumulates a row take here at least, and on other processors.

    `gops` is the measured peak of the table in use, 1e9 operations a second of one core.
    """
    if not macs or not gops:
        return []
    here = next(t for t in tables if t.state == IN_USE)
    milliseconds = 2 * macs * _ROWS / gops / 1e6
    weights = f"{macs / 1e6:,.1f} million" if macs >= 10**6 else f"{macs:,}"
    said = [
        f"its quantized layers multiply {weights} weights a row: {_ROWS} rows take "
        f"at least {milliseconds:,.1f} ms of one core here ({here.name})"
    ]
    said += [
        f"with {t.name} ({t.processors}) they run {times(t.many_rows)} for {_ROWS} rows, "
        f"{times(t.one_row)} for one, beside those in use here"
        for t in tables
        if t.many_rows and t.one_row and t.state == NOT_HERE and t.many_rows > _WORTH_SAYING
    ]
    return said


_ROWS = 128
_WORTH_SAYING = 1.1
