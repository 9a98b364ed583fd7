"""A benchmark's result: what was asked, what was measured, on which machine, by which code.

`write` leaves `NAME.json` in `benchmarks/results/`, a row a line, and
`python -m benchmarks.results [NAME]` prints it as tables. A figure that was missed stays there.
No path of the machine does.

Speeds are of a kind of processor: there are results of one with AMX (NAME) and of one without
(NAME_vnni), side by side; a script writes the one of the machine that it runs on.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

VERSION = 1
REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = REPOSITORY / "benchmarks" / "results"
_PACKAGES = (
    *("numpy", "onnx", "onnxruntime", "torch", "transformers"),
    *("openvino", "nncf", "octavo"),
)


@dataclass(frozen=True)
class Row:
    """One figure. With a bound it is reached or missed, without one it is for information.

    `measured` is NaN where nothing could be measured, and `note` says why; a bound is missed then.
    """

    what: str
    measured: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    section: str = ""
    note: str = ""

    @property
    def asked(self) -> str:
        """The bound in words; empty without one."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{w} {_figure(b, self.unit)}" for w, b in bounds if b is not None)

    @property
    def reached(self) -> bool | None:
        """Whether every bound holds; None without one."""
        if self.at_least is None and self.at_most is None:
            return None
        low = self.at_least is None or self.measured >= self.at_least
        return low and (self.at_most is None or self.measured <= self.at_most)

    @property
    def verdict(self) -> str:
        """`reached`, `missed`, or nothing without a bound."""
        return {True: "reached", False: "missed", None: ""}[self.reached]

    @property
    def shown(self) -> str:
        """The measured figure with its unit."""
        return "not measured" if math.isnan(self.measured) else _figure(self.measured, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no NaN and no infinity; what is empty is left out."""
        measured = self.measured if math.isfinite(self.measured) else None
        said = {k: v for k, v in asdict(self).items() if v not in ("", None)}
        return {**said, "measured": measured}


@dataclass(frozen=True)
class Machine:
    """What the figures depend on."""

    cpu: str
    instruction_sets: tuple[str, ...]
    cores: int
    memory_bytes: int


@dataclass(frozen=True)
class Measured:
    """When a section was measured and by which code, where that is not all at once."""

    section: str
    commit: str
    dirty: bool
    date: str

    @classmethod
    def now(cls, section: str) -> Measured:
        """By this tree."""
        return cls(section, *code(), date=_now())

    @property
    def code(self) -> tuple[str, bool]:
        """The commit, and whether files differed from it."""
        return self.commit, self.dirty


@dataclass(frozen=True)
class Result:
    """The rows of one run of one script, with all that it takes to run it again.

    `pieces` are the sections that were measured at times of their own; commit and date are the last
    one's then.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    machine: Machine
    versions: Mapping[str, str]
    commit: str
    dirty: bool
    date: str
    command: str
    pieces: tuple[Measured, ...] = ()
    version: int = field(default=VERSION)

    @property
    def missed(self) -> tuple[Row, ...]:
        """The rows whose bound does not hold."""
        return tuple(row for row in self.rows if row.reached is False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `pieces` only where there are some."""
        data = {**asdict(self), "rows": [row.to_dict() for row in self.rows]}
        if not data["pieces"]:
            del data["pieces"]
        return data

    def to_markdown(self) -> str:
        """A page: machine, versions, then one table for each section in order of appearance."""
        lines = [f"# {self.title}", "", self.origin()]
        for section in dict.fromkeys(row.section for row in self.rows):
            lines += ["", f"## {section}", ""] if section else [""]
            lines += table([row for row in self.rows if row.section == section])
        if self.pieces:
            lines += ["", "## When each part was measured", "", "| part | measured |", "|---|---|"]
            for piece in self.pieces:
                lines.append(f"| {piece.section} | {piece.date}, {_code(*piece.code)} |")
        return "\n".join(lines) + "\n"

    def origin(self) -> str:
        """Where the figures come from, and how many of those with a bound were reached."""
        m = self.machine
        lines = [f"`{self.command}`, {self._when()}", ""]
        lines.append(f"- {m.cpu}, {m.cores} cores, {m.memory_bytes / 2**30:.0f} GiB")
        lines.append(f"- {' '.join(m.instruction_sets)}")
        lines.append("- " + ", ".join(f"{name} {v}" for name, v in self.versions.items()))
        bounded = [row for row in self.rows if row.reached is not None]
        lines += ["", f"{len(bounded) - len(self.missed)} of {len(bounded)} figures reached."]
        return "\n".join(lines)

    def _when(self) -> str:
        commits = {piece.commit for piece in self.pieces}
        if len(self.pieces) < 2:
            return f"{self.date}, {_code(self.commit, self.dirty)}"
        first = min(piece.date for piece in self.pieces)
        words = f"in pieces from {first} to {self.date}, "
        if len(commits) == 1:
            return words + _code(self.commit, self.dirty)
        return words + f"{len(commits)} commits, the last {_code(self.commit, self.dirty)}"


def result(
    name: str,
    title: str,
    rows: Sequence[Row],
    arguments: Sequence[str] = (),
    script: str = "",
    *,
    speeds: bool = False,
) -> Result:
    """`rows` with what this machine, environment and tree say of themselves.

    `arguments` are those of `python -m benchmarks.NAME`, or of `script` where that is another one.
    With `speeds` the name and the title say the kind of this processor.
    """
    commit, dirty = code()
    here = machine()
    suffix, kind = _kind(here) if speeds else ("", "")
    return Result(
        name=name + suffix,
        title=title + kind,
        rows=tuple(rows),
        machine=here,
        versions=versions(),
        commit=commit,
        dirty=dirty,
        date=_now(),
        command=" ".join(["python -m", f"benchmarks.{script or name}", *arguments]),
    )


def write(outcome: Result, folder: Path = FOLDER) -> Path:
    """`NAME.json` in `folder`, in place of an older one; each row is a line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{outcome.name}.json"
    data = outcome.to_dict()
    lists = {name: data.pop(name) for name in ("pieces", "rows") if name in data}
    head = json.dumps(data, indent=1).removesuffix("\n}")
    for name, entries in lists.items():
        lines = [json.dumps(entry, allow_nan=False, ensure_ascii=False) for entry in entries]
        head += f',\n "{name}": [\n  ' + ",\n  ".join(lines) + "\n ]"
    path.write_text(head + "\n}\n", "utf-8")
    return path


def read(path: Path) -> Result:
    """What `write` left."""
    data = json.loads(path.read_text("utf-8"))
    rows = tuple(map(row, data["rows"]))
    pieces = tuple(Measured(**piece) for piece in data.get("pieces", ()))
    sets = tuple(data["machine"]["instruction_sets"])
    machine = Machine(**{**data["machine"], "instruction_sets": sets})
    return Result(**{**data, "rows": rows, "pieces": pieces, "machine": machine})


def row(data: Mapping[str, Any]) -> Row:
    """The inverse of `Row.to_dict`."""
    measured = math.nan if data["measured"] is None else data["measured"]
    return Row(**{**data, "measured": measured})


def publish(outcome: Result, quick: bool) -> None:
    """Prints the page and keeps it, unless the run was a quick one, whose figures are rough."""
    print(outcome.to_markdown())
    if quick:
        print("A quick run: nothing is written to benchmarks/results.")
    else:
        print(f"wrote {write(outcome).relative_to(REPOSITORY)}")
    for row in outcome.missed:
        print(f"missed: {row.section}: {row.what}: {row.shown}, asked {row.asked}")


def say(text: str) -> None:
    """What a script is about to do, on stderr: some steps take a minute."""
    print(f"... {text}", file=sys.stderr, flush=True)


def machine() -> Machine:
    """The machine this process runs on."""
    from octavo.core.kernels import cpu_features

    return Machine(
        cpu=_proc("cpuinfo", "model name") or platform.machine(),
        instruction_sets=tuple(cpu_features()),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def versions() -> dict[str, str]:
    """Python and the packages that the figures depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _code(commit: str, dirty: bool) -> str:
    return f"commit {commit[:12]}" + (" with uncommitted changes" if dirty else "")


def _kind(here: Machine) -> tuple[str, str]:
    """What the name and the title of a result say of the processor: nothing with AMX."""
    if "amxint8" in here.instruction_sets:
        return "", ""
    if "avx512vnni" in here.instruction_sets:
        return "_vnni", ", AVX512-VNNI without AMX"
    return "_other", ", a processor without AVX512-VNNI"


def _proc(file: str, key: str) -> str:
    for line in Path("/proc", file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def code() -> tuple[str, bool]:
    """The tree's commit and whether files differ from it, results apart: a run changes those."""
    try:
        commit = _git("rev-parse", "HEAD")
        return commit, bool(_git("status", "--porcelain", "--", ".", ":!benchmarks/results"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of a Markdown table; what was missed is bold."""
    lines = ["| what | asked | measured | | note |", "|---|---|--:|---|---|"]
    for row in rows:
        verdict = f"**{row.verdict}**" if row.reached is False else row.verdict
        cells = (row.what, row.asked, row.shown, verdict, row.note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _figure(value: float, unit: str) -> str:
    # Four digits: with fewer, a figure just below its bound would look as if it reached it.
    text = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.json")):
        print(read(FOLDER / f"{name}.json").to_markdown())
