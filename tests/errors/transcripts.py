"""Transcripts of errors: what is typed, and every word that Octavo answers.

# a comment
@ r.yaml                      a file with the lines behind | in it
| base: int9
@ e.onnx external(path, 0)    a file that a function of error_files.py writes
! apart                       what is special, see `Case`
$ octavo quantize m.onnx --recipe r.yaml
  error: r.yaml:1: unknown preset 'int9'. ...
  [2]                         the exit code, or the exception's name
>>> octavo.recipe.preset("int9")
...
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import error_files
import onnxruntime

import octavo

REPOSITORY = Path(__file__).parents[2]
SECONDS = 600.0
STDOUT = "(on stdout)"

# What the installed script `octavo` does, of this very Python. `without a,b octavo ..` is the
# command line where these packages are not installed.
SHELL = f"""
python() {{ {shlex.quote(sys.executable)} "$@"; }}
octavo() {{ python -m octavo "$@"; }}
without() {{
    python -c "import sys; sys.modules.update(dict.fromkeys('$1'.split(',')))
from octavo.cli import main
main(sys.argv[2:])" "${{@:2}}"
}}
"""
IMPORTS = {
    **{f"octavo.{n}.": f"import octavo.{n}" for n in ("onnx", "torch", "tune", "measure")},
    "octavo.recipe.": "import octavo.recipe",
    "kernels.": "from octavo.core import kernels",
    "old_runtime.": "import old_runtime",
    "ort.": "import onnxruntime as ort",
    "torch.": "import torch",
    "np.": "import numpy as np",
    "models.": "import models",
}
PUBLIC = ("builtins", "octavo.errors", "onnxruntime.capi.onnxruntime_pybind11_state")
VARIES = {
    r"(?<=this processor runs )[\w, ]+(?= \(of|;)": "ISAS",
    r"(?<=runs here )\w+, on [\w ]+": "SO",
    r"\bin [\d.]+ (s|ms)\b": "in TIME",
    r"(?<=layer\d )\d\.\de-\d+": "E",
    r"\berror \d\.\d+(e-\d+)?": "error E",
    r"/[^\s\"':]*/(?=octavo/|site-packages/|lib/python)": ".../",
    r"/onnxruntime_src/\S+ .*?(?=\S+ failed|ai\.octavo)": "ORT ",
    r"(?m)^  File \"(?!FOLDER).*\n(?:    .*\n)*": "",
    r"(?m)^ *[\^~]+\n": "",
    r"(?<=line )\d+(?=, in )": "N",
    r"(?<=; 7 to )\d+(?= are supported)": "NEWEST",
}
"""What is another word on another machine, runtime or Python."""


@dataclass
class Case:
    """One command or piece of Python, and the answer that is on record.

    `apart`: it takes a process of its own, as what it changes is outside of Octavo. `mount`:
    options of a tmpfs that is mounted at `disk`. `interrupt`: a glob, upon which the process group
    gets SIGINT, or seconds. `keeps`: globs of what may be left behind.
    """

    source: str
    python: bool
    lines: list[str]
    answer: list[str]
    files: dict[str, str | list[str]] = field(default_factory=dict)
    apart: bool = False
    mount: str = ""
    interrupt: str = ""
    keeps: tuple[str, ...] = ()

    @property
    def slow(self) -> bool:
        """Whether it has a process of its own."""
        return self.apart or bool(self.mount or self.interrupt)


def read(path: Path) -> list[Case]:
    """The cases of a transcript; what stands between them belongs to the one that follows."""
    cases, lines, answer = [], [], []
    for line in path.read_text("utf-8").splitlines():
        if re.fullmatch(r"  \[\w+\]", line):
            cases.append(_case(lines, [*answer, line.strip()]))
            lines, answer = [], []
        elif line.startswith("  ") or (answer and not line):
            answer.append(line[2:])
        else:
            lines.append(line)
    return [*cases, *([_case(lines, [])] if any(map(str.strip, lines)) else [])]


def _case(lines: list[str], answer: list[str]) -> Case:
    case, source, last = Case("", False, lines, answer), [], ""
    for line in lines:
        mark, _, rest = line.partition(" ")
        if mark == "@":
            last, _, expression = rest.partition(" ")
            case.files[last] = expression or []
        elif mark == "|":
            case.files[last].append(rest)  # type: ignore[union-attr]
        elif mark == "!":
            for option in shlex.split(rest):
                name, _, value = option.partition("=")
                setattr(case, name, tuple(value.split()) if name == "keeps" else value or True)
        elif mark in ("$", ">>>", "..."):
            case.python = mark != "$"
            source.append(rest)
    case.source = "\n".join(source)
    return case


def write(path: Path, index: int, answer: list[str]) -> None:
    """Puts `answer` in place of what case `index` of a transcript has."""
    text = []
    for i, case in enumerate(read(path)):
        shown = answer if i == index else case.answer
        text += [*case.lines, *(f"  {line}" if line else "" for line in shown)]
    path.write_text("\n".join(text) + "\n", "utf-8")


def run(case: Case, template: Path, place: Path) -> list[str] | None:
    """The answer; None where it cannot be had here, as only root can mount a disk.

    Raises AssertionError where escape codes are shown, or files changed or left behind.
    """
    shutil.copytree(template, place)
    for name, content in case.files.items():
        path = place / name
        path.parent.mkdir(exist_ok=True, parents=True)
        if isinstance(content, str):
            eval(content, {**vars(error_files), "path": path})
        else:
            path.write_text("".join(f"{line}\n" for line in content))
    with _disk(case, place) as mounted:
        if not mounted:
            return None
        before = _digests(place)
        ended, err, out = (_apart if case.slow else _here)(case, place)
        after = _digests(place)
    left = [n for n in after if n not in before and not any(fnmatch(n, g) for g in case.keeps)]
    assert not left, f"left behind: {left}"
    assert not [n for n in before if after.get(n) != before[n]], "files changed"
    assert "\x1b" not in err + out, "escape codes"
    lines = [*_portable(err, place), *([STDOUT] if out.strip() else []), *_portable(out, place)]
    return [*lines, f"[{ended}]"]


def _portable(text: str, folder: Path) -> list[str]:
    """Lines without what is of this machine."""
    text = text.replace(str(folder), "FOLDER").replace(sys.executable, "python")
    text = text.replace(octavo.__version__, "VERSION").replace(onnxruntime.__version__, "VERSION")
    for pattern, word in VARIES.items():
        text = re.sub(pattern, word, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _here(case: Case, folder: Path) -> tuple[int | str, str, str]:
    """In this process, which is as it was afterwards."""
    out, err = io.StringIO(), io.StringIO()
    was, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = _call(case.source) if case.python else _command(case.source)
    finally:
        os.chdir(was)
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
    return ended, err.getvalue(), out.getvalue()


def _command(line: str) -> int:
    from octavo.cli import main

    try:
        main(shlex.split(line)[1:])
    except SystemExit as ended:
        return int(ended.code or 0)
    raise AssertionError("the command line ends with SystemExit")


def _call(source: str) -> str:
    """The name of the exception, whose message goes to stderr."""
    needed = [line for name, line in IMPORTS.items() if re.search(rf"(?<![\w.]){name}", source)]
    try:
        exec("\n".join([*needed, source]), {})
    except Exception as error:  # noqa: BLE001  # what it is, is the answer
        print(error, file=sys.stderr)
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ in PUBLIC)
    return "no_error"


def _apart(case: Case, folder: Path) -> tuple[int | str, str, str]:
    """In a process of its own, as a person has it."""
    dropped = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "OCTAVO_ISA")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    # Modules of the folder are imported: what Python caches of them is not what Octavo leaves.
    environment = {**kept, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        # SIGINT may be ignored here, as it is in the background; a terminal's child has it.
        ["/usr/bin/env", "--default-signal=INT", "bash", "-c", f"{SHELL}{case.source}"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
    ) as process:
        if case.interrupt:
            _interrupt(process, folder, case.interrupt)
        out, err = process.communicate(timeout=SECONDS)
    return process.returncode, err, out


def _interrupt(process: subprocess.Popen[str], folder: Path, when: str) -> None:
    """SIGINT for the whole group, as from a terminal, once a file is there or after a while."""
    begun = time.monotonic()
    after = float(when) if re.fullmatch(r"[\d.]+", when) else SECONDS
    while process.poll() is None and time.monotonic() < begun + after:
        if after == SECONDS and any(folder.glob(when)):
            break
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)


@contextlib.contextmanager
def _disk(case: Case, folder: Path) -> Iterator[bool]:
    """Whether what the case mounts at `disk` is there; True where it mounts nothing."""
    if not case.mount:
        yield True
        return
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", case.mount, "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", str(place)], check=True)
