"""Builds of the C++ core that tests make for themselves, kept under build/."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import steps
from benchmarks.steps import Step, StepError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build"
TOOLS = BUILD / "tools"
_LONG = 40  # characters of a path or a program, which says nothing to who waits


def run(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
    """Ends the program with what the command said, if it fails."""
    output(*command, cwd=cwd, env=env)


def output(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """What the command said, errors and all; ends the program with it, if it fails.

    One that takes longer than two seconds says what it is at.
    """
    words = [Path(command[0]).name, *(str(part) for part in command[1:])]
    label = " ".join(word if len(word) < _LONG else "..." for word in words[:6])
    step = Step(label, command, env, cwd, brief=True)
    try:
        steps.run(step)
    except StepError as error:
        sys.exit(str(error))
    return "".join(step.said)


NOT_RUN = 77
"""The exit status of a script whose tools are missing; autotools' for a test that was skipped."""


def status_without_tools() -> int:
    """NOT_RUN; 0 where OCTAVO_ALLOW_MISSING=1 says that whoever calls knows."""
    return 0 if os.environ.get("OCTAVO_ALLOW_MISSING") == "1" else NOT_RUN


def have_tools(who: str, lost: str, tools: Mapping[str, str]) -> bool:
    """Whether programs are there, whose Debian packages are `tools`: installed by us if need be.

    Where they are not, it says loudly what is `lost`.
    """
    missing = [package for tool, package in tools.items() if not shutil.which(tool)]
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        print(f"{who}: installing {' '.join(missing)}", flush=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-qy", "--no-install-recommends", *missing, env=environment)
        missing = [package for tool, package in tools.items() if not shutil.which(tool)]
    if missing:
        line = "*" * 78
        print(f"{line}\nSKIPPED: {lost}. Needed: apt-get install {' '.join(missing)}\n{line}")
    return not missing


def kept(folder: Path, of: bytes, make: Callable[[Path], None]) -> None:
    """`folder` as `make` filled it from `of`; a run that was stopped leaves nothing half made."""
    stamp = folder.with_name(f"{folder.name}.stamp")
    mark = hashlib.sha256(of).hexdigest()
    if folder.is_dir() and stamp.is_file() and stamp.read_text() == mark:
        return
    start = time.monotonic()
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make(folder)
    stamp.write_text(mark)
    print(f"{folder.relative_to(ROOT)} made in {time.monotonic() - start:.0f} s", flush=True)


def environment_with_tools() -> dict[str, str]:
    """Ours, with CMake, Ninja, nanobind and scikit-build-core of the versions in tools.txt."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
    wanted = HERE / "tools.txt"
    kept(TOOLS, wanted.read_bytes(), lambda to: run(*pip, "--target", to, "-r", wanted))
    return os.environ | {
        "PATH": f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(TOOLS),
        "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "1"),
    }
