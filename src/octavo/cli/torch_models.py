"""What the command line does with PyTorch models, which are named `module:factory`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError, OctavoError, OptionError
from octavo.front_ends import names_factory, need_torch

if TYPE_CHECKING:
    import typer

    from octavo.recipe import Recipe
    from octavo.results.inspection import Inspection
    from octavo.results.report import Report

__all__ = ["inspect", "names_factory", "quantize", "refuse_onnx_options"]

_TAKEN = frozenset(
    "model output recipe bits size exclude only allow_nothing page force verbose json".split()
)


def refuse_onnx_options(context: typer.Context, model: str) -> None:
    """Raise OptionError for an option on the command line that applies to ONNX only."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        if given and parameter.name not in _TAKEN:
            raise OptionError(
                f"{parameter.opts[0]} is for ONNX models; {model} is a PyTorch model: leave it out"
            )


def quantize(
    model: str,
    out: Path,
    recipe: Recipe,
    only: Sequence[str],
    exclude: Sequence[str],
    *,
    allow_nothing: bool,
) -> Report:
    """Quantize the model that the factory makes, and save it to `out`.

    Raises OptionError for the name of an ONNX file.
    """
    if out.suffix.lower() == ".onnx":
        raise OptionError(
            f"-o {out}: {model} is a PyTorch model, written in safetensors: end the name with "
            ".safetensors. For an ONNX file, call octavo.torch.export_onnx in Python"
        )
    from octavo.files.staging import Staging
    from octavo.report.terminal import progress_bar, working

    with working("loading PyTorch"):
        need_torch(model)
        from octavo.torch import quantize_dynamic, report, save
        from octavo.torch.quantize import check_float
        from octavo.torch.replace.plan import selected

    Staging(out)  # refuses a place that cannot be written, before the model is made
    with progress_bar() as bar:
        progress = bar or (lambda stage, done, total: None)
        progress("building", 0, 0)
        made = _made_by(model)
        check_float(made)
        try:
            quantized = quantize_dynamic(
                made,
                inplace=True,
                recipe=selected(recipe, made, only, exclude),
                allow_nothing=allow_nothing,
                progress=progress,
            )
        except ValueError as error:
            if isinstance(error, OctavoError):
                raise
            raise ModelError(f"{model}: {error}") from error
        save(quantized, out, progress=progress)
    return replace(report(quantized), source=model, output=str(out))


def inspect(model: str, recipe: Recipe) -> Inspection:
    """Inspect the layers of the model that the factory makes."""
    need_torch(model)
    from octavo.torch import inspect as inspect_model

    return replace(inspect_model(_made_by(model), recipe), model=model)


def _made_by(model: str) -> Any:
    from octavo.torch.named_models import named_model

    with contextlib.redirect_stdout(sys.stderr):  # stdout is for the report
        return named_model(model)
