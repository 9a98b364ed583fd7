"""Families of transformers, each by its name: how fast and how near float beside the peers.

`python -m benchmarks.families [--torch] [--onnx] [--decoding] [--only FAMILY ...] [--quick]`:
PyTorch modules beside torch.ao, ONNX files by both exporters beside ONNX Runtime's quantizer and
OpenVINO, and one token after another; all three, unless some are asked for. Weights are random, of
published widths and four layers (`zoo.families`). The last section has each aim with the family
that is furthest from it. `--prepare` makes the float files and the peers', and measures nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import (
    families_decoding,
    families_onnx,
    families_smollm,
    families_torch,
    results,
    runner,
)
from benchmarks.families_aims import Aims
from benchmarks.latency import Setting
from benchmarks.results import Row
from benchmarks.runner import Rows
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family

THREADS = (1, 2, 16)


def settings(quick: bool, processes: int) -> list[Setting]:
    """One and two threads, and 16 where there are as many cores."""
    cores = results.machine().cores
    return [
        Setting(
            f"{threads} thread{'s' * (threads > 1)}",
            threads,
            processes=processes if threads == 1 else 1,
            rounds=3 if quick else 9,
        )
        for threads in (THREADS[:1] if quick else THREADS)
        if threads <= cores
    ]


def chosen(words: Sequence[str]) -> list[Family]:
    """Those of these names, else those with one of the words in their name; all without words."""
    lowered = [word.lower() for word in words]
    exact = [family for family in FAMILIES.values() if family.name.lower() in lowered]
    named = [f for f in FAMILIES.values() if any(word in f.name.lower() for word in lowered)]
    return (exact or named) if words else list(FAMILIES.values())


def sections(options: argparse.Namespace, aims: Aims) -> dict[str, Rows]:
    """Rows by title, the aims at the end."""
    families = chosen(options.only)
    every = not (options.torch or options.onnx or options.decoding)
    times = settings(options.quick, options.processes)
    found: dict[str, Rows] = {}
    for family in families:
        if every or options.torch:
            title = f"{family.name}: PyTorch"
            found[title] = partial(families_torch.rows, title, family, times, aims)
        if every or options.onnx:
            title = f"{family.name}: ONNX, target native"
            found[title] = partial(families_onnx.rows, title, family, times, aims, options.quick)
        if family.cached and (every or options.decoding):
            title = f"{family.name}: one token after a cache"
            found[title] = partial(families_decoding.rows, title, family, times, aims)
    asked = not options.only or any("smollm" in word.lower() for word in options.only)
    if asked and (every or options.decoding):
        found[families_smollm.TITLE] = partial(families_smollm.rows, times, aims)
    found["Aims"] = partial(_aim_rows, aims)
    return found


def _aim_rows(aims: Aims) -> Iterator[Row]:
    yield from aims.rows("Aims")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = runner.parser("families", __doc__)
    parser.add_argument("--torch", action="store_true", help="PyTorch modules")
    parser.add_argument("--onnx", action="store_true", help="ONNX files")
    parser.add_argument("--decoding", action="store_true", help="one token after another")
    parser.add_argument("--prepare", action="store_true", help="only make the float files")
    parser.add_argument("--into", metavar="FOLDER", help="write the result there, of any run")
    parser.add_argument(
        "--processes", type=int, default=3, help="child processes that a figure is pooled from (3)"
    )
    options = parser.parse_args(arguments)
    if options.prepare:
        families_onnx.prepare(chosen(options.only), options.quick)
        return 0
    aims = Aims()
    made = sections(options, aims)
    rows = runner.every(made)
    found = results.result("families", TITLE, rows, arguments, speeds=True)
    if options.into:
        results.write(found, Path(options.into))
    part = options.torch or options.onnx or options.decoding
    results.publish(found, bool(options.quick or options.only or part))
    return 0


TITLE = "Families of transformers"


if __name__ == "__main__":
    raise SystemExit(main())
