"""Rows of `benchmarks.kernels` that need no peer: shares of what the machine allows."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import parts, ratios
from benchmarks.children import Job
from benchmarks.effort import Effort
from benchmarks.ours import OCTAVO
from benchmarks.results import Row

VNNI, AMX, AVX2 = "avx512vnni", "amx", "avx2"
LEAST_OF_PEAK = 0.90  # on AVX512-VNNI
LEAST_OF_ROWS = 0.85  # groups of 128, of the per-row speed
LEAST_OF_READ = 0.85
LEAST_SCALING = 1.8
LEAST_OF_COPY = 0.85  # packing, of the speed of NumPy's copy; both into new memory
MOST_ALTERNATING = 1.05
PACKED = ((384, 1536), (4096, 4096), (4090, 4090))  # N, K
ALTERNATING = ((16, 768, 768), (128, 768, 768))


def peak_rows(effort: Effort) -> Iterator[Row]:
    """Shares of one core's peak, all that a kernel does included; asked of AVX512-VNNI."""
    cells = effort.where(32, 768)
    for isa in (VNNI, AMX, AVX2) if effort.has_amx else (VNNI, AVX2):
        job = Job("peak", cells, amx=isa == AMX or not effort.has_amx, isa=isa)
        title = f"Linear, share of the peak of {isa}, fastest call of a round, one thread"
        section, answer = effort.ask(title, job)
        yield from ratios.machine_rows(answer, section)
        found = answer.found
        shares = {cell: f.time(parts.PEAK, over=parts.FASTEST) for cell, f in found.items()}
        yield from ratios.share_rows(shares, LEAST_OF_PEAK if isa == VNNI else None, found, section)
        means = [f.time(parts.PEAK, over=OCTAVO).median for f in found.values()]
        what = f"of mean calls: least of {len(means)}"
        yield Row(what, min(means), section=section)


def group_rows(effort: Effort) -> Iterator[Row]:
    """Groups of 128 beside one scale for each row."""
    title = "Linear, groups of 128, share of the per-row speed"
    for section, answer in effort.settings(title, Job("groups", effort.where(32, 768))):
        yield from ratios.machine_rows(answer, section)
        found = answer.found
        shares = {cell: f.speed(parts.GROUPS, over=parts.ROWS) for cell, f in found.items()}
        yield from ratios.share_rows(shares, LEAST_OF_ROWS, found, section)


def bandwidth_rows(effort: Effort) -> Iterator[Row]:
    """One row, weights from memory."""
    title = "Linear, weights beyond the last cache, share of a plain read's bandwidth"
    for section, answer in effort.settings(title, Job("bandwidth", ())):
        yield from ratios.machine_rows(answer, section)
        found = answer.found
        shares = {cell: f.time(parts.READ, over=OCTAVO) for cell, f in found.items()}
        yield from ratios.share_rows(shares, LEAST_OF_READ, found, section)


def packing_rows(effort: Effort) -> Iterator[Row]:
    """Weights to the packed layout and back, beside a copy of as many bytes, which has one thread.

    Packing takes all cores there are: the child of one thread has one.
    """
    for threads, least in ((1, LEAST_OF_COPY), (2, None)):
        job = Job("packing", PACKED, threads=threads)
        for section, answer in effort.settings("Packing, share of a copy's speed", job):
            yield from ratios.machine_rows(answer, section)
            found = answer.found
            for name in (parts.PACK, parts.UNPACK):
                shares = {
                    f"{name} {cell}": f.speed(name, over=parts.COPY) for cell, f in found.items()
                }
                of_cells = {f"{name} {cell}": f for cell, f in found.items()}
                yield from ratios.share_rows(shares, least, of_cells, section)


def thread_rows(effort: Effort) -> Iterator[Row]:
    """Two threads over one."""
    job = Job("scaling", effort.where(64, 768), threads=2)
    for section, answer in effort.settings("Linear, speed over one thread", job):
        yield from ratios.machine_rows(answer, section)
        found = answer.found
        shares = {cell: f.speed(parts.TWO, over=parts.ONE) for cell, f in found.items()}
        yield from ratios.share_rows(shares, LEAST_SCALING, found, section)


def alternating_rows(effort: Effort) -> Iterator[Row]:
    """Octavo's threads and PyTorch's in one program."""
    job = Job("alternating", ALTERNATING, threads=2)
    for section, answer in effort.settings("Octavo and PyTorch by turns", job):
        yield from ratios.machine_rows(answer, section)
        for cell, found in answer.found.items():
            share = found.time(parts.ALTERNATING, over=parts.APART)
            note = f"quartiles {share.low:.3f} to {share.high:.3f}; {ratios.times(found)}"
            yield Row(
                f"{cell}, time as a share of both alone",
                share.median,
                "",
                section=section,
                note=note,
            )
            if cell.endswith(parts.ONE_THREAD):
                continue
            one = answer.found[cell + parts.ONE_THREAD].time(parts.ALTERNATING, over=parts.APART)
            yield Row(
                f"{cell}, that share over one thread's",
                share.median / one.median,
                at_most=MOST_ALTERNATING,
                section=section,
            )
