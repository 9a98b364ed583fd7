"""The program: its commands by name."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from octavo.cli.bench import bench
from octavo.cli.compare import compare
from octavo.cli.convert import convert_target
from octavo.cli.doctor import doctor
from octavo.cli.epilog import epilog
from octavo.cli.quantize import inspect, quantize
from octavo.cli.report import report
from octavo.cli.tune import tune

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(argv: Sequence[str] | None = None) -> None:
    """As `octavo.cli.main`, but for Ctrl-C before a command begins."""
    logging.getLogger("onnx_ir").addHandler(logging.NullHandler())  # Octavo says what matters
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names in models need not fit the locale
            stream.reconfigure(errors="backslashreplace")
    _program().main(args=None if argv is None else list(argv), prog_name="octavo")


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def _version(asked: bool) -> None:
    if asked:
        from octavo import __version__

        print(f"octavo {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback(epilog=epilog(""))
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Dynamic int8 quantization for CPU inference: small, fast, verified, nothing silent.

    Results are printed on stdout, progress and errors on stderr; with --json stdout holds JSON
    alone. Files are written where a command says so, whole or not at all.
    """


app.command(epilog=epilog("quantize"))(quantize)
for command, name, short_help in (
    (inspect, "inspect", "Show a model's layers and what a recipe would do."),
    (tune, "tune", "Search the fastest recipe that keeps the accuracy."),
    (convert_target, "convert-target", "Convert a quantized model to the other target."),
    (compare, "compare", "Compare a quantized model with the float one."),
    (bench, "bench", "Time models in turns and compare them."),
    (report, "report", "Write a page about a quantized model."),
    (doctor, "doctor", "Show what this machine has, and what is missing."),
):
    app.command(name, epilog=epilog(name), short_help=short_help)(command)
