"""Latency of all-MiniLM-L6 files, interleaved, in processes of their own.

A child loads neither PyTorch nor anything else that might hold a core, and can give up AMX
before ONNX Runtime is loaded. `python -m benchmarks.latency` is what `measure` starts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.results import REPOSITORY
from benchmarks.timing import Comparison, interleave, pooled, without_amx

Shape = tuple[int, int]
SHAPES: tuple[Shape, ...] = ((1, 8), (1, 32), (1, 128), (8, 128))


def label(shape: Shape) -> str:
    """`8x128`: batch and length."""
    return "x".join(map(str, shape))


def measure(
    files: Mapping[str, Path],
    shapes: Sequence[Shape] = SHAPES,
    *,
    threads: int = 1,
    processes: int = 7,
    rounds: int = 11,
    amx: bool = True,
) -> dict[Shape, Comparison]:
    """One comparison of all `files` for each batch x length, pooled over child processes.

    The children open the files in different orders.
    """
    command = [sys.executable, "-m", "benchmarks.latency", f"--threads={threads}"]
    command += [f"--rounds={rounds}", "--shapes", *map(label, shapes)]
    command += [] if amx else ["--without-amx"]
    named = [f"{name}={path}" for name, path in files.items()]
    found = []
    for i in range(processes):
        first = i % len(named)
        turned = ["--files", *named[first:], *named[:first]]
        done = subprocess.run(
            [*command, *turned], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
        )
        found.append(json.loads(done.stdout))
    return {
        shape: pooled([Comparison.from_dict(part[label(shape)]) for part in found])
        for shape in shapes
    }


def compare(files: Mapping[str, Path], shape: Shape, threads: int, rounds: int) -> Comparison:
    """The same, in this process, for one shape of input, all of it real tokens."""
    import numpy as np

    from benchmarks.zoo.sessions import open_session

    random = np.random.RandomState(0)
    feed = {
        "input_ids": random.randint(1000, 30000, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }
    sessions = {name: open_session(path, threads) for name, path in files.items()}
    calls = {name: lambda s=session: s.run(None, feed) for name, session in sessions.items()}
    found = interleave(calls, rounds=rounds)
    found.check_threads(threads)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the comparisons as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--without-amx", action="store_true")
    parser.add_argument("--shapes", nargs="+", default=[label(s) for s in SHAPES])
    parser.add_argument("--files", nargs="+", required=True, metavar="NAME=PATH")
    options = parser.parse_args(argv)
    if options.without_amx:
        without_amx()
    files = {name: Path(path) for name, _, path in (f.partition("=") for f in options.files)}
    found = {}
    for text in options.shapes:
        batch, length = map(int, text.split("x"))
        compared = compare(files, (batch, length), options.threads, options.rounds)
        found[text] = compared.to_dict()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
