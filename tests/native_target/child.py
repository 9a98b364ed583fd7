"""Code in a Python of its own, so that a crash is seen and not died of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_child(script: str, *arguments: str, timeout: float = 300) -> list[str]:
    """The lines that `script` prints, with `arguments` as sys.argv[1:].

    The test fails where the process does not come to its end: by a signal, or by an exception that
    the script lets out.
    """
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()
