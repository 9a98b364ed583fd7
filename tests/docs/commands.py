"""Blocks of a console: every command is run, or, where it sets up a machine, checked."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from sybil import Example

from octavo.cli import evidence, main
from octavo.onnx import bench as onnx_bench
from octavo.onnx.bench import BenchFile
from octavo.tune import api as tune_api
from octavo.tune import quantization
from tests.cli_support import in_this_process
from tests.docs.shown import differs

ROOT = Path(__file__).parents[2]
WRITES = ("quantize", "tune", "convert-target")


@dataclass(frozen=True)
class Command:
    """What stands behind a `$`, and the output that is shown below it."""

    words: tuple[str, ...]
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.words)


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `printed` is None for what was checked and not run."""

    code: int
    printed: str | None = None


def console(example: Example) -> str | None:
    """Runs a block; says what is wrong with it.

    Every command must succeed, but one that is followed by `$ echo $?`, which shows its code.
    """
    found = list(commands(str(example.parsed)))
    if not found:
        return "no line starts with `$ `: a block of output alone is language text"
    code = 0
    for i, command in enumerate(found):
        if command.words == ("echo", "$?"):
            outcome = Outcome(0, f"{code}\n")
            if command.shown != (str(code),):
                return f"the command before it ended with {code}, not {command.shown}"
            continue
        outcome = perform(command)
        code = outcome.code
        asked = i + 1 < len(found) and found[i + 1].words == ("echo", "$?")
        if bool(code) != asked:
            return f"`{command}` ended with {code}:\n{outcome.printed}"
        if command.shown and (wrong := differs(command.shown, (outcome.printed or "").split("\n"))):
            return f"`{command}`: {wrong}"
    return None


def commands(source: str) -> Iterator[Command]:
    """The commands of a block. A line that ends with a backslash goes on in the next one."""
    for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
        line, _, shown = re.sub(r"\\\n\s*", "", part).partition("\n")
        words = shlex.split(line, comments=True)
        below = tuple(text for text in shown.split("\n") if text.strip())
        while "&&" in words:
            at = words.index("&&")
            yield Command(tuple(words[:at]), ())
            words = words[at + 1 :]
        yield Command(tuple(words), below)


def perform(command: Command) -> Outcome:
    """Runs or checks it in the current folder."""
    program = command.words[0].rpartition("/")[2] if command.words else ""
    if program not in _PROGRAMS:
        known = ", ".join(sorted(_PROGRAMS))
        return Outcome(127, f"nothing here runs {program!r}; known: {known}")
    return _PROGRAMS[program](command.words[1:])


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Measurements that are as short as can be; what they say is of no matter to a document.

    Trials and ONNX Runtime's quantizer run in this process, and the memory of a session is made up,
    where each would start a fresh one: tests of their own do so.
    """
    search = tune_api.tune

    def tune(*arguments: Any, **options: Any) -> Any:
        return search(*arguments, **{**options, "workers": None, "warmup": 1, "rounds": 2})

    with (
        mock.patch.object(tune_api, "tune", tune),
        mock.patch.object(quantization, "tune", tune),
        mock.patch.object(BenchFile, "peak_memory", lambda *_: 50_000_000),
        mock.patch.object(onnx_bench, "call", in_this_process),
        mock.patch.object(evidence, "SECONDS", 0.3),
    ):
        yield


def _octavo(words: Sequence[str]) -> Outcome:
    arguments = list(words)
    # A reader starts without outputs; here an earlier block, or the folder, has them already.
    if words and words[0] in WRITES and not {"--force", "--help"} & {*words}:
        arguments.append("--force")
    if words and words[0] == "bench" and "--help" not in words:
        arguments += ["--seconds", "0.3"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(arguments)
        except SystemExit as ended:
            return Outcome(int(ended.code or 0), out.getvalue())
    return Outcome(0, out.getvalue())


def _pip(words: Sequence[str]) -> Outcome:
    """Extras that are asked for exist, and nothing but this project and known packages is."""
    if not words or words[0] != "install":
        return Outcome(1, "only `pip install` is known")
    extras = _extras()
    for word in words[1:]:
        named = re.fullmatch(r"(\.|octavo|dist/octavo-[\w.*-]+\.whl)(?:\[([\w,]+)\])?", word)
        package = re.split("[<>=]", word)[0]
        if named is None and not word.startswith("-") and package not in _dependencies():
            return Outcome(1, f"{word!r} is neither this project nor named in pyproject.toml")
        for extra in (named[2] or "").split(",") if named else ():
            if extra and extra not in extras:
                return Outcome(1, f"pyproject.toml has no extra {extra!r}")
    return Outcome(0)


def _dependencies() -> list[str]:
    return re.findall(r'"([a-z][\w-]*)(?:\[[\w,]+\])?[><=]', (ROOT / "pyproject.toml").read_text())


def _extras() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    return re.findall(r"^(\w+) = \[", section, re.MULTILINE)


def _make(words: Sequence[str]) -> Outcome:
    """Every target stands in the Makefile."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = [word for word in words if word not in targets]
    return Outcome(2, f"the Makefile has no target {', '.join(unknown)}") if unknown else Outcome(0)


def _python(words: Sequence[str]) -> Outcome:
    """Scripts are run, and what writes a model that is not there. Other benchmarks only exist: they
    take minutes."""
    if words[:1] == ("-m",) and len(words) > 1:
        module, rest = words[1], words[2:]
        if module == "pip":
            return _pip(rest)
        if module == "octavo":
            return _octavo(rest)
        if module == "benchmarks.zoo.minilm_graph" and not Path(rest[0]).exists():
            return _run([sys.executable, *words], PYTHONPATH=str(ROOT))
        if module == "venv" or module.startswith("benchmarks."):
            found = importlib.util.find_spec(module)
            return Outcome(0) if found else Outcome(1, f"no module {module}")
    return _run([sys.executable, *words])


def _copy(words: Sequence[str]) -> Outcome:
    """In a shell, which puts in what `$(..)` prints."""
    return _run(["bash", "-c", " ".join(["cp", *(f'"{word}"' for word in words)])])


def _run(words: Sequence[str], **more: str) -> Outcome:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, **more}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=env)
    return Outcome(done.returncode, done.stdout + done.stderr)


def _tool(name: str) -> Callable[[Sequence[str]], Outcome]:
    return lambda words: _run([shutil.which(name) or name, *words])


def _set_up(words: Sequence[str]) -> Outcome:
    """Brings a reader to where the tests already are."""
    return Outcome(0)


_PROGRAMS: dict[str, Callable[[Sequence[str]], Outcome]] = {
    "octavo": _octavo,
    "pip": _pip,
    "make": _make,
    "python": _python,
    "python3": _python,
    "cat": _tool("cat"),
    "cp": _copy,
    "git": _set_up,
    "cd": _set_up,
    ".": _set_up,
    "source": _set_up,
}
