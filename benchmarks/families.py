"""Families of transformers, each by its name: how fast and how near float beside the peers.

`python -m benchmarks.families [--torch] [--onnx] [--decoding] [--only FAMILY ...] [--quick]`:
PyTorch modules beside torch.ao, ONNX files by both exporters beside ONNX Runtime's quantizer and
OpenVINO, and one token after another; all three, unless some are asked for. Weights are random, of
published widths and four layers (`zoo.families`). The last section has each aim with the family
that is furthest from it.

All of it takes hours, and a machine need not be idle for so long: with `--into FOLDER` each section
is kept there when it is done, and the same command goes on with the rest; `--for SECONDS` says when
to stop. `--prepare` makes the float files and the peers', and with `--into` ours; it measures no
time, and other programs may run beside it. Each section of the result says when it was measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import (
    families_decoding,
    families_onnx,
    families_smollm,
    families_torch,
    pieces,
    results,
    runner,
)
from benchmarks.latency import Setting
from benchmarks.pieces import Section
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family

THREADS = (1, 2, 16)


def settings(quick: bool, processes: int, only: Sequence[int] = ()) -> list[Setting]:
    """One and two threads, and 16 where there are as many cores; of them `only` these, if given."""
    cores = results.machine().cores
    return [
        Setting(
            f"{threads} thread{'s' * (threads > 1)}",
            threads,
            processes=processes if threads == 1 else 1,
            rounds=3 if quick else 9,
        )
        for threads in (THREADS[:1] if quick else THREADS)
        if threads <= cores and (not only or threads in only)
    ]


def chosen(words: Sequence[str]) -> list[Family]:
    """Those of these names, else those with one of the words in their name; all without words."""
    lowered = [word.lower() for word in words]
    exact = [family for family in FAMILIES.values() if family.name.lower() in lowered]
    named = [f for f in FAMILIES.values() if any(word in f.name.lower() for word in lowered)]
    return (exact or named) if words else list(FAMILIES.values())


def sections(options: argparse.Namespace, folder: Path) -> dict[str, Section]:
    """What is measured by title; ONNX files are kept in `folder`."""
    every = not (options.torch or options.onnx or options.decoding)
    times = settings(options.quick, options.processes, options.threads)
    found: dict[str, Section] = {}
    for family in chosen(options.only):
        if every or options.torch:
            found |= _torch_sections(family, times)
        if every or options.onnx:
            found |= _onnx_sections(family, times, options.quick or options.fewer_exports, folder)
        if family.cached and (every or options.decoding):
            for setting in times:
                title = f"{family.name}: one token after a cache, {setting.words}"
                found[title] = partial(families_decoding.rows, title, family, setting)
    asked = not options.only or any("smollm" in word.lower() for word in options.only)
    if asked and (every or options.decoding):
        for setting in times:
            title = f"{families_smollm.TITLE}, {setting.words}"
            found[title] = partial(families_smollm.rows, title, setting)
    return found


def _torch_sections(family: Family, times: Sequence[Setting]) -> dict[str, Section]:
    found: dict[str, Section] = {}
    for setting in times:
        title = f"{family.name}: PyTorch, {setting.words}"
        found[title] = partial(families_torch.rows, title, family, setting)
    threads = families_torch.few_and_many(times[0], family)
    if threads is not None and threads[1] in [setting.threads for setting in times]:
        title = f"{family.name}: PyTorch, {threads[1]} threads over {threads[0]}"
        found[title] = partial(families_torch.thread_rows, title, family, times[0], threads)
    return found


def _onnx_sections(
    family: Family, times: Sequence[Setting], two: bool, folder: Path
) -> dict[str, Section]:
    title, own = f"{family.name}: ONNX, target native", folder / family.name.replace(" ", "-")
    made = title + MADE
    found: dict[str, Section] = {made: partial(families_onnx.made_rows, made, family, own, two)}
    for setting in times:
        speed = f"{title}: speed, {setting.words}"
        found[speed] = partial(families_onnx.speed_rows, speed, family, own, two, setting)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    if options.prepare and not options.into:
        families_onnx.prepare(chosen(options.only), options.quick or options.fewer_exports)
        return 0
    with tempfile.TemporaryDirectory(prefix="octavo-families-") as work:
        _measure(options, Path(options.into or work), pieces.command("families", arguments))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = runner.parser("families", __doc__)
    parser.add_argument("--torch", action="store_true", help="PyTorch modules")
    parser.add_argument("--onnx", action="store_true", help="ONNX files")
    parser.add_argument("--decoding", action="store_true", help="one token after another")
    words = "only with so many threads"
    parser.add_argument("--threads", type=int, nargs="+", default=[], choices=THREADS, help=words)
    words = "of a family's exports only the first and the last, which differ most"
    parser.add_argument("--fewer-exports", action="store_true", help=words)
    parser.add_argument("--prepare", action="store_true", help="only make files, time nothing")
    words = "child processes that a figure is pooled from (3)"
    parser.add_argument("--processes", type=int, default=3, help=words)
    pieces.add_options(parser)
    return parser


def _measure(options: argparse.Namespace, folder: Path, command: str) -> None:
    asked = sections(options, folder / "files")
    kept = pieces.Folder(folder)
    if options.prepare:
        made = {title: section for title, section in asked.items() if title.endswith(MADE)}
        pieces.measure(made, kept, options.seconds, options.again)
        return
    if not pieces.finished(asked, kept, options):
        return
    found = pieces.joined("families", TITLE, list(asked), kept, command)
    part = options.torch or options.onnx or options.decoding or options.threads
    results.publish(found, not options.join and bool(options.quick or options.only or part))


TITLE = "Families of transformers"
MADE = ": what was made"


if __name__ == "__main__":
    raise SystemExit(main())
