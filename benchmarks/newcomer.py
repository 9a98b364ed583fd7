"""How long a newcomer takes from a fresh clone to a verified int8 all-MiniLM-L6 with its report.

The commands are those of README.md, section "Try it": all of them, in order, and no other. They run
in a clone in a temporary folder, in one bare shell: a home folder of its own, nothing in pip's
cache, and of programs python3 and what the system has. At the end the files are looked at.

    python -m benchmarks.newcomer           writes benchmarks/results/newcomer.json and .md
    python -m benchmarks.newcomer --quick   pip may use its cache; writes no result
"""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any

from benchmarks import results
from benchmarks.results import REPOSITORY, Row

SECTION = "Try it"
FLOAT, INT8, PAGE = "model.onnx", "model.int8.onnx", "report.html"
FILES = (FLOAT, INT8, PAGE)
AT_MOST = 300.0
_PATH = "/usr/local/bin:/usr/bin:/bin"
# How this machine reaches the package registry.
_NETWORK = re.compile(r"pip_.*|ssl_cert_.*|requests_ca_bundle|curl_ca_bundle|.*_proxy", re.I)
_LAST_LINES = 30

Run = Callable[[str], float]


def commands(readme: str, section: str = SECTION) -> list[str]:
    """The commands of a section of `readme`: what follows `$ ` in its console blocks.

    Raises ValueError where there are none, or where the section has code of another kind, which
    a reader might take for a step.
    """
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", found[1], re.M | re.S) if found else []
    kinds = {kind for kind, _ in blocks}
    if kinds != {"console"}:
        raise ValueError(f"section {section!r} has code blocks {sorted(kinds)}, not console alone")
    lines = "\n".join(text.replace("\\\n", "") for _, text in blocks).splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")]


@contextlib.contextmanager
def shell(folder: Path, environment: Mapping[str, str], log: IO[str]) -> Iterator[Run]:
    """A function that runs a command in one shell, as if typed, and gives the seconds it took.

    What commands print goes to `log`. The function raises RuntimeError for one that fails.
    """
    answers, theirs = os.pipe()
    with (
        subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(theirs,),
            text=True,
        ) as process,
        os.fdopen(answers) as statuses,
    ):
        os.close(theirs)
        typed = process.stdin
        assert typed is not None

        def run(command: str) -> float:
            start = perf_counter()
            # In braces, which are no shell of their own: it may change folder or environment.
            typed.write(f"{{ {command}\n}} </dev/null\necho $? >&{theirs}\n")
            typed.flush()
            status = statuses.readline().strip()
            took = perf_counter() - start
            if status != "0":
                raise RuntimeError(f"`{command}` failed ({status or 'it ended the shell'})")
            return took

        yield run
        typed.close()


def bare(home: Path, caches: bool) -> dict[str, str]:
    """An environment with python3 and the system's programs, `home`, and the way to the network."""
    programs = home / "bin"
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3").resolve())
    network = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
    fresh = {"HOME": str(home), "PATH": f"{programs}:{_PATH}", "LANG": "C.UTF-8"}
    pip = (
        {"PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip")}
        if caches
        else {"PIP_NO_CACHE_DIR": "1"}
    )
    return {**network, **fresh, **pip}


@dataclass(frozen=True)
class Outcome:
    """What the newcomer has at the end: the sizes of the files, and what the page says."""

    bytes: Mapping[str, int]
    sentence: str
    error: float
    max_error: float


def outcome(folder: Path) -> Outcome:
    """Of the files in `folder`.

    Raises RuntimeError if one is missing, the page has no verdict, or the verification in the data
    of the page did not pass.
    """
    for name in FILES:
        if not (folder / name).is_file():
            raise RuntimeError(f"there is no {name} at the end")
    page = (folder / PAGE).read_text(encoding="utf-8")
    sentence = re.search(r'<p class="verdict">([^<]+)</p>', page)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    if sentence is None or data is None:
        raise RuntimeError(f"{PAGE} has no {'verdict' if sentence is None else 'data'}")
    checked = _verification(json.loads(data[1]))
    if checked.get("status") != "passed":
        raise RuntimeError(f"{PAGE} says of the verification: {checked}")
    return Outcome(
        bytes={name: (folder / name).stat().st_size for name in FILES},
        sentence=html.unescape(sentence[1].strip()),
        error=checked["error"],
        max_error=checked["max_error"],
    )


def _verification(data: Any) -> dict[str, Any]:
    """The report's verification, wherever in the page's data the report is."""
    if isinstance(data, dict):
        if isinstance(data.get("verification"), dict):
            return dict(data["verification"])
        for value in data.values():
            if found := _verification(value):
                return found
    return {}


def walk(folder: Path, log: IO[str], caches: bool) -> tuple[list[Row], Outcome]:
    """Clones into `folder` and does what README says. Raises RuntimeError where a step fails."""
    clone = folder / "octavo"
    rows = []
    with shell(folder, bare(folder / "home", caches), log) as run:
        steps = [f"git clone --quiet {REPOSITORY} {clone}", f"cd {clone}"]
        taken = [run(step) for step in steps]
        rows.append(Row("clone", taken[0], "s", section="Steps"))
        for command in commands((clone / "README.md").read_text(encoding="utf-8")):
            results.say(f"$ {command}")
            rows.append(Row(f"`{command}`", run(command), "s", section="Steps"))
    return rows, outcome(clone)


def report(steps: Sequence[Row], found: Outcome) -> list[Row]:
    """The whole, what came of it, then the steps."""
    total = sum(row.measured for row in steps)
    what = "from a fresh clone to a verified int8 all-MiniLM-L6 with its report"
    return [
        Row(what, total, "s", at_most=AT_MOST, note=found.sentence),
        Row("error, as the report has it", found.error, at_most=found.max_error),
        *(Row(name, size / 1e6, "MB") for name, size in found.bytes.items()),
        *steps,
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.newcomer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="with pip's cache; writes no result")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="octavo-newcomer-") as name:
        log = Path(name) / "log.txt"
        try:
            with log.open("w") as file:
                steps, found = walk(Path(name), file, caches=options.quick)
        except RuntimeError as error:
            last = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            print(*last, f"error: {error}", sep="\n", file=sys.stderr)
            return 1
    title = "A newcomer's first minutes"
    rows = report(steps, found)
    results.publish(results.result("newcomer", title, rows, arguments), options.quick)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
