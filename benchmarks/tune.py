"""Accuracy-driven tuning: how few evaluations find what int8 ruins, and what a kill costs.

`python -m benchmarks.tune [--quick] [--only WORD]`: stacks with known bad layers, real models, a
Dask cluster that loses a worker, a tuner that is killed again and again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results, tune_models, tune_planted
from benchmarks.sections import every


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    partial = options.quick or bool(options.only)
    with tempfile.TemporaryDirectory(prefix="octavo-tune-") as name:
        folder = Path(name)
        sections = {
            **tune_planted.sections(folder, options.quick),
            **tune_models.sections(folder, options.quick),
        }
        chosen = {k: v for k, v in sections.items() if options.only.lower() in k.lower()}
        rows = every(chosen)
    found = results.result("tune", "Accuracy-driven tuning", rows, arguments)
    results.publish(found, partial)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of all; writes no result")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="sections with this in their title; no result"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
