"""Measures a quantized model beside the float one and ONNX Runtime's own, for a page about it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from octavo.cli.bench import Bench
from octavo.cli.compare import compared
from octavo.cli.options import shape_of
from octavo.errors import InputDataError, OctavoError, OptionError
from octavo.front_ends import names_torch

if TYPE_CHECKING:
    from octavo.results.benchmark import Benchmark
    from octavo.results.comparison import Comparison
    from octavo.results.evidence import Evidence

SECONDS = 10.0
"""What timing may take where nobody says: a page is worth a wait, not a break."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class How:
    """What to measure on: inputs to compare on (made up where None), of which the first are timed
    unless a `shape` is given; `shape` and `threads` as on the command line; and about how many
    `seconds` timing may take (None: SECONDS)."""

    inputs: Path | None = None
    shape: str = ""
    threads: int | None = None
    seconds: float | None = None

    @property
    def budget(self) -> float:
        """About how many seconds timing may take."""
        return SECONDS if self.seconds is None else self.seconds


# docs/notes/reports.md: "A page is measured once, and drawn from plain data"
def evidence(
    floating: str, quantized: Path, how: How, *, strict: bool = False, times: bool = True
) -> Evidence:
    """Compare the quantized model with the float one, and time both.

    `floating` is a path or `module:factory`. What fails is a note. With `strict`, what `compare`
    raises passes through, and so do OptionError and InputDataError of timing: a shape that does not
    fit. What models print goes to stderr. Nothing is timed where `times` is False, as the speed is
    known: a page has one for a model.
    """
    from octavo.report.terminal import progress_bar

    with progress_bar() as bar, contextlib.redirect_stdout(sys.stderr):
        progress: Progress = bar or (lambda stage, done, total: None)
        found = _Measured(floating, quantized, how, progress)
        with found.noted("not compared with the float model", (OctavoError,) if strict else ()):
            found.compare()
        with found.noted("not timed", (OptionError, InputDataError) if strict else ()):
            if times and names_torch(floating):
                found.time_saved()
            elif times:
                found.time_files()
    return found.evidence()


@dataclass
class _Measured:
    """What has been measured so far."""

    floating: str
    quantized: Path
    how: How
    progress: Progress
    comparison: Comparison | None = None
    benchmark: Benchmark | None = None
    ort: Comparison | None = None
    notes: list[str] = field(default_factory=list)

    def evidence(self) -> Evidence:
        """Return all that has been measured so far."""
        from octavo.results.evidence import Evidence

        return Evidence(self.comparison, self.benchmark, self.ort, tuple(dict.fromkeys(self.notes)))

    @contextlib.contextmanager
    def noted(self, what: str, fatal: tuple[type[OctavoError], ...]) -> Iterator[None]:
        """Make an error a note that begins with `what`; errors of types `fatal` pass through."""
        try:
            yield
        except OctavoError as error:
            if isinstance(error, fatal):
                raise
            self.notes.append(f"{what}: {error}")

    def compare(self) -> None:
        """Compare the models layer by layer."""
        self.progress("comparing layer by layer", 0, 0)
        self.comparison = compared(self.floating, self.quantized, self.how.inputs, self.progress)

    def time_files(self) -> None:
        """Time the ONNX files, and what ONNX Runtime's own function makes of the float one."""
        from octavo.measure.benchmark import machine
        from octavo.onnx.bench import BenchFile
        from octavo.results.benchmark import Benchmark
        from octavo.results.evidence import FLOAT, QUANTIZED

        shape = shape_of(self.how.shape) if self.how.shape else {}
        files = [BenchFile(Path(self.floating), FLOAT), BenchFile(self.quantized, QUANTIZED)]
        bench = Bench(files, self.how.budget, self.progress)
        try:
            with contextlib.ExitStack() as stack:
                bench.add_ort(stack)
                with self.noted("ONNX Runtime's own int8 is not compared", ()):
                    self._compare_ort(bench)
                given = None if shape else self.how.inputs
                bench.time(self.how.shape, shape, [self.how.threads], given)
        finally:
            self.notes += bench.notes
        self.benchmark = Benchmark(
            tuple(bench.rows), tuple(bench.timed), bench.took, machine=machine()
        )

    def _compare_ort(self, bench: Bench) -> None:
        from octavo.onnx.comparing.compare import compare_outputs

        if bench.ort is not None:
            self.progress("comparing ONNX Runtime's own int8", 0, 0)
            self.ort = compare_outputs(
                self.floating, bench.ort.path, self.how.inputs, progress=self.progress
            )

    def time_saved(self) -> None:
        """Time a PyTorch model and what was saved of it. ONNX Runtime has no part in it."""
        if self.comparison is None:
            raise OptionError("it could not be compared")  # it may well fail in each call
        from octavo.core.feeds import batch, shape_text
        from octavo.measure.benchmark import compare, machine
        from octavo.results.benchmark import BUSY, Benchmark
        from octavo.results.evidence import FLOAT, QUANTIZED
        from octavo.torch.comparing.saved_models import timed_pair

        self.notes.append("ONNX Runtime's own int8 is not timed: the model is a PyTorch module")
        pair = timed_pair(self.floating, self.quantized, self.how.inputs)
        start = perf_counter()
        rows, timed = compare(
            {FLOAT: pair.floating, QUANTIZED: pair.quantized},
            seconds=self.how.budget,
            items=batch(pair.feed),
            shape=shape_text(pair.feed),
            progress=self.progress,
        )
        if not timed:
            self.notes.append(BUSY)
        self.benchmark = Benchmark(rows, timed, perf_counter() - start, machine=machine())
