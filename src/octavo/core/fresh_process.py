"""Runs a function in a fresh Python process, and measures the memory that it takes there."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.errors import ModelError, brief

_CODE = """
import json, pickle, pathlib, sys
sys.path[:] = json.loads(sys.argv[1])
task, answer = map(pathlib.Path, sys.argv[2:])
function, arguments = pickle.loads(task.read_bytes())
answer.write_bytes(pickle.dumps(function(**arguments)))
"""
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class ChildError(Exception):
    """The process failed; the message is the last that it said, whole in `last_line`."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.exit_code = done.returncode
        self.last_line = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        said = brief(Exception(self.last_line or f"exit code {self.exit_code}"))
        ended = f"its process was ended by signal {-self.exit_code}"
        super().__init__(ended if self.exit_code < 0 else said)


def call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call `function`, of a module's top level, in a fresh process; all must be picklable.

    A plain process: one of multiprocessing would run a script that has no `__main__` guard. What
    the process prints is kept from this one's terminal. Raises ChildError.
    """
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        task, answer = Path(folder, "task"), Path(folder, "answer")
        task.write_bytes(pickle.dumps((function, arguments)))
        done = subprocess.run(
            [sys.executable, "-c", _CODE, json.dumps(sys.path), str(task), str(answer)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if not answer.exists():
            raise ChildError(done)
        return pickle.loads(answer.read_bytes())


def require_memory_figures(message: str) -> None:
    """Raise ModelError with `message` where the system does not tell a process's memory."""
    if not _STATUS.is_file():
        raise ModelError(message)


def added_at_peak(action: Callable[[], object]) -> int:
    """Bytes that `action` adds to this process at its peak; mapped files as far as they are read.

    Where the peak so far cannot be forgotten (in some containers), it counts too.
    """
    with contextlib.suppress(OSError):
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    before = _bytes("VmRSS")
    action()
    return max(0, _bytes("VmHWM") - before)


def _bytes(field: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise ModelError(f"{_STATUS} has no {field}")
