"""Locks on files and folders, and folders synced: on every system but Windows.

Windows opens no folder as a file, and its locks keep others from reading too. There nothing is
locked, and what a killed process left behind stays until somebody removes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ModuleNotFoundError:
    fcntl = None


def available() -> bool:
    """Tell whether this system locks."""
    return fcntl is not None


def open_folder(folder: Path, follow: bool = True) -> int:
    """Open a folder to lock or sync it; raises OSError, for a link too where `follow` is false."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))


def lock(descriptor: int, wait: bool) -> None:
    """Locks for this process alone, until the descriptor is closed.

    Raises BlockingIOError where another process has it and `wait` is false, OSError where the file
    system has no locks.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def sync_folder(folder: Path) -> None:
    """Names of new files in it are on disk when this returns; raises OSError."""
    if fcntl is None:
        return
    descriptor = open_folder(folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
