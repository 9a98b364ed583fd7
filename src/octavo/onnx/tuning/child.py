"""Runs a function of this package in a fresh Python process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.errors import brief

_CODE = """
import importlib, json, pathlib, sys
module, name, arguments, result = sys.argv[1:]
found = getattr(importlib.import_module(module), name)(**json.loads(arguments))
pathlib.Path(result).write_text(json.dumps(found))
"""


class ChildError(Exception):
    """The process failed; the message is the last that it said."""


def call(function: Callable[..., Any], **arguments: Any) -> Any:
    """What `function`, of a module's top level, returns there; all must be plain data for JSON.

    Whatever the process prints is kept from this one's terminal. Raises ChildError.
    """
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-c", _CODE, function.__module__, function.__name__]
        done = subprocess.run(
            [*command, json.dumps(arguments), str(result)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.curdir for p in sys.path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise ChildError(_reason(done))
        return json.loads(result.read_text(encoding="utf-8"))


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"its process was ended by signal {-done.returncode}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return brief(Exception(lines[-1] if lines else f"exit code {done.returncode}"))
