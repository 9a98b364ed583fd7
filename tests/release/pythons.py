"""The Pythons of this machine, by version."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

LIMITED = ("3.12", "3.13", "3.14")
"""Those that one wheel serves, and the first of them that is there makes."""
OLDER = ("3.10", "3.11")
"""Each has a wheel of its own."""
QUESTION = """
import pathlib, sys, sysconfig
headers = pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
print("%d.%d" % sys.version_info[:2], headers, sys.executable)
"""


def find(version: str) -> Path | None:
    """A Python of that version with its headers: of the path, or of pyenv where that has it."""
    for program in (f"python{version}", *_of_pyenv(version)):
        if shutil.which(program) is None:
            continue
        command = [program, "-c", QUESTION]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found, headers, path = (done.stdout.strip().split(" ", 2) + [""] * 3)[:3]
        if done.returncode == 0 and found == version and headers == "True":
            return Path(path)
    return None


def _of_pyenv(version: str) -> list[str]:
    """Newest first. Its `python3.12` says nothing while 3.12 is not switched on."""
    if shutil.which("pyenv") is None:
        return []

    def ask(*words: str) -> list[str]:
        done = subprocess.run(["pyenv", *words], capture_output=True, text=True, check=False)
        return done.stdout.split()

    names = [name for name in ask("versions", "--bare") if name.startswith(f"{version}.")]
    return [f"{folder}/bin/python" for name in reversed(names) for folder in ask("prefix", name)]
