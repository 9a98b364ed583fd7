"""`octavo compare`: a quantized model beside the float one."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import (
    QUANTIZED_HELP,
    ComparedInputsOption,
    CustomOpsOption,
    JsonOption,
    exit_codes,
    operators,
    show,
)
from octavo.cli.places import check_places, plot_option, write_plot
from octavo.core.progress import Progress, quiet
from octavo.errors import OptionError
from octavo.files.checkpoints import names_checkpoint
from octavo.front_ends import names_torch, need_torch

if TYPE_CHECKING:
    from octavo.results.comparison import Comparison


def compared(
    floating: str, quantized: Path, inputs: Path | None, progress: Progress = quiet
) -> Comparison:
    """Compare two ONNX files, or a PyTorch model by name with what was saved of it."""
    of_torch = names_torch(floating)
    saved = quantized.suffix == ".safetensors" or names_checkpoint(str(quantized))
    if of_torch and quantized.suffix == ".onnx":
        raise OptionError(
            f"{floating} is a PyTorch model and {quantized} an ONNX file: give the .safetensors "
            "file that octavo quantize wrote, or the float ONNX file first"
        )
    if saved and not of_torch:
        raise OptionError(
            f"{quantized} is a PyTorch model: name the float one by module:factory, or its "
            f"checkpoint's folder, not {floating}"
        )
    if of_torch:
        need_torch(floating, quantized)
        from octavo.torch.comparing.saved_models import compare_saved

        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the report
            return compare_saved(floating, quantized, inputs, progress)
    from octavo.onnx import compare as compare_files

    return compare_files(Path(floating), quantized, inputs, progress=progress)


def compare(
    floating: Annotated[
        str,
        typer.Argument(
            metavar="FLOAT",
            help="The float ONNX model, module:factory of a PyTorch model, or a checkpoint: its "
            "folder or name.",
        ),
    ],
    quantized: Annotated[
        Path,
        typer.Argument(metavar="INT8", help=QUANTIZED_HELP),
    ],
    inputs: ComparedInputsOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name every layer in the report.")
    ] = False,
    plot: Annotated[
        Path | None, plot_option("the error of each output and of the worst layers")
    ] = None,
    custom_ops: CustomOpsOption = [],  # noqa: B006
    json: JsonOption = False,
) -> None:
    """Compare INT8 with FLOAT: outputs, and each quantized layer, the one to blame first.

    A layer's error alone is that on the float model's inputs to it; accumulated is what the layers
    before it add. Nothing is quantized here: the numbers are those of INT8 as it is. They go to
    stdout; no file is written but PICTURE.
    """
    from octavo.report.terminal import progress_bar

    with exit_codes(), operators(custom_ops, floating):
        from octavo.report.plots.errors import errors_plot

        taken = [Path(floating), quantized, *([inputs] if inputs else [])]
        check_places(taken, plot=plot)
        with progress_bar() as bar:
            progress = bar or quiet
            progress("comparing layer by layer", 0, 0)
            found = compared(floating, quantized, inputs, progress)
        show(found, verbose=verbose, json=json)
        write_plot(plot, lambda: errors_plot(found))
