"""`octavo doctor`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.options import SOMETHING_MISSING, JsonOption, exit_codes


def doctor(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A quantized model to match with this machine."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show versions, instruction sets, the kernels that would run, and what is missing.

    With FILE: what it is, and whether this machine runs it as it should.

    All goes to stdout; no file is written. Exits with 7 if something that is needed is missing or
    too old, else 0, also with warnings.
    """
    with exit_codes():
        from octavo.files.metadata import metadata
        from octavo.measure.doctor import diagnose

        said = None if model is None else metadata(model)
        diagnosis = diagnose(None if model is None else str(model), said)
        if json:
            print(json_module.dumps(diagnosis.to_dict(), indent=2))  # noqa: T201
        else:
            from octavo.report.doctor import print_diagnosis
            from octavo.report.text import console

            print_diagnosis(diagnosis, console())
        if not diagnosis.ok:
            raise typer.Exit(SOMETHING_MISSING)
