"""The program: its commands by name, and the end of their help."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from octavo.cli.bench import bench
from octavo.cli.compare import compare
from octavo.cli.convert import convert_target
from octavo.cli.doctor import doctor
from octavo.cli.quantize import inspect, quantize
from octavo.cli.report import report
from octavo.cli.tune import tune
from octavo.errors import suggest

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "octavo inspect model.onnx",
        "octavo quantize model.onnx",
        "octavo compare model.onnx model.int8.onnx",
        "octavo bench model.onnx model.int8.onnx --threads 1",
        "octavo quantize --help",
    ),
    "quantize": (
        "octavo quantize model.onnx",
        "octavo quantize model.onnx --inputs data.npz -o small.onnx",
        "octavo quantize model.onnx --exclude '/bert/pooler/*' --report page.html",
        "octavo quantize model.onnx --target native --recipe int8-accurate",
        "octavo quantize mypackage.models:build -o model.safetensors",
        "octavo quantize path/to/checkpoint --to native -o folder",
    ),
    "inspect": (
        "octavo inspect model.onnx",
        "octavo inspect model.onnx --recipe my.yaml --target native",
        "octavo inspect mypackage.models:build --json",
        "octavo inspect path/to/checkpoint",
    ),
    "tune": (
        "octavo tune conf.yaml --model model.onnx",
        "octavo tune conf.yaml --model model.onnx --evaluate mymodule:evaluate",
        "octavo tune conf.yaml --model model.onnx --data labelled.npz -o best.onnx",
        "octavo tune conf.yaml --model model.onnx --resume --report page.html",
        "octavo tune conf.yaml --model model.onnx --plot trials.svg",
    ),
    "convert-target": (
        "octavo convert-target model.int8.onnx --to native",
        "octavo convert-target model.native.onnx --to portable --cpu any -o m.onnx",
    ),
    "compare": (
        "octavo compare model.onnx model.int8.onnx",
        "octavo compare model.onnx model.int8.onnx --inputs data.npz --verbose",
        "octavo compare model.onnx model.int8.onnx --plot errors.svg",
        "octavo compare mypackage.models:build model.safetensors",
        "octavo compare path/to/checkpoint checkpoint-int8",
    ),
    "bench": (
        "octavo bench model.onnx model.int8.onnx",
        "octavo bench model.onnx model.int8.onnx --threads 1,2 --shape ids=1x128",
        "octavo bench model.onnx model.int8.onnx --plot speed.svg",
        "octavo bench model.onnx --against ort --json",
        "octavo bench path/to/checkpoint checkpoint-int8",
    ),
    "report": (
        "octavo report model.onnx model.int8.onnx --html page.html",
        "octavo report model.onnx model.int8.onnx --html page.html --inputs data.npz",
        "octavo report mypackage.models:build model.safetensors --html page.html",
        "octavo report tune.json --html page.html",
    ),
    "doctor": (
        "octavo doctor",
        "octavo doctor model.int8.onnx",
    ),
}
"""By the command's name; "" is the program itself."""

EXIT_CODES = """
\b
Exit codes:
  0    done
  1    an unexpected error (with a traceback: please report it)
  2    a wrong option, recipe, layer name, operator type or input data
  3    the model cannot be read or handled, or is quantized already
  4    nothing would be quantized
  5    the quantized model does not load or is too far from the float one
  6    the output cannot be written
  7    doctor: something that is needed is missing or too old
  8    tune: no recipe that meets the criterion was found
  9    tune: the float model cannot be evaluated
  10   the file is written, but could not be checked: pass --inputs
  130  interrupted (Ctrl-C)
"""


def epilog(command: str) -> str:
    """Return the examples of `command`, then the exit codes."""
    examples = "\n".join(f"  {line}" for line in EXAMPLES[command])
    return f"\b\nExamples:\n{examples}\n{EXIT_CODES}"


class _Program(TyperGroup):
    """Names what a wrong value of an option is like."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = with_near_miss(error.message)
            raise


def with_near_miss(message: str) -> str:
    """Add which value was meant to Typer's `'nativ' is not one of 'portable', 'native'`."""
    found = re.fullmatch(r"(?:Value error, )?'(.*)' is not one of ('.*')\.?", message)
    if found is None:
        return message
    given, known = found[1], re.findall(r"'([^']*)'", found[2])
    return f"{given!r} is not one of {found[2]}.{suggest(given, known)}"


app = typer.Typer(
    cls=_Program,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(argv: Sequence[str] | None = None) -> None:
    """Run the command line as `octavo.cli.main`, but for Ctrl-C before a command begins."""
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
    (tune, "tune", "Search for a fast recipe that keeps the accuracy."),
    (convert_target, "convert-target", "Convert a quantized model to the other target."),
    (compare, "compare", "Compare a quantized model with the float one."),
    (bench, "bench", "Time models in turns and compare them."),
    (report, "report", "Write a page about a quantized model."),
    (doctor, "doctor", "Show what this machine has, and what is missing."),
):
    app.command(name, epilog=epilog(name), short_help=short_help)(command)
