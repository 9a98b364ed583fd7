"""No kernel touches memory beyond its arrays: see `tests.core.bounds`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.core import kernels

ROOT = Path(__file__).parents[2]
FAMILIES = (
    *("linear", "integers", "weights", "half", "embedding", "convolution", "recurrent"),
    "attention",
    "block_kernels",
)
LEAST = {"block_kernels": 14}
"""Cases that a family has at least, of all; 30 where it is not named."""
EVERY = 1 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 7
"""`make test-all` runs all cases; 7 has no factor in common with how many follow each other."""


def run(isa: str, family: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.core.bounds", isa, family, str(EVERY)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_stay_within_their_arrays(isa: str, family: str) -> None:
    done = run(isa, family)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{isa}, {last} ended with {done.returncode}: {done.stderr}"
    assert int(last[0].split()[0]) > LEAST.get(family, 30) // EVERY


def test_a_byte_too_far_is_noticed() -> None:
    done = run(kernels.isas()[0], "one_byte_too_far")
    assert done.returncode != 0
    assert done.stdout == "on purpose\n", done.stderr
