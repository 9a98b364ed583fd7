"""A model on processors without VNNI: `python -m benchmarks.older_cpus [--quick]`.

all-MiniLM-L6 without its weights, in PyTorch with one thread. PyTorch, its int8 and Octavo are
held to AVX2, then to AVX-512 without VNNI, as far as this processor has them: MKL, oneDNN, FBGEMM
and PyTorch's own kernels by their settings. ONNX Runtime has no such setting.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks import ours, rows, runner
from benchmarks.latency import SHAPES
from benchmarks.machine import amx_granted
from benchmarks.results import Row, say
from benchmarks.rows import Asked
from benchmarks.runner import Job
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO

HELD = {"avx2": "AVX2", "avx512": "AVX-512 without VNNI"}
ASKED = (Asked(OCTAVO, FLOAT), Asked(OCTAVO, AO_CHANNEL), Asked(AO_CHANNEL, FLOAT))


def speeds(isa: str, title: str, quick: bool) -> Iterator[Row]:
    """Of all pairs in question, with everybody held to `isa`."""
    say(title)
    job = Job(
        "parts_torch:minilm",
        SHAPES[:1] if quick else SHAPES,
        amx=not amx_granted(),
        isa=isa,
        held=isa,
        rounds=3 if quick else 11,
        peers=(FLOAT, AO_CHANNEL, OCTAVO),
        options={"untrained": True},
    )
    answer = runner.run(job)
    yield from rows.machine_rows(answer, title)
    yield from rows.speed_rows(answer.found, ASKED, title, {})


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("older_cpus", __doc__).parse_args(arguments)
    sections = {
        title: partial(speeds, isa, title, options.quick)
        for isa, words in HELD.items()
        if isa in ours.isas()
        for title in [f"all-MiniLM-L6, all held to {words}, 1 thread"]
    }
    runner.publish("older_cpus", "Processors without VNNI", sections, options, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
