"""Real models: speed, error, labelled accuracy, size and cost beside the peers'.

`python -m benchmarks.models [--onnx] [--torch] [--quick]`: ONNX files through ONNX Runtime
(`onnx_models`), PyTorch modules (`torch_models`); both, unless one is asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import onnx_models, results, torch_models


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    processes = 2 if options.quick else options.processes
    if options.onnx or not options.torch:
        exporters = 1 if options.quick else options.exporters
        rows = onnx_models.all_rows(onnx_models.Effort(options.quick, processes, exporters))
        title = "Real models through ONNX Runtime"
        results.publish(
            results.result("models", title, rows, arguments, speeds=True), options.quick
        )
    if options.torch or not options.onnx:
        rows = torch_models.all_rows(torch_models.Effort(options.quick, processes))
        title = "Real models in PyTorch"
        found = results.result("models_torch", title, rows, arguments, script="models", speeds=True)
        results.publish(found, options.quick)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--onnx", action="store_true", help="the ONNX rows")
    parser.add_argument("--torch", action="store_true", help="the PyTorch rows")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds, fewer rows; writes no result"
    )
    parser.add_argument(
        "--processes", type=int, default=7, help="child processes that a figure is pooled from (7)"
    )
    parser.add_argument(
        "--exporters", type=int, default=2, choices=(1, 2), help="1: only the TorchScript export"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
