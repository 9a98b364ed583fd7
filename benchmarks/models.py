"""Real models: speed, error, labelled accuracy, size and cost beside the peers'.

`python -m benchmarks.models [--onnx] [--torch] [--quick]`: ONNX files through ONNX Runtime
(`onnx_models`), PyTorch modules (`torch_models`); both, unless one is asked for.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import onnx_models, runner, torch_models


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = runner.parser("models", __doc__)
    parser.add_argument("--onnx", action="store_true", help="the ONNX rows")
    parser.add_argument("--torch", action="store_true", help="the PyTorch rows")
    parser.add_argument(
        "--processes", type=int, default=7, help="child processes that a figure is pooled from (7)"
    )
    parser.add_argument(
        "--exporters", type=int, default=2, choices=(1, 2), help="1: only the TorchScript export"
    )
    options = parser.parse_args(arguments)
    quick, processes = options.quick, 2 if options.quick else options.processes
    if options.onnx or not options.torch:
        effort = onnx_models.Effort(quick, processes, 1 if quick else options.exporters)
        with tempfile.TemporaryDirectory(prefix="octavo-models-") as name:
            sections = onnx_models.sections(Path(name), effort)
            title = "Real models through ONNX Runtime"
            runner.publish("models", title, sections, options, arguments, speeds=True)
    if options.torch or not options.onnx:
        sections = torch_models.sections(torch_models.Effort(quick, processes))
        title, name = "Real models in PyTorch", "models_torch"
        runner.publish("models", title, sections, options, arguments, name=name, speeds=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
