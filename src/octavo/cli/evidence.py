"""Measures a quantized model beside the float one and ONNX Runtime's own, for a page about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.bench import Bench
from octavo.cli.compare import compared
from octavo.cli.tuning import shape_of
from octavo.errors import OctavoError
from octavo.front_ends import names_factory

if TYPE_CHECKING:
    from octavo.recipe.benchmark import Benchmark
    from octavo.recipe.comparison import Comparison
    from octavo.recipe.evidence import Evidence

SECONDS = 10.0
"""What timing may take where nobody says: a page is worth a wait, not a break."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class How:
    """What to measure on: inputs to compare on (made up where None), `shape` and `threads` of what
    is timed as on the command line, and about how many `seconds` that may take (None: SECONDS)."""

    inputs: Path | None = None
    shape: str = ""
    threads: int | None = None
    seconds: float | None = None

    @property
    def budget(self) -> float:
        """Seconds."""
        return SECONDS if self.seconds is None else self.seconds


def evidence(floating: str, quantized: Path, how: How, *, strict: bool = False) -> Evidence:
    """Compares and times; `floating` is a path or `module:factory`.

    What fails is a note, unless `strict`: then a comparison that fails raises what `compare` does.
    """
    from octavo.recipe.evidence import Evidence
    from octavo.report.progress import progress_bar

    notes: list[str] = []
    with progress_bar() as bar:
        progress: Progress = bar or (lambda stage, done, total: None)
        progress("comparing layer by layer", 0, 0)
        comparison = None
        try:
            comparison = compared(floating, quantized, how.inputs)
        except OctavoError as error:
            if strict:
                raise
            notes.append(f"not compared with the float model: {error}")
        measure = _saved if names_factory(floating) else _files
        try:
            benchmark, ort = measure(floating, quantized, how, progress, notes)
        except OctavoError as error:
            benchmark, ort = None, None
            notes.append(f"not timed: {error}")
    return Evidence(comparison, benchmark, ort, tuple(notes))


def _files(
    floating: str, quantized: Path, how: How, progress: Progress, notes: list[str]
) -> tuple[Benchmark, Comparison | None]:
    """ONNX files, and what ONNX Runtime's own function makes of the float one."""
    from octavo.onnx.bench import BenchFile
    from octavo.onnx.comparing.compare import compare_outputs
    from octavo.recipe.benchmark import Benchmark
    from octavo.recipe.evidence import FLOAT, QUANTIZED

    with contextlib.ExitStack() as stack:
        files = [BenchFile(Path(floating), FLOAT), BenchFile(quantized, QUANTIZED)]
        bench = Bench(files, how.budget, progress)
        bench.add_ort(stack)
        ort = None
        if bench.ort is not None:
            try:
                ort = compare_outputs(floating, bench.ort.path, how.inputs)
            except OctavoError as error:
                notes.append(f"ONNX Runtime's own int8 is not compared: {error}")
        bench.time(how.shape, shape_of(how.shape) if how.shape else {}, [how.threads])
    notes += dict.fromkeys(bench.notes)
    return Benchmark(tuple(bench.rows), tuple(bench.timed), how.budget), ort


def _saved(
    factory: str, saved: Path, how: How, progress: Progress, notes: list[str]
) -> tuple[Benchmark, None]:
    """A PyTorch model and what was saved of it. ONNX Runtime has no part in it."""
    from octavo.measure.benchmark import compare
    from octavo.recipe.benchmark import Benchmark
    from octavo.recipe.evidence import FLOAT, QUANTIZED
    from octavo.torch.comparing.files import openers

    named = zip((FLOAT, QUANTIZED), openers(factory, saved, how.inputs), strict=True)
    rows, timed = compare(dict(named), seconds=how.budget, progress=progress)
    notes.append("ONNX Runtime's own int8 is not timed: the model is a PyTorch module")
    return Benchmark(rows, timed, how.budget), None
