"""Speed by threads: the results of `benchmarks.thread_counts`, as a plot and as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.docs.drawing import Drawn, Panel, panels
from benchmarks.docs.figures import measured_values, names, result
from benchmarks.docs.machines import processor
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO

_NAMES = {OCTAVO: "Octavo, int8", AO_CHANNEL: AO_CHANNEL, FLOAT: FLOAT}
_SECTION = re.compile(r"(.+) \(octavo: (\w+)\)")
_SPEED = re.compile(rf"(.+), (\d+) threads?: speed over {FLOAT}, 1 thread")


@dataclass(frozen=True)
class _Scaling:
    """A model on a machine: by variant and threads the speed over float's with one thread."""

    model: str
    kernels: str
    machine: str
    speeds: dict[str, dict[int, float]]


def thread_results() -> tuple[str, ...]:
    """Those that there are."""
    return tuple(name for name in names() if name.startswith("thread_counts"))


def thread_counts() -> Drawn:
    """A panel for each model, and for each kernel table and machine where there are several."""
    found = list(_scalings())
    several = len({(s.kernels, s.machine) for s in found}) > 1
    each = [
        Panel(f"{s.model}\n{s.kernels}, {s.machine}" if several else s.model, s.speeds)
        for s in found
    ]
    title = "PyTorch modules by number of threads, over float's speed with one"
    plot = panels(title, "threads", "speed, float with 1 thread = 1", each)
    return Drawn(plot, thread_results())


def thread_table() -> Iterator[str]:
    """The same in figures: a model and variant a line, a number of threads a column."""
    found = list(_scalings())
    counts = sorted({n for s in found for at in s.speeds.values() for n in at})
    threads = " | ".join(f"{n} thread{'s' * (n > 1)}" for n in counts)
    yield f"| model | instruction set | speed of | {threads} |"
    yield "|---|---|---|" + "--:|" * len(counts)
    for s in found:
        for name, at in s.speeds.items():
            cells = " | ".join(f"{at[n]:.2f}" if n in at else "" for n in counts)
            yield f"| {s.model} | {s.kernels} | {name} | {cells} |"


def _scalings() -> Iterator[_Scaling]:
    for name in thread_results():
        machine = processor(result(name).machine)
        by_section: dict[str, dict[str, dict[int, float]]] = {}
        for (section, what), speed in measured_values(name).items():
            if match := _SPEED.fullmatch(what):
                variants = by_section.setdefault(section, {})
                variants.setdefault(_NAMES[match[1]], {})[int(match[2])] = speed
        for section, speeds in by_section.items():
            match = _SECTION.fullmatch(section)
            if match is None:
                raise LookupError(f"result {name!r}: section {section!r} names no kernel table")
            yield _Scaling(match[1], match[2], machine, speeds)
