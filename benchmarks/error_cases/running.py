"""Runs a case: as a person does, in a process of its own, or in this one, which is faster."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.error_cases import folder as folders
from benchmarks.error_cases.case import Case, Outcome
from benchmarks.results import REPOSITORY

_SECONDS = 600.0

# What the installed script `octavo` does, of this very Python. `without torch octavo ..` is the
# command line where PyTorch is not installed.
_SHELL = f"""
python() {{
    {shlex.quote(sys.executable)} "$@"
}}
octavo() {{
    python -m octavo "$@"
}}
without() {{
    python -c "
import sys
sys.modules['$1'] = None
from octavo.cli import main
main(sys.argv[2:])
" "${{@:2}}"
}}
"""
_MODULES = {
    "octavo.onnx.": "import octavo.onnx",
    "octavo.torch.": "import octavo.torch",
    "octavo.tune.": "import octavo.tune",
    "octavo.measure.": "import octavo.measure",
    "octavo.recipe.": "import octavo.recipe",
    "kernels.": "from octavo.core import kernels",
    "old_runtime.": "from benchmarks.error_cases import old_runtime",
    "ort.": "import onnxruntime as ort",
    "torch.": "import torch",
    "np.": "import numpy as np",
    "models.": "import models",
}
"""What a source's names are imported by."""

_PUBLIC = ("builtins", "octavo.errors", "onnxruntime.capi.onnxruntime_pybind11_state")


def apart(case: Case, template: Path, place: Path) -> Outcome:
    """The outcome in a process of its own; Python source runs in this one."""
    if not case.is_command:
        return here(case, template, place)
    with folders.filled(template, place, case) as folder, _disk(case, folder) as mounted:
        if not mounted:
            return Outcome(case, skipped="a small disk can be mounted by root only")
        before = folders.snapshot(folder)
        with subprocess.Popen(
            # SIGINT may be ignored here, as it is in the background; a terminal's child has it.
            ["/usr/bin/env", "--default-signal=INT", "bash", "-c", f"{_SHELL}{case.run}"],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        ) as process:
            if case.interrupt_at or case.interrupt_after:
                _interrupt(process, folder, case)
            out, message = process.communicate(timeout=_SECONDS)
        return _outcome(case, folder, before, process.returncode, message, out)


def here(case: Case, template: Path, place: Path) -> Outcome:
    """The outcome in this process, which is as it was afterwards."""
    with folders.filled(template, place, case) as folder, _within(folder):
        before = folders.snapshot(folder)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = _command(case.run) if case.is_command else _call(case.run)
        return _outcome(case, folder, before, ended, err.getvalue(), out.getvalue())


def _outcome(
    case: Case, folder: Path, before: dict[str, str], ended: int | str, message: str, out: str
) -> Outcome:
    left, changed = folders.differences(before, folders.snapshot(folder), case.keeps)
    said = _portable(message.strip(), folder)
    return Outcome(case, ended, said, _portable(out.strip(), folder), left, changed)


def _portable(text: str, folder: Path) -> str:
    """`text` without the places of this machine."""
    text = text.replace(str(folder), "FOLDER").replace(sys.executable, "python")
    return re.sub(r"/[^\s\"':]*/(?=octavo/|site-packages/|lib/python)", ".../", text)


def _command(line: str) -> int:
    from octavo.cli import main

    try:
        main(shlex.split(line)[1:])
    except SystemExit as ended:
        return int(ended.code or 0)
    raise AssertionError("the command line ends with SystemExit")


def _call(source: str) -> str:
    """The name of the exception, whose message goes to stderr."""
    names = [line for name, line in _MODULES.items() if re.search(rf"(?<![\w.]){name}", source)]
    try:
        exec("\n".join([*names, source]), {})
    except Exception as error:  # noqa: BLE001 - what it is, is the outcome
        print(error, file=sys.stderr)
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ in _PUBLIC)
    return "no error"


def _environment() -> dict[str, str]:
    dropped = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "OCTAVO_ISA")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    # Modules of the folder are imported: what Python caches of them is not what Octavo leaves.
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(REPOSITORY)}


def _interrupt(process: subprocess.Popen[str], folder: Path, case: Case) -> None:
    """SIGINT for the whole group, as from a terminal, once a file is there or after a while."""
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() < begun + _SECONDS:
        if case.interrupt_at and any(folder.glob(case.interrupt_at)):
            break
        if case.interrupt_after and time.monotonic() > begun + case.interrupt_after:
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


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    """`folder` is the current one; modules that are found in it are forgotten at the end."""
    was, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(was)
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
