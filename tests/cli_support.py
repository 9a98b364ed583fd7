"""What tests of the command line share: a report, a front end, the command, a file."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import octavo.onnx
from benchmarks.variants import quiet
from octavo.cli import evidence, main
from octavo.onnx.bench import BenchFile
from octavo.recipe import PRESETS, Kind, Layer, Recipe, Scheme
from octavo.results.report import LayerOutcome, Report
from tests.results.reports import report

LAYER = Layer("/fc/MatMul", Kind.LINEAR, "MatMul", (("w", (384, 384)),), 589_824, 147_456)
REPORT = report(
    LayerOutcome(LAYER, True, Scheme().describe(), "", 589_824, 148_992, 40.0),
    source="m.onnx",
    output="m.int8.onnx",
    recipe=PRESETS["int8"].to_dict(),
    model_bytes_before=1_000_000,
    model_bytes_after=500_000,
)


class FrontEnd:
    """Stands for `octavo.onnx.quantize_dynamic`: remembers its arguments and does what `does` does.

    `does` takes the recipe, and raises what the conversion shall.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model: Any = None
        self.output: Any = None
        self.options: dict[str, Any] = {}
        self.recipes: list[Recipe] = []
        self.does: Callable[[Recipe], object] = lambda recipe: None
        monkeypatch.setitem(vars(octavo.onnx), "quantize_dynamic", self)

    def __call__(self, model: Any, output: Any, **options: Any) -> Report:
        self.model, self.output, self.options = model, output, options
        self.recipes.append(options["recipe"])
        self.does(options["recipe"])
        return REPORT


def run(*arguments: str) -> int:
    """The exit code of the command line in this process."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    code = exit_.value.code
    return 0 if code is None else int(code)


def printed(
    capsys: pytest.CaptureFixture[str], *arguments: str, codes: Sequence[int] = (0,)
) -> Any:
    """Return what a command prints with --json; it has to end with one of `codes`."""
    capsys.readouterr()
    assert run(*arguments, "--json") in codes
    return json.loads(capsys.readouterr().out)


def in_this_process(function: Callable[..., Any], **arguments: Any) -> Any:
    """In place of `octavo.onnx.bench.call`: ONNX Runtime's quantizer without its own process.

    That one is started by tests/test_cli_bench.py; it takes longer than what most tests are about.
    """
    with contextlib.redirect_stdout(io.StringIO()), quiet():
        return function(**arguments)


def shorten_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages and searches measure for a moment, in this process, and draw no pictures."""
    monkeypatch.setattr(evidence, "SECONDS", 0.1)
    monkeypatch.setattr("octavo.tune.contest.SECONDS", 0.2)
    monkeypatch.setattr(BenchFile, "peak_memory", lambda *_: 1_234_567)
    monkeypatch.setattr("octavo.onnx.bench.call", in_this_process)
    monkeypatch.setattr("octavo.report.html.pictures.what_is_wrong", lambda module: "time")


def write_module(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    """A module in the current folder, to be named on the command line; none stays loaded."""
    Path(f"{name}.py").write_text(textwrap.dedent(source))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setitem(sys.modules, name, None)
    del sys.modules[name]


MAKES = """
    import torch
    from torch import nn

    print("the module talks")

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
"""
"""A module with a PyTorch model."""
