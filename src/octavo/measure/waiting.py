"""How long this process waits for processors that other programs hold."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SHARE = 0.02
"""Of the time that a run takes, of each processor that it keeps: a longer wait leaves it out."""

SLICE = 0.004
"""Seconds of one wait, where the system counts waits and does not time them."""

_TASKS = Path("/proc/self/task")


# docs/notes/tuning.md: "Runs that waited are left out"
def waited() -> float:
    """Return the seconds that this process's threads have waited for a processor, all together."""
    if not (_TASKS / str(os.getpid()) / "schedstat").exists():
        return _switched() * SLICE
    total = 0
    for task in _TASKS.iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            total += int((task / "schedstat").read_bytes().split()[1])
    return total / 1e9


def _switched() -> int:
    """Count how often a thread of this process lost its processor."""
    try:
        import resource  # not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
