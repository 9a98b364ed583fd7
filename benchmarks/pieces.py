"""A long benchmark in pieces: what is measured is kept in a folder, and a later run goes on.

Each piece is a section with rows, and says when and by which code it was measured. A machine that
is idle for minutes at a time can so measure what takes hours: `--into FOLDER` keeps the sections
there, and the same command goes on with the rest; `--for SECONDS` says when to stop.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import results, runner
from benchmarks.families_aims import Aims
from benchmarks.results import Measured, Result, Row, say

Section = Callable[[Aims], Iterator[Row]]
Summary = Callable[[Sequence[Row]], Iterable[Row]]
"""What is said of all rows at the end."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What a script that measures in pieces takes beside the options of all scripts."""
    words = "keep each section there when it is done; the same command goes on with the rest"
    parser.add_argument("--into", metavar="FOLDER", help=words)
    words = "begin no section after so many"
    parser.add_argument("--for", dest="seconds", type=float, default=math.inf, help=words)
    words = "measure again what other code than today's has measured"
    parser.add_argument("--again", action="store_true", help=words)
    words = "measure nothing; the result of what is kept, in which the rest is missed"
    parser.add_argument("--join", action="store_true", help=words)


def command(script: str, arguments: Sequence[str]) -> str:
    """Without what says where and how far, which is a matter of the machine."""
    kept, words = [], iter(arguments)
    for word in words:
        if word in ("--into", "--for"):
            next(words, None)
        elif word not in ("--join", "--again"):
            kept.append(word)
    return " ".join([f"python -m benchmarks.{script}", *kept])


def finished(asked: Mapping[str, Section], kept: Folder, options: argparse.Namespace) -> bool:
    """Measures what the options say; whether a result can be made. Says what is left if not."""
    if options.join:
        return True
    measure(asked, kept, options.seconds, options.again)
    missing = [title for title in asked if kept.kept(title) is None]
    if missing:
        print(f"{len(missing)} of {len(asked)} sections are left; the next is {missing[0]}")
    return not missing


@dataclass(frozen=True)
class Piece:
    """What was found of one section, and what it adds to the aims."""

    measured: Measured
    rows: tuple[Row, ...]
    aims: Aims


class Folder:
    """The pieces that are kept in `path`, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def kept(self, title: str) -> Piece | None:
        """The piece of this title, or None."""
        path = self._file(title)
        if not path.is_file():
            return None
        data = json.loads(path.read_text("utf-8"))
        rows = tuple(map(results.row, data["rows"]))
        return Piece(Measured(**data["measured"]), rows, Aims.from_list(data["aims"]))

    def keep(self, piece: Piece) -> None:
        """In place of one of the same title."""
        self.path.mkdir(parents=True, exist_ok=True)
        data = {
            "measured": asdict(piece.measured),
            "rows": [row.to_dict() for row in piece.rows],
            "aims": piece.aims.to_list(),
        }
        path = self._file(piece.measured.section)
        partial = path.with_suffix(".partial")  # a run that is ended leaves no half of a piece
        partial.write_text(json.dumps(data, indent=1, ensure_ascii=False), "utf-8")
        partial.replace(path)

    def _file(self, title: str) -> Path:
        return self.path / (re.sub(r"[^\w.-]+", "-", title) + ".json")


def measure(
    sections: Mapping[str, Section], folder: Folder, seconds: float = math.inf, again: bool = False
) -> None:
    """Measures what `folder` lacks, and begins nothing after `seconds`.

    With `again`, what other code than today's has measured counts as lacking.
    """
    begin, code = time.monotonic(), results.code()
    for title, section in sections.items():
        kept = folder.kept(title)
        if kept is not None and not (again and kept.measured.code != code):
            continue
        if time.monotonic() - begin > seconds:
            say("the time is up; the same command goes on with the rest")
            return
        folder.keep(piece(title, section))


def piece(title: str, section: Section) -> Piece:
    """Measured now; an error is a row that says so."""
    aims = Aims()
    rows = tuple(runner.guarded(title, lambda: section(aims)))
    return Piece(Measured.now(title), rows, aims)


def joined(
    name: str,
    title: str,
    sections: Sequence[str],
    folder: Folder,
    command: str,
    summary: Summary = lambda rows: (),
) -> Result:
    """One result of all pieces, then summary and aims; what no run measured is a missed row."""
    rows: list[Row] = []
    found: list[Measured] = []
    aims = Aims()
    for section in sections:
        kept = folder.kept(section)
        if kept is None:
            rows.append(Row("figures", math.nan, at_most=0, section=section, note="not measured"))
            continue
        rows += kept.rows
        found.append(kept.measured)
        aims.take(kept.aims)
    rows += [*summary(rows), *aims.rows("Aims")]
    whole = results.result(name, title, rows, speeds=True)
    if not found:
        return replace(whole, command=command)
    last = max(found, key=lambda piece: piece.date)
    return replace(
        whole,
        command=command,
        commit=last.commit,
        dirty=any(piece.dirty for piece in found),
        date=last.date,
        pieces=tuple(found),
    )
