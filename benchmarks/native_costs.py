"""What opening a large model of target native costs, beside opening the float one.

`python -m benchmarks.native_costs FILE` opens FILE, runs it once and prints what that took as JSON:
`opened` starts it.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import children, memory, variants
from benchmarks.memory import high_water
from benchmarks.results import Row, say
from benchmarks.variants import FLOAT, NATIVE

WEIGHTS = 64  # of 4096 x 4096: 1.07 GB as int8
SHARE = 1.0


@dataclass(frozen=True)
class Opening:
    """Of one process: seconds to open the model and to run one row first, and bytes at the most.

    `peak` is before the first run; it counts resident pages, those of mapped files included.
    """

    seconds: float
    first: float
    peak: int


def opened(path: Path) -> Opening:
    """What a child that does nothing else sees. Raises subprocess.CalledProcessError."""
    return Opening(**children.last_line("benchmarks.native_costs", str(path)))


def rows(folder: Path, weights: int, times: int) -> Iterator[Row]:
    """Seconds and peak memory, by turns; not measured where the disk has no room."""
    float_bytes = weights * memory.WEIGHT_BYTES
    section = f"Opening a model of {float_bytes / 4e9:.2f} GB in target native"
    say(f"{section}: writing {float_bytes / 1e9:.1f} GB")
    try:
        model = memory.write_model(folder, weights)
    except OSError as error:
        yield Row("not measured", math.nan, section=section, note=str(error.strerror or error))
        return
    say(f"{section}: quantizing")
    native, _ = variants.quantized(NATIVE, model, folder)
    say(section)
    found: dict[str, list[Opening]] = {FLOAT: [], NATIVE: []}
    for _ in range(times):
        for name, path in ((FLOAT, model), (NATIVE, native)):
            found[name].append(opened(path))
    yield _share("time", "s", 1, found, lambda o: o.seconds, SHARE, section)
    yield _share("peak memory", "MB", 1e6, found, lambda o: o.peak, SHARE, section)
    yield _share(
        "time of the first run of one row", "s", 1, found, lambda o: o.first, None, section
    )
    size = sum(file.stat().st_size for file in folder.glob(f"{native.name}*"))
    yield Row(f"{NATIVE}: files", size / 1e6, "MB", section=section)


def _share(
    what: str,
    unit: str,
    scale: float,
    found: dict[str, list[Opening]],
    read: Callable[[Opening], float],
    most: float | None,
    section: str,
) -> Row:
    """The median of one figure as a share of the float model's."""
    ours, theirs = (statistics.median(map(read, found[name])) for name in (NATIVE, FLOAT))
    note = f"{ours / scale:.4g} {unit} to {theirs / scale:.4g} {unit}"
    what = f"{what} as a share of the {FLOAT} model's"
    return Row(what, ours / theirs, at_most=most, section=section, note=note)


def main(argv: Sequence[str]) -> int:
    """Prints an `Opening` as JSON."""
    import numpy as np
    import onnxruntime  # noqa: F401  # what a first import takes is no part of the cost

    from benchmarks.zoo.sessions import open_session

    path = Path(argv[0])
    start = time.perf_counter()
    session = open_session(path)
    seconds, peak = time.perf_counter() - start, high_water()
    x = np.ones((1, memory.WIDTH), np.float32)
    start = time.perf_counter()
    session.run(None, {"x0": x})
    print(json.dumps(asdict(Opening(seconds, time.perf_counter() - start, peak))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
