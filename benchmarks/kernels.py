"""The kernel core: linear layers and convolutions beside the peers and the machine's limits.

`python -m benchmarks.kernels [--quick] [--only PART ...] [--cells MxKxN ...] [--peers-only]`. Every
setting of threads, AMX and instruction set has a process of its own. The bounds were set on
processors without AMX; where there is one, all is measured with it and once more without.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from benchmarks import results
from benchmarks.children import Cell
from benchmarks.effort import Effort
from benchmarks.kernel_limits import (
    alternating_rows,
    bandwidth_rows,
    group_rows,
    packing_rows,
    peak_rows,
    thread_rows,
)
from benchmarks.kernel_peers import avx2_rows, conv_rows, linear_rows
from benchmarks.results import Row
from benchmarks.timing import amx_granted

ROWS = (1, 4, 8, 16, 32, 64, 128, 512)
WEIGHTS = ((384, 384), (384, 1536), (768, 768), (768, 3072), (3072, 768), (1024, 4096))
GRID = tuple((m, k, n) for k, n in (*WEIGHTS, (4096, 4096)) for m in ROWS)
QUICK = ((1, 768, 768), (128, 768, 768))
PARTS = {
    "linear": linear_rows,
    "avx2": avx2_rows,
    "conv": conv_rows,
    "peak": peak_rows,
    "groups": group_rows,
    "bandwidth": bandwidth_rows,
    "packing": packing_rows,
    "threads": thread_rows,
    "alternating": alternating_rows,
}
WITH_PEERS = ("linear", "avx2", "conv")


def cell(text: str) -> Cell:
    """`8x768x3072`: M, K, N."""
    m, k, n = map(int, text.split("x"))
    return m, k, n


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few cells; writes no result")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="writes no result")
    parser.add_argument("--cells", nargs="+", type=cell, help="writes no result", metavar="MxKxN")
    parser.add_argument("--peers-only", action="store_true", help="writes no result")
    options = parser.parse_args(arguments)
    chosen = options.only or (WITH_PEERS if options.peers_only else tuple(PARTS))
    missing = [name for name in ("openvino", "nncf") if find_spec(name) is None]
    if missing and "linear" in chosen:
        parser.error(
            f"linear layers are measured beside OpenVINO, which needs {' and '.join(missing)}: "
            "pip install -e '.[dev,bench]', or make bench"
        )
    effort = Effort(
        quick=options.quick,
        cells=tuple(options.cells or (QUICK if options.quick else GRID)),
        ours=not options.peers_only,
        has_amx=amx_granted(),
    )
    rows: list[Row] = []
    for part in chosen:
        rows += PARTS[part](effort)
    found = results.result(
        "kernels", "Kernels: linear layers and convolutions", rows, arguments, speeds=True
    )
    results.publish(found, options.quick or bool(options.only or options.cells) or not effort.ours)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
