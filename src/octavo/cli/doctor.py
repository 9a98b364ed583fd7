"""`octavo doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import JsonOption, exit_codes, show
from octavo.errors import SOMETHING_MISSING

if TYPE_CHECKING:
    from octavo.results.diagnosis import Diagnosis


def _diagnosed(model: Path | None) -> Diagnosis:
    from octavo.files.metadata import metadata
    from octavo.measure.doctor import diagnose

    said = None if model is None else metadata(model)
    by_others = ""
    ours = any(key.startswith("octavo.") for key in said or ())
    if model is not None and model.suffix == ".onnx" and not ours:
        from octavo.onnx.plan.convertible import quantized_by_others

        by_others = quantized_by_others(model)
    return diagnose(None if model is None else str(model), said, by_others)


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
        from octavo.report.terminal import working

        with working("looking at this machine"):
            diagnosis = _diagnosed(model)
        show(diagnosis, json=json)
        if not diagnosis.ok:
            raise typer.Exit(SOMETHING_MISSING)
