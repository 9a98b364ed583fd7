"""`octavo report`: a quantized model beside the float one, as a page for a browser."""

from __future__ import annotations

import contextlib
import glob
import json as json_module
import math
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.evidence import SECONDS, How, evidence
from octavo.cli.options import (
    NOT_BOUNDED,
    QUANTIZED_HELP,
    ComparedInputsOption,
    CustomOpsOption,
    TimedThreadsOption,
    exit_codes,
    operators,
)
from octavo.cli.places import check_places
from octavo.errors import InputDataError, OptionError
from octavo.front_ends import names_torch

if TYPE_CHECKING:
    from octavo.results.report import Report


def run(floating: str, quantized: Path, page: Path, how: How) -> None:
    """Measure both models, and write the page."""
    from octavo.report.html import in_short, report_html, write_html

    files = [Path(floating), quantized, *([how.inputs] if how.inputs else [])]
    check_places(files, page=page, page_option="--html")
    _check(floating, how)
    start = perf_counter()
    found = evidence(floating, quantized, how, strict=True)
    with contextlib.redirect_stdout(sys.stderr):  # a factory may print
        stored = stored_report(floating, quantized)
    if stored is not None:
        options = (*told(stored), *((("--inputs", str(how.inputs)),) if how.inputs else ()))
        stored = replace(stored, seconds=perf_counter() - start, options=options)
    write_html(report_html(stored, found), page)
    print(f"{page} is written: {in_short(stored, found)}")  # noqa: T201


def told(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the options of octavo quantize that a stored report tells, with their values."""
    from octavo.recipe import PRESETS
    from octavo.recipe.plan import EXCLUDED
    from octavo.results.advice import UNKNOWN_RECIPE

    name = report.recipe.get("name", "")
    if name not in ("int8", "default"):
        yield ("--recipe", name) if name in PRESETS else UNKNOWN_RECIPE
    for option, value, default in (
        ("--target", report.target, "portable"),
        ("--cpu", report.cpu, "vnni"),
        ("--format", report.quant_format, "qoperator"),
    ):
        if value and value != default and report.target != "torch":
            yield option, value
    for outcome in report.left_float:
        if outcome.reason == EXCLUDED:
            yield "--exclude", glob.escape(outcome.layer.name)


def stored_report(floating: str, quantized: Path) -> Report | None:
    """Read what the quantized file says became of each layer, and why; None where it does not."""
    if not names_torch(floating):
        from octavo.onnx.read.stored_report import stored_report

        return stored_report(quantized, Path(floating))
    from octavo.torch.comparing.saved_models import saved_report

    return replace(saved_report(floating, quantized), source=floating, output=str(quantized))


def from_json(path: Path, page: Path, how: How) -> None:
    """Write a page of what `octavo quantize --json` or `octavo tune --json` printed."""
    from octavo.report.html import report_html, tuning_html, write_html
    from octavo.results.report import Report
    from octavo.results.tuning import TuneResult

    for given in (field.name for field in fields(how) if getattr(how, field.name)):
        raise OptionError(f"--{given} says how to measure, and {path} was measured: leave it out")
    check_places([path], page=page, page_option="--html")
    try:
        data = json_module.loads(path.read_text("utf-8"))
        if "trials" in data:
            text = tuning_html(TuneResult.from_dict(data))
        else:
            text = report_html(Report.from_dict(data))
    except FileNotFoundError:
        raise InputDataError(f"{path} does not exist; name {_GIVEN}") from None
    except OSError as error:
        raise InputDataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputDataError(f"{path} is not {_GIVEN} ({error})") from error
    write_html(text, page)


_GIVEN = "what octavo quantize --json or octavo tune --json printed"


def _check(floating: str, how: How) -> None:
    for option, given in (("--shape", how.shape), ("--threads", how.threads)):
        if given and names_torch(floating):
            raise OptionError(
                f"{option} is for ONNX models; {floating} is a PyTorch model: leave it out"
            )
    if not 0 < how.budget < math.inf:
        raise OptionError(f"--seconds {how.budget:g}: give a number above 0")


def report(
    floating: Annotated[
        str,
        typer.Argument(
            metavar="FLOAT",
            help="The float ONNX model, or module:factory of a PyTorch model; or a .json file with "
            "what octavo quantize --json or octavo tune --json printed, alone.",
        ),
    ],
    html: Annotated[Path, typer.Option(metavar="PAGE", help="The page to write, .html.")],
    quantized: Annotated[
        Path | None,
        typer.Argument(
            metavar="[INT8]",
            help=QUANTIZED_HELP,
        ),
    ] = None,
    inputs: ComparedInputsOption = None,
    shape: Annotated[
        str,
        typer.Option(
            metavar="NAME=1x128,..",
            help="Shapes of the made-up inputs that models are timed on. Default: the first of "
            "--inputs, else guessed from FLOAT's graph.",
            show_default=False,
        ),
    ] = "",
    threads: TimedThreadsOption = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help=f"About how many seconds models are timed at most. {NOT_BOUNDED} do "
            f"comparing and quantizing with ONNX Runtime. Default: {SECONDS:g}.",
        ),
    ] = None,
    custom_ops: CustomOpsOption = [],  # noqa: B006
) -> None:
    """Write a page about INT8: size, speed and error beside FLOAT and ONNX Runtime's own int8.

    And layer by layer: the error of each, the ranges of its weights and activations, and why it was
    quantized as it was. Nothing is quantized here but what ONNX Runtime's quantize_dynamic makes of
    FLOAT, in a temporary folder. The page is one file that needs no network; stdout says that it
    is written.
    """
    with exit_codes(), operators(custom_ops, floating):
        if Path(floating).suffix == ".json" and quantized is None:
            from_json(Path(floating), html, How(inputs, shape, threads, seconds))
            print(f"{html} is written")  # noqa: T201
        elif quantized is None:
            raise OptionError(
                f"{floating} alone gives no page: name the quantized model behind it, octavo "
                f"report FLOAT INT8 --html page.html; or give {_GIVEN}"
            )
        else:
            run(floating, quantized, html, How(inputs, shape, threads, seconds))
