"""`make test-all` behind its checks: other compilers, processors and systems, then all tests.

Tests that assert how long something takes come last, one at a time.

    python -m tests.everything [pytest's arguments]

The last lines say what passed, what failed, and what did not run because its tools are missing and
cannot be installed. The exit status is 0 where all passed. What did not run counts as a failure,
unless OCTAVO_ALLOW_MISSING=1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from tests.native.building import NOT_RUN, ROOT, status_without_tools

ELSEWHERE = ("clang", "aarch64", "windows", "macos")
"""Each the module `run` of a package beside this file, and a target of make."""
WORDS = {0: "passed", NOT_RUN: "DID NOT RUN: its tools are missing, see above"}


def timed(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, float]:
    """Exit status and seconds."""
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    return done.returncode, time.monotonic() - start


def summary(results: Mapping[str, tuple[int, float]]) -> str:
    """A line for each, in the order in which they ran."""
    return "\n".join(
        f"{name:8} {seconds:6.0f} s  {WORDS.get(status, f'FAILED ({status})')}"
        for name, (status, seconds) in results.items()
    )


def verdict(statuses: Sequence[int]) -> int:
    """The exit status for all together."""
    if any(status not in WORDS for status in statuses):
        return 1
    return status_without_tools() if NOT_RUN in statuses else 0


def main(arguments: Sequence[str]) -> int:
    # Each says what is missing by its status; whether that is allowed is decided here.
    plain = {key: text for key, text in os.environ.items() if key != "OCTAVO_ALLOW_MISSING"}
    results = {
        name: timed([sys.executable, "-m", f"tests.{name}.run"], plain) for name in ELSEWHERE
    }
    pytest = [sys.executable, "-m", "pytest", *arguments]
    new_examples = os.environ | {"OCTAVO_EXAMPLES": "new"}
    beside = ["-n", "2", "--dist", "loadfile", "-m", "not real_time"]
    results["pytest"] = timed([*pytest, *beside], new_examples)
    results["alone"] = timed([*pytest, "-n", "0", "-m", "real_time"], new_examples)
    print(summary(results))
    return verdict([status for status, _ in results.values()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
