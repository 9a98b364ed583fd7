"""`octavo convert-target`: from one target to the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import OutputError

if TYPE_CHECKING:
    from octavo.recipe.conversion import Conversion


def convert(
    model: Path,
    output: Path | None,
    to: str,
    *,
    cpu: str | None,
    inputs: Path | None,
    verify: bool,
    force: bool,
) -> Conversion:
    """Converts `model` to target `to`; `output` by default is named after both.

    Raises OutputError where that default exists and `force` is not given.
    """
    from octavo.onnx import convert_target
    from octavo.report.progress import progress_bar

    out = output or Path(f"{model.stem}.{to}.onnx")
    if output is None and out.exists() and not force:
        raise OutputError(f"{out} exists; name it with -o or give --force to replace it")
    with progress_bar() as progress:
        return convert_target(
            model, out, to=to, cpu=cpu, check_inputs=inputs, verify=verify, progress=progress
        )


def show(done: Conversion, *, json: bool) -> None:
    """Prints the conversion as text, or as JSON."""
    if json:
        print(done.to_json())  # noqa: T201
        return
    from octavo.report.conversion import print_conversion
    from octavo.report.text import console

    print_conversion(done, console())
