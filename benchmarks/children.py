"""A part of a benchmark in a process with its own threads, AMX and instruction set.

`run` starts `python -m benchmarks.children JOB`, whose answer is one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.results import REPOSITORY
from benchmarks.timing import Comparison, amx_granted, other_programs, pooled, without_amx

Cell = tuple[int, ...]

# What holds PyTorch's own kernels, MKL and oneDNN to AVX2.
_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


@dataclass(frozen=True)
class Job:
    """What a child measures: the cells of one part, under one setting.

    `isa` is OCTAVO_ISA, empty for the best; `avx2` holds everybody in the child to AVX2.
    """

    part: str
    cells: tuple[Cell, ...]
    threads: int = 1
    amx: bool = True
    isa: str = ""
    avx2: bool = False
    rounds: int = 7
    peers: tuple[str, ...] = ()
    ours: bool = True

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The inverse of `to_json`."""
        job = cls(**json.loads(text))
        return replace(job, cells=tuple(map(tuple, job.cells)), peers=tuple(job.peers))

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    def environment(self) -> dict[str, str]:
        """Of the child."""
        found = {name: value for name, value in os.environ.items() if name not in _AVX2}
        found |= {"OMP_NUM_THREADS": str(self.threads)}
        found.pop("OCTAVO_ISA", None)
        found |= {"OCTAVO_ISA": self.isa} if self.isa else {}
        return found | (_AVX2 if self.avx2 else {})


@dataclass(frozen=True)
class Answer:
    """What was measured of each cell, by label, and the instruction set that Octavo used.

    `others` is how many cores other programs used meanwhile. `again` counts measurements made again
    because the machine gave fewer cores than threads, `short` those that were kept all the same.
    """

    isa: str
    others: float
    found: Mapping[str, Comparison]
    again: int = 0
    short: int = 0


def run(job: Job) -> Answer:
    """The answer of a child. Raises subprocess.CalledProcessError if it fails."""
    answer = last_line("benchmarks.children", job.to_json(), environment=job.environment())
    found = {label: Comparison.from_dict(data) for label, data in answer["found"].items()}
    return Answer(answer["isa"], answer["others"], found, **answer["cores"])


def last_line(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """The JSON in the last line that `python -m MODULE ARGUMENTS` prints; stderr is passed on.

    numpy's pool has one thread there: others spin when numpy is loaded and after each product, and
    take a core from what is timed. `environment` is this process's unless given.

    Raises subprocess.CalledProcessError, which holds the child's stderr.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env={**(os.environ if environment is None else environment), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stderr.write(done.stderr)
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def pooled_run(job: Job, processes: int) -> dict[str, Comparison]:
    """Of `processes` children one after the other, which make the peers in different orders."""
    parts = []
    for i in range(processes):
        first = i % max(1, len(job.peers))
        turned = (*job.peers[first:], *job.peers[:first])
        parts.append(run(replace(job, peers=turned)).found)
    return {label: pooled([part[label] for part in parts]) for label in parts[0]}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints the answer."""
    job = Job.from_json((sys.argv[1:] if argv is None else argv)[0])
    others = other_programs()
    if not job.amx:
        without_amx()
        if amx_granted():
            raise RuntimeError("the kernel still grants AMX")
    import torch

    from benchmarks import cores, ours, parts, parts_rnn, parts_torch

    torch.set_num_threads(job.threads)
    if job.ours:
        ours.set_num_threads(job.threads)
        if job.isa and ours.isa() != job.isa:
            raise RuntimeError(f"asked for {job.isa}, and Octavo uses {ours.isa()}")
    with torch.inference_mode():
        found = (parts.PARTS | parts_rnn.PARTS | parts_torch.PARTS)[job.part](job)
    if job.threads == 1:
        for comparison in found.values():
            comparison.check_threads(1)
    data = {label: comparison.to_dict() for label, comparison in found.items()}
    answer = {"isa": ours.isa() if job.ours else "", "others": others(), "found": data}
    shortage = {"again": cores.SHORTAGE.again, "short": cores.SHORTAGE.short}
    print(json.dumps(answer | {"cores": shortage}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
