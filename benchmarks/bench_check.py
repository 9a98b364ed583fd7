"""Whether `octavo bench` tells a model from a copy with 3% more work, and not from itself.

`python -m benchmarks.bench_check [--quick] [--threads N]`. Ten runs each of the command as a user
has it, in processes of their own; at its default of ONNX Runtime's number of threads, and with one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import results, sections
from benchmarks.results import REPOSITORY, Row, say

RUNS = 10
RIGHT = 9
LAYERS, PLANTED = 33, 1  # 3% more
WIDTH, ROWS = 256, 16
SHAPE = f"x={ROWS}x{WIDTH}"
COMMAND = "from octavo.cli import main; main()"


def write_model(path: Path, layers: int) -> Path:
    """`layers` times MatMul and Relu, x [m, WIDTH]; the first weights are the same in each."""
    import onnx

    from benchmarks.relu_chain import mlp

    onnx.save(mlp(layers, WIDTH), path)
    return path


def bench(a: Path, b: Path, threads: int | None) -> dict[str, Any]:
    """The one row that the command gives. Raises subprocess.CalledProcessError."""
    more = [] if threads is None else ["--threads", str(threads)]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "bench", str(a), str(b), "--shape", SHAPE, "--json", *more],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    return {**found["rows"][0], "took": found["seconds"]}


def rows(folder: Path, threads: int | None, runs: int, section: str) -> Iterator[Row]:
    """Of the model against itself, and against the one with more work; in turns, as they drift."""
    plain = write_model(folder / "model.onnx", LAYERS)
    slower = write_model(folder / "slower.onnx", LAYERS + PLANTED)
    same, planted = [], []
    for i in range(runs):
        say(f"{section}: run {i + 1} of {runs}")
        same.append(bench(plain, plain, threads))
        planted.append(bench(plain, slower, threads))
    share = RIGHT / RUNS
    quiet = sum(one["verdict"] not in ("slower", "faster") for one in same)
    found = sum(one["verdict"] == "slower" for one in planted)
    yield Row(
        "the model against itself: runs without a false alarm",
        quiet,
        f"of {runs}",
        at_least=share * runs,
        section=section,
        note=_note(same),
    )
    yield Row(
        f"{PLANTED / LAYERS:.1%} more work planted: runs in which it is called slower",
        found,
        f"of {runs}",
        at_least=share * runs,
        section=section,
        note=_note(planted),
    )


def _note(found: Sequence[dict[str, Any]]) -> str:
    """All ratios, how wide the intervals are, and the time a run takes."""
    ratios = ", ".join(f"{one['ratio']:.3f}" for one in found)
    widest = max((one["high"] - one["low"]) / 2 for one in found)
    longest = max(one["took"] for one in found)
    noisy = sum(one["verdict"] == "noisy" for one in found)
    return (
        f"ratios {ratios}; intervals up to ±{widest:.1%}; too noisy to tell: {noisy}; "
        f"up to {longest:.0f} s a run"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every figure is reached."""
    parser = argparse.ArgumentParser(description="Checks what octavo bench says.")
    parser.add_argument("--quick", action="store_true", help="two runs each; nothing is written")
    parser.add_argument("--threads", type=int, help="only this number")
    options = parser.parse_args(argv)
    runs = 2 if options.quick else RUNS
    counts = [options.threads] if options.threads else [None, 1]
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as name:
        cases = {}
        for count in counts:
            section = f"threads: {count or 'as ONNX Runtime chooses'}"
            cases[section] = partial(rows, Path(name), count, runs, section)
        found = sections.every(cases)
    arguments = sys.argv[1:] if argv is None else list(argv)
    title = "octavo bench: false alarms, and a planted slowdown"
    outcome = results.result("bench", title, found, arguments, script="bench_check")
    results.publish(outcome, options.quick)
    return 1 if outcome.missed else 0


if __name__ == "__main__":
    sys.exit(main())
