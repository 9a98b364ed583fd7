"""Ctrl-C: the signal goes to the whole process group, as from a terminal."""

from __future__ import annotations

from pathlib import Path

import onnx

from benchmarks.error_cases.case import Case
from benchmarks.relu_chain import mlp

TITLE = "Ctrl-C"
_SLOW = "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n"
_WHY = "there is nothing to name: the one who pressed Ctrl-C knows"


def _large(path: Path) -> None:
    onnx.save(mlp(16, 768), path)


CASES = (
    Case(
        *("octavo quantize large.onnx -o out.onnx", 130, "", "interrupted", "", ""),
        why=_WHY,
        files={"large.onnx": _large},
        interrupt_at=".octavo-staging-*",
    ),
    Case(
        *("PYTHONPATH=. octavo quantize m.onnx -o out.onnx", 130, "", "interrupted", "", ""),
        why=f"{_WHY}; while the program is loaded, which a typer.py here delays",
        files={"typer.py": _SLOW},
        interrupt_at="begun",
        keeps=("begun",),
    ),
    Case(
        *("octavo bench m.onnx", 130, "", "interrupted", "", ""),
        why=_WHY,
        interrupt_after=3.0,
    ),
    Case(
        *("octavo report m.onnx portable.onnx --html page.html", 130, "", "interrupted", "", ""),
        why=_WHY,
        interrupt_after=3.0,
    ),
    Case(
        *("octavo tune conf.yaml --model m.onnx --evaluate accuracies:slow", 130),
        *("m.onnx", "interrupted after", "nothing was written", "--resume continues the search"),
        prints=True,
        interrupt_at="begun",
        keeps=("octavo_tuning/*", "begun"),
    ),
)
