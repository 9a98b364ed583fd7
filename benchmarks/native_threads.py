"""One session of target native called from many threads: every result is to be the same bits.

`python -m benchmarks.native_threads FILE CALLS NPZ ...` does that in a process of its own and
prints what it saw as JSON: `concurrent` starts it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import children, latency, native_rnn, variants
from benchmarks.results import Row, say
from benchmarks.variants import NATIVE
from benchmarks.zoo import fashion_mnist, minilm, nano_ocr
from benchmarks.zoo.sessions import Array, Feed, Session, open_session

THREADS = 8
CALLS, FEWER = 10_000, 1_000
SHAPES = ((1, 1), (1, 8), (2, 5), (1, 17), (3, 9), (1, 32), (4, 16))
RNN_SHAPES = ((1, 1), (7, 1), (50, 1), (5, 3), (20, 16))
IMAGES = (1, 2, 5)
SECTION = f"Target native: {THREADS} threads calling one session"


@dataclass(frozen=True)
class Seen:
    """Of one process: calls, and those with a result that is not the single-threaded one."""

    calls: int
    different: int


def concurrent(path: Path, feeds: Sequence[Feed], calls: int) -> Seen:
    """What a child sees that calls the model at `path` with all `feeds` from all threads.

    Raises subprocess.CalledProcessError.
    """
    with tempfile.TemporaryDirectory(prefix="octavo-feeds-") as name:
        files = latency.write_feeds({str(i): feed for i, feed in enumerate(feeds)}, Path(name))
        given = [str(path), str(calls), *map(str, files.values())]
        return Seen(**children.last_line("benchmarks.native_threads", *given))


def rows(folder: Path, quick: bool) -> Iterator[Row]:
    """10,000 calls of all-MiniLM-L6, and fewer of models with the other operators."""
    for name, (model, feeds) in _models(folder).items():
        calls = FEWER if quick or name != "all-MiniLM-L6" else CALLS
        say(f"{SECTION}: {name}")
        path, _ = variants.quantized(NATIVE, model, folder)
        seen = concurrent(path, feeds, calls)
        yield Row(
            f"{name}: results that differ from the single-threaded ones in a bit",
            seen.different,
            f"of {seen.calls:,}",
            at_most=0,
            section=SECTION,
            note=f"{len(feeds)} shapes",
        )


def _models(folder: Path) -> Mapping[str, tuple[Path, list[Feed]]]:
    rnn = [native_rnn.feed(*shape) for shape in RNN_SHAPES]
    return {
        "all-MiniLM-L6": (minilm.onnx_path(), [latency.tokens(shape) for shape in SHAPES]),
        "LSTM": (native_rnn.model("LSTM", folder), rnn),
        "GRU": (native_rnn.model("GRU", folder), rnn),
        "nano-ocr": (
            nano_ocr.onnx_path(),
            [{"images": nano_ocr.images(count).numpy()} for count in IMAGES],
        ),
        "Fashion-MNIST CNN": (
            fashion_mnist.onnx_path(),
            [{"images": fashion_mnist.images()[:count]} for count in IMAGES],
        ),
    }


def different(session: Session, feeds: Sequence[Feed], wanted: Sequence[Sequence[bytes]]) -> int:
    """Calls from one thread, once with each feed, whose results are not `wanted`."""
    return sum(_bits(session.run(None, f)) != w for f, w in zip(feeds, wanted, strict=True))


def _bits(outputs: Sequence[Array]) -> list[bytes]:
    return [np.ascontiguousarray(output).tobytes() for output in outputs]


def main(argv: Sequence[str]) -> int:
    """Prints a `Seen` as JSON. What is expected comes from a session with one thread of its own."""
    path, calls, feeds = Path(argv[0]), int(argv[1]), [dict(np.load(file)) for file in argv[2:]]
    alone = open_session(path)
    wanted = [_bits(alone.run(None, feed)) for feed in feeds]
    session = open_session(path, len(os.sched_getaffinity(0)))
    each = calls // THREADS

    def work(thread: int) -> int:
        """Starts at another feed than its neighbours."""
        order = [(thread + i) % len(feeds) for i in range(each)]
        return different(session, [feeds[i] for i in order], [wanted[i] for i in order])

    with ThreadPoolExecutor(THREADS) as pool:
        found = sum(pool.map(work, range(THREADS)))
    print(json.dumps(asdict(Seen(each * THREADS, found))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
