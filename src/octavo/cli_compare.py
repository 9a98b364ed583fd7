"""`octavo compare`: a quantized model beside the float one."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import OptionError
from octavo.front_ends import names_factory, need_torch

if TYPE_CHECKING:
    from octavo.recipe.comparison import Comparison


def compare(floating: str, quantized: Path, inputs: Path | None) -> Comparison:
    """Compares two ONNX files, or `module:factory` with what `octavo.torch.save` wrote."""
    of_torch, saved = names_factory(floating), quantized.suffix == ".safetensors"
    if of_torch and quantized.suffix == ".onnx":
        raise OptionError(
            f"{floating} is a PyTorch model and {quantized} an ONNX file: give the .safetensors "
            "file that octavo quantize wrote, or the float ONNX file first"
        )
    if saved and not of_torch:
        raise OptionError(
            f"{quantized} is a PyTorch model: name the float one by module:factory, not {floating}"
        )
    if of_torch:
        need_torch()
        from octavo.torch.comparing.files import compare_saved

        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the report
            return compare_saved(floating, quantized, inputs)
    from octavo.onnx import compare as compare_files

    return compare_files(Path(floating), quantized, inputs)


def show(found: Comparison, *, verbose: bool, json: bool) -> None:
    """Prints the comparison as text, or as JSON."""
    if json:
        print(found.to_json())  # noqa: T201
        return
    from octavo.report.comparison import print_comparison
    from octavo.report.text import console

    print_comparison(found, console(), verbose)
