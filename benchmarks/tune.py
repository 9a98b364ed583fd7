"""Accuracy-driven tuning: after how few evaluations it finds what int8 ruins.

`python -m benchmarks.tune [--quick] [--only WORD ...]`: stacks with known bad layers, real models.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import runner, tune_models, tune_planted


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("tune", __doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="octavo-tune-") as name:
        sections = {
            **tune_planted.sections(Path(name), options.quick),
            **tune_models.sections(Path(name), options.quick),
        }
        runner.publish("tune", "Accuracy-driven tuning", sections, options, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
