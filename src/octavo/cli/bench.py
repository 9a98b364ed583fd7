"""`octavo bench`: files timed in turns, for each shape and number of threads."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import (
    NOT_BOUNDED,
    Against,
    CustomOpsOption,
    JsonOption,
    exit_codes,
    operators,
    shape_of,
    show,
)
from octavo.cli.places import check_places, plot_option, write_plot
from octavo.core.cpu import usable_processors
from octavo.errors import ModelError, OctavoError, OptionError
from octavo.results.words import count as counted

if TYPE_CHECKING:
    from octavo.cli.bench_models import BenchModel, Feed
    from octavo.onnx.bench import BenchFile
    from octavo.results.benchmark import Pair, Timed


def threads_of(text: str | None) -> list[int | None]:
    """Read numbers of threads such as `1,2`; without text, [None] leaves them to ONNX Runtime."""
    if text is None:
        return [None]
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise OptionError(f"--threads {text!r}: give numbers above 0 with commas, such as 1,2")
    counts = dict.fromkeys(int(part) for part in parts)
    processors = usable_processors()
    if max(counts) > (most := max(processors, 2)):
        raise OptionError(
            f"--threads {text!r}: this process may use {counted(processors, 'processor')}, and "
            f"more threads wait for each other; give at most {most}"
        )
    return list(counts)


@dataclass
class Bench:
    """What has been measured so far of `files`, and of `ort` where ONNX Runtime could make it."""

    files: Sequence[BenchModel]
    seconds: float
    progress: Callable[[str, int, int], None] | None
    ort: BenchFile | None = None
    rows: list[Pair] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    took: float = 0.0
    """Seconds of timing alone."""

    def add_ort(self, stack: contextlib.ExitStack) -> None:
        """Quantize the first model as ONNX Runtime does; where that fails, a note says so."""
        from octavo.onnx.bench import BenchFile, quantized_by_ort
        from octavo.onnx.run.sessions import Scratch
        from octavo.results.evidence import ORT

        first = self.files[0]
        if not isinstance(first, BenchFile):
            raise OptionError(
                f"--against ort: ONNX Runtime quantizes ONNX files, and {first.name} is a "
                "checkpoint: leave it out, or give a float ONNX file first"
            )
        self._say("quantizing with ONNX Runtime", 0)
        place = stack.enter_context(Scratch())
        try:
            made = quantized_by_ort(first, place)
            self.ort = BenchFile(made, ORT)
        except OctavoError as error:
            self._failed(error)

    def time(
        self,
        text: str,
        shape: dict[str, tuple[int, ...]],
        counts: list[int | None],
        inputs: Path | None = None,
    ) -> None:
        """Time all files on inputs of one shape, or on `inputs`, for each number of threads."""
        from octavo.cli.bench_models import feeds
        from octavo.core.feeds import shape_text

        self._say("making up inputs", 0)
        found, notes = feeds(self.files, shape, inputs)
        self.notes += notes
        given = list(zip(self.files, found, strict=True))
        try:
            if self.ort is not None:
                self.ort.check(found[0])
                given.append((self.ort, found[0]))
        except OctavoError as error:
            self._failed(error)
        for count in counts:
            self._group(given, text or shape_text(found[0]), count)

    def _group(
        self, given: Sequence[tuple[BenchModel, Feed]], shape: str, threads: int | None
    ) -> None:
        from octavo.core.feeds import batch
        from octavo.measure.benchmark import compare
        from octavo.results.benchmark import BUSY, conditions

        start = time.perf_counter()
        pairs, timed = compare(
            {file.name: file.opener(feed, threads) for file, feed in given},
            seconds=self.seconds,
            items=batch(given[0][1]),
            shape=shape,
            threads=threads,
            progress=self.progress,
            with_threads=True,
        )
        self.took += time.perf_counter() - start
        self.rows += pairs
        if not timed:
            self.notes.append(": ".join(filter(None, (conditions(shape, threads), BUSY))))
            return
        for (file, feed), one in zip(given, timed, strict=True):
            self._say(f"memory of {file.name}", 0)
            memory = self._memory(file, feed, threads)
            self.timed.append(replace(one, bytes=file.bytes, peak_memory=memory))

    def _memory(self, file: BenchModel, feed: Feed, threads: int | None) -> int | None:
        try:
            return file.peak_memory(feed, threads)
        except ModelError as error:  # it ran here: what is missing is the measurement
            self.notes.append(f"peak memory is not known: {error}")
            return None

    def _failed(self, error: OctavoError) -> None:
        from octavo.results.evidence import ORT

        self.notes.append(f"{ORT} of {self.files[0].name} is not timed: {error}")

    def _say(self, stage: str, done: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, 0)


def bench(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="ONNX files A, B, ..: float or int8, of either target; folders of one, or "
            "checkpoints of transformers and GGUF files, which run in PyTorch.",
        ),
    ],
    shape: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=1x128,..",
            help="Shapes of the model's inputs, which are made up. May be repeated: each is timed. "
            "Default: guessed from A's graph.",
        ),
    ] = [],  # noqa: B006
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N,..",
            help="Threads of a session; each number is timed. Default: as ONNX Runtime chooses.",
        ),
    ] = None,
    against: Annotated[
        Against | None,
        typer.Option(
            help="ort: quantize A with onnxruntime.quantization.quantize_dynamic too, in a "
            "temporary folder, and time that. Default: the files alone.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="About how many seconds each shape and number of threads is timed at most; it "
            f"ends earlier once all is clear. {NOT_BOUNDED} does quantizing for --against.",
        ),
    ] = 30.0,
    plot: Annotated[
        Path | None, plot_option("the speed of each model beside the first, by shape,")
    ] = None,
    custom_ops: CustomOpsOption = [],  # noqa: B006
    json: JsonOption = False,
) -> None:
    """Time models in turns (A B B A ..), each opened many times, and compare them pair by pair.

    Of each pair: the time of the later one over that of the earlier one, with a 99% interval, and
    whether there is a difference, none, or it was too noisy to tell. Of each model: latency,
    throughput, the time a session takes to open, peak memory and file size. They go to stdout; no
    file is written but PICTURE.
    """
    with exit_codes(), operators(custom_ops, *models):
        from octavo.cli.bench_models import bench_models
        from octavo.measure.benchmark import machine
        from octavo.report.plots.speeds import speeds_plot
        from octavo.report.terminal import progress_bar
        from octavo.results.benchmark import Benchmark

        if not 0 < seconds < math.inf:
            raise OptionError(f"--seconds {seconds:g}: give a number above 0")
        counts = threads_of(threads)
        check_places([Path(model) for model in models], plot=plot)
        asked = {text.replace(" ", ""): shape_of(text) for text in shape} or {"": {}}
        with contextlib.ExitStack() as stack:
            progress = stack.enter_context(progress_bar())
            if progress is not None:
                progress("reading the models", 0, 0)
            timing = Bench(bench_models(models), seconds, progress)
            if against is Against.ORT:
                timing.add_ort(stack)
            for text, sizes in asked.items():
                timing.time(text, sizes, counts)
        notes = tuple(dict.fromkeys(timing.notes))
        found = Benchmark(tuple(timing.rows), tuple(timing.timed), timing.took, notes, machine())
        show(found, json=json)
        if found.models:  # else there is nothing to draw, as a note says
            write_plot(plot, lambda: speeds_plot(found))
