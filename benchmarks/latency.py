"""Latency of model files, interleaved, in processes of their own.

A child loads neither PyTorch nor anything else that might hold a core, and can give up AMX
before ONNX Runtime is loaded. `python -m benchmarks.latency` is what `compare` starts. Files that
end in `.xml` are OpenVINO's (`openvino_session`), all others ONNX.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import children
from benchmarks.timing import Comparison, idle, interleave, pooled, without_amx

if TYPE_CHECKING:
    from benchmarks.zoo.sessions import Feed

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
    """One comparison of all `files` of all-MiniLM-L6 for each batch x length."""
    feeds = {label(shape): tokens(shape) for shape in shapes}
    found = compare(files, feeds, threads=threads, processes=processes, rounds=rounds, amx=amx)
    return {shape: found[label(shape)] for shape in shapes}


def tokens(shape: Shape) -> Feed:
    """A feed of all-MiniLM-L6, all of it real tokens."""
    import numpy as np

    random = np.random.RandomState(0)
    return {
        "input_ids": random.randint(1000, 30000, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }


def compare(
    files: Mapping[str, Path],
    feeds: Mapping[str, Feed],
    *,
    threads: int = 1,
    processes: int = 7,
    rounds: int = 11,
    amx: bool = True,
) -> dict[str, Comparison]:
    """One comparison of all `files` for each of `feeds`, pooled over child processes.

    The children open the files in different orders. Raises subprocess.CalledProcessError if one
    fails.
    """
    options = [f"--threads={threads}", f"--rounds={rounds}"]
    options += [] if amx else ["--without-amx"]
    named = [f"{name}={path}" for name, path in files.items()]
    found = []
    with tempfile.TemporaryDirectory(prefix="octavo-feeds-") as folder:
        given = [f"{name}={path}" for name, path in write_feeds(feeds, Path(folder)).items()]
        for i in range(processes):
            first = i % len(named)
            turned = ["--feeds", *given, "--files", *named[first:], *named[:first]]
            found.append(children.last_line("benchmarks.latency", *options, *turned))
    return {name: pooled([Comparison.from_dict(part[name]) for part in found]) for name in feeds}


def write_feeds(feeds: Mapping[str, Feed], folder: Path) -> dict[str, Path]:
    """Each as an .npz file in `folder`."""
    import numpy as np

    paths = {name: folder / f"{i}.npz" for i, name in enumerate(feeds)}
    for name, path in paths.items():
        np.savez(path, **dict(feeds[name]))  # type: ignore[arg-type]  # any array may be given
    return paths


def _opened(path: Path, threads: int) -> Callable[[Feed], Callable[[], object]]:
    """What binds a feed to the model at `path`."""
    if path.suffix == ".xml":
        from benchmarks.openvino_session import OpenVinoSession

        return OpenVinoSession(path, threads).bound
    from benchmarks.zoo.sessions import open_session

    session = open_session(path, threads)
    return lambda feed: partial(session.run, None, feed)


def _measured(
    files: Mapping[str, Path], feeds: Mapping[str, Path], threads: int, rounds: int
) -> dict[str, Comparison]:
    """The same, in this process."""
    import numpy as np

    opened = {name: _opened(path, threads) for name, path in files.items()}
    # Each session has a pool of its own, which spins on after a call.
    settle = None if threads == 1 else lambda name: idle()
    found = {}
    for name, path in feeds.items():
        feed = dict(np.load(path))
        calls = {file: bind(feed) for file, bind in opened.items()}
        found[name] = interleave(calls, rounds=rounds, settle=settle)
        found[name].check_threads(threads)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the comparisons as JSON, in the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--without-amx", action="store_true")
    parser.add_argument("--feeds", nargs="+", required=True, metavar="LABEL=NPZ")
    parser.add_argument("--files", nargs="+", required=True, metavar="NAME=PATH")
    options = parser.parse_args(argv)
    if options.without_amx:
        without_amx()
    files, feeds = _paths(options.files), _paths(options.feeds)
    found = _measured(files, feeds, options.threads, options.rounds)
    print(json.dumps({name: comparison.to_dict() for name, comparison in found.items()}))
    return 0


def _paths(given: Sequence[str]) -> dict[str, Path]:
    """Names hold no equals sign."""
    return {name: Path(path) for name, _, path in (text.partition("=") for text in given)}


if __name__ == "__main__":
    raise SystemExit(main())
