"""No kernel touches memory beyond its arrays: see `tests.core.bounds`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from octavo.core import kernels

ROOT = Path(__file__).parents[2]
EVERY = 1 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 23
"""`make test-all` runs all cases; 23 has no factor in common with how many follow each other."""


def run(isa: str, every: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.core.bounds", isa, str(every)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600 if every > 1 else 3600,
        check=False,
    )


def test_kernels_stay_within_their_arrays(isa: str) -> None:
    done = run(isa, EVERY)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{isa}, {last} ended with {done.returncode}: {done.stderr}"
    counts = dict(re.findall(r"(?m)^(\w+): (\d+) cases$", done.stdout))
    assert len(counts) == 9
    for family, count in counts.items():
        assert int(count) > (14 if family == "block_kernels" else 30) // EVERY, family


def test_a_byte_too_far_is_noticed() -> None:
    done = run(kernels.isas()[0], 0)
    assert done.returncode != 0
    assert done.stdout == "on purpose\n", done.stderr
