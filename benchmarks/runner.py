"""The runner of all benchmarks: sections of rows, and jobs that children measure.

A script names its sections; each yields rows, and one that stops with an error is a missed row.
What is timed is a `Job`: the function that sets it up, its cells, what is timed against which peers
in turns, under one setting of threads, AMX and instruction set. `run` has a process of its own
measure it: `python -m benchmarks.runner JOB` answers with one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from benchmarks import results
from benchmarks.machine import amx_granted, other_programs, without_amx
from benchmarks.results import REPOSITORY, Row
from octavo.measure.timing import Comparison, pooled

Cell = tuple[int, ...]
Rows = Callable[[], Iterator[Row]]
Made = TypeVar("Made")

# What holds PyTorch's own kernels, MKL, oneDNN and FBGEMM to an instruction set.
_HELD = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX512",
    },
}


@dataclass(frozen=True)
class Job:
    """What a child measures: `part` is `MODULE:FUNCTION` of this package, which is given the job.

    The function returns comparisons by label of cell, or other plain data. `peers` are made in
    their order. `isa` is OCTAVO_ISA, empty for the best; `held` (avx2, avx512) holds peers to it; 0
    `threads` are as many as everybody takes. Without `torch` PyTorch is not loaded, so that it
    holds no core.
    """

    part: str
    cells: tuple[Cell, ...] = ()
    threads: int = 1
    amx: bool = True
    isa: str = ""
    held: str = ""
    rounds: int = 7
    peers: tuple[str, ...] = ()
    ours: bool = True
    torch: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The inverse of `to_json`."""
        job = cls(**json.loads(text))
        return replace(job, cells=tuple(map(tuple, job.cells)), peers=tuple(job.peers))

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    def environment(self) -> dict[str, str]:
        """Of the child. numpy's pool has one thread there: others spin after each product."""
        found = {k: v for k, v in os.environ.items() if k not in (*_HELD["avx2"], "OCTAVO_ISA")}
        found |= {"OPENBLAS_NUM_THREADS": "1"}
        found |= {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        found |= {"OCTAVO_ISA": self.isa} if self.isa else {}
        return found | _HELD.get(self.held, {})


@dataclass(frozen=True)
class Answer:
    """What was measured, by label, and the instruction set that Octavo used.

    `others` is how many cores other programs used meanwhile. `again` counts measurements made again
    because the machine gave fewer cores than threads, `short` those that were kept all the same.
    """

    isa: str
    others: float
    found: Mapping[str, Comparison]
    again: int = 0
    short: int = 0


def run(job: Job) -> Answer:
    """The answer of a child. Raises subprocess.CalledProcessError, with its stderr, if it fails."""
    answer = _child(job)
    found = {label: Comparison.from_dict(data) for label, data in answer.pop("found").items()}
    return Answer(found=found, **answer)


def value(job: Job) -> Any:
    """The same for a part that returns other data than comparisons."""
    return _child(job)["found"]


def pooled_run(job: Job, processes: int) -> dict[str, Comparison]:
    """Of `processes` children one after the other, which make the peers in different orders."""
    parts = []
    for i in range(processes):
        first = i % max(1, len(job.peers))
        parts.append(run(replace(job, peers=(*job.peers[first:], *job.peers[:first]))).found)
    return {label: pooled([part[label] for part in parts]) for label in parts[0]}


def _child(job: Job) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.runner", job.to_json()],
        cwd=REPOSITORY,
        env=job.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stderr.write(done.stderr)
    done.check_returncode()
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(job: Job) -> dict[str, Any]:
    """In this process, as the child does it."""
    others = other_programs()
    if not job.amx:
        without_amx()
        if amx_granted():
            raise RuntimeError("the kernel still grants AMX")
    module, _, name = job.part.partition(":")
    isa, again, short = "", 0, 0
    with contextlib.ExitStack() as stack:
        if job.torch:
            import torch

            from benchmarks import cores, ours

            isa = _settle(job, ours)
            stack.enter_context(torch.inference_mode())
        part = getattr(importlib.import_module(f"benchmarks.{module}"), name)
        found = part(job)
        if job.torch:
            again, short = cores.SHORTAGE.again, cores.SHORTAGE.short
    compared = {k: v for k, v in found.items() if isinstance(v, Comparison)}
    for comparison in compared.values() if job.threads == 1 else ():
        comparison.check_threads(1)
    found = {**found, **{label: c.to_dict() for label, c in compared.items()}}
    return {"isa": isa, "others": others(), "found": found, "again": again, "short": short}


def _settle(job: Job, ours: Any) -> str:
    """Gives PyTorch and Octavo their threads; the instruction set that Octavo uses."""
    import torch

    if job.threads:
        torch.set_num_threads(job.threads)
    if not job.ours:
        return ""
    if job.threads:
        ours.set_num_threads(job.threads)
    if job.isa and ours.isa() != job.isa:
        raise RuntimeError(f"asked for {job.isa}, and Octavo uses {ours.isa()}")
    return str(ours.isa())


@dataclass(frozen=True)
class Effort:
    """How much a benchmark of layers measures, and whether this machine has AMX."""

    quick: bool
    cells: tuple[Cell, ...]
    ours: bool = True
    has_amx: bool = True

    def where(self, least_rows: int, least_width: int) -> tuple[Cell, ...]:
        """The cells with M of at least `least_rows`, and K and N of at least `least_width`."""
        return tuple(c for c in self.cells if c[0] >= least_rows and min(c[1:]) >= least_width)

    def settings(self, title: str, job: Job) -> Iterator[tuple[str, Answer]]:
        """Section and answer of `job` with AMX and without; where there is none, once."""
        title += ", one thread" if job.threads == 1 else f", {job.threads} threads"
        for amx, words in ((True, ", AMX"), (False, ", AMX refused")) if self.has_amx else ():
            yield self.ask(title + words, replace(job, amx=amx))
        if not self.has_amx:
            yield self.ask(title, job)

    def ask(self, section: str, job: Job) -> tuple[str, Answer]:
        """The answer of one child; the section's name then says what Octavo used."""
        results.say(section)
        answer = run(replace(job, rounds=3 if self.quick else 7, ours=self.ours))
        return section + (f" (octavo: {answer.isa})" if answer.isa else ""), answer


def every(sections: Mapping[str, Rows]) -> list[Row]:
    """The rows of all `sections`; what cannot be measured is a missed row."""
    return [row for section, rows in sections.items() for row in guarded(section, rows)]


def guarded(section: str, rows: Rows) -> Iterator[Row]:
    """`rows`, and where they stop with an error, a missed row with that error."""
    try:
        yield from rows()
    except Exception as error:  # noqa: BLE001  # one section's error is not the others'
        note = reason(error)
        yield Row("figures not measured", math.nan, at_most=0, section=section, note=note)


def reason(error: Exception) -> str:
    """One line for a row, without the machine's folders; of a child that failed, its last line."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, subprocess.CalledProcessError) and str(error.stderr or "").strip():
        text = str(error.stderr).strip().splitlines()[-1]
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", ".../", " ".join(text.split()))[:300]


def attempt(
    names: Iterable[str], make: Callable[[str], Made]
) -> tuple[dict[str, Made], dict[str, str]]:
    """What `make` gives for each name, and of those that it cannot make the reason."""
    made, refused = {}, {}
    for name in names:
        try:
            made[name] = make(name)
        except Exception as error:  # noqa: BLE001  # a figure that cannot be measured is missed
            refused[name] = reason(error)
    return made, refused


def parser(script: str, doc: str | None) -> argparse.ArgumentParser:
    """With the options that all scripts have."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{script}", description=doc)
    made.add_argument("--quick", action="store_true", help="less of all; writes no result")
    words = "only parts with one of these words in their title; writes no result"
    made.add_argument("--only", nargs="+", default=[], metavar="WORD", help=words)
    return made


def publish(
    script: str,
    title: str,
    sections: Mapping[str, Rows],
    options: argparse.Namespace,
    arguments: Sequence[str],
    *,
    name: str = "",
    speeds: bool = False,
    partial: bool = False,
) -> None:
    """Measures the sections that were asked for, prints the rows and keeps those of a full run."""
    words = [word.lower() for word in options.only]
    chosen = {
        section: rows
        for section, rows in sections.items()
        if not words or any(word in section.lower() for word in words)
    }
    rows = every(chosen)
    found = results.result(name or script, title, rows, arguments, script, speeds=speeds)
    results.publish(found, options.quick or bool(words) or partial)


if __name__ == "__main__":
    print(json.dumps(measure(Job.from_json(sys.argv[1]))))
