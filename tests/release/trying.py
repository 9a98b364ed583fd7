"""Tries a wheel where a user would: in a fresh environment, without a compiler."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.native.building import output, run

HERE = Path(__file__).parent
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:")
FIRST_CALL = """
import time
import numpy as np
x = np.ones((4, 64), np.float32)
start = time.process_time()
from octavo.core.linear import Linear
Linear.from_float(np.ones((64, 64), np.float32), np.ones(64, np.float32))(x)
print(1e3 * (time.process_time() - start))
"""
LONGEST_FIRST_CALL = 50.0  # milliseconds of processor time beyond numpy's import


def clean_environment(path: Sequence[Path] = ()) -> dict[str, str]:
    """Ours without what points into another environment or changes what Octavo or Python does.

    With `path`, programs are found in those folders and nowhere else.
    """
    ours = ("OCTAVO_", "PYTHON", "VIRTUAL_ENV", "LD_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    if "OCTAVO_CACHE" in os.environ:
        kept["OCTAVO_CACHE"] = os.environ["OCTAVO_CACHE"]
    return kept | ({"PATH": os.pathsep.join(map(str, path))} if path else {})


def fresh(home: Path, python: Path, wheel: Path) -> Path:
    """The Python of a new environment that holds `wheel` and what it needs, all from wheels."""
    shutil.rmtree(home, ignore_errors=True)
    run(python, "-m", "venv", home, env=clean_environment())
    made = home / "bin" / "python"
    run(made, *PIP, wheel, env=clean_environment([made.parent]))
    return made


def use(
    python: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str],
    *,
    compiler: bool = False,
) -> None:
    """Quantizes and runs a small model, whose files stay in `folder`, with this Python.

    Fails where a compiler is found, unless there may be one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    without = () if compiler else ("--no-compiler",)
    run(*python, HERE / "small_model.py", folder, *without, cwd=folder, env=environment)


def first_call(python: Path, folder: Path) -> float:
    """Milliseconds of processor time from numpy's import to a result, the least of five."""
    environment = clean_environment([python.parent])
    command = (python, "-c", FIRST_CALL)
    return min(float(output(*command, cwd=folder, env=environment)) for _ in range(5))
