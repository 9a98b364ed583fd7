"""What the command line does with checkpoints of transformers: folders, and names in the cache."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli import torch_models
from octavo.cli.options import To
from octavo.core.form import Cpu
from octavo.errors import OptionError
from octavo.files.checkpoints import is_gguf
from octavo.front_ends import need_torch

if TYPE_CHECKING:
    import typer

    from octavo.recipe import Recipe
    from octavo.results.inspection import Inspection
    from octavo.results.report import Report

_TAKEN = frozenset(
    "model output to recipe bits size only exclude no_verify page force verbose json".split()
)
_OF_SAMPLES = frozenset({"inputs", "error_feedback"})
"""Options for folders that PyTorch opens alone."""
_OF_ONNX = frozenset({"cpu"})
"""Options for folders of ONNX files alone."""


def refuse_options(context: typer.Context, model: str, to: To) -> None:
    """Raise OptionError for an option on the command line that does not apply to checkpoints."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in _TAKEN:
            continue
        option = parameter.opts[0]
        if name == "target":
            raise OptionError(f"{option} is for ONNX models; {model} is a checkpoint: give --to")
        if name in _OF_SAMPLES and to is To.TORCH:
            continue
        if name not in _OF_ONNX:
            raise OptionError(f"{option} is for ONNX models; {model} is a checkpoint: leave it out")
        if to is To.TORCH:
            raise OptionError(f"{option} is for --to onnx and --to native: leave it out")


def refuse_unused_check(wanted: Wanted) -> None:
    """Raise OptionError for --no-verify where there is nothing to compare on."""
    if not wanted.verify and wanted.to is To.TORCH and wanted.inputs is None:
        raise OptionError(
            "--no-verify: a folder for PyTorch is compared on --inputs alone: leave it out"
        )


def refuse_to(context: typer.Context, model: str) -> None:
    """Raise OptionError for --to where `model` is no checkpoint."""
    source = context.get_parameter_source("to")
    if source is not None and source.name == "COMMANDLINE":
        raise OptionError(f"--to is for checkpoints, and {model} is none: give --target")


def kind_of(recipe: Recipe) -> str:
    """Return what an output's name says of the recipe's weights: fp16, int4 or int8."""
    from octavo.core.qparams import QType

    weight = recipe.default.weight
    if recipe.mix is not None or (weight is not None and weight.qtype is QType.INT4):
        return "int4"
    return "fp16" if weight is not None and weight.qtype is QType.FLOAT16 else "int8"


def default_folder(model: str, to: To, recipe: Recipe) -> Path:
    """Return the default output folder: named after the checkpoint, in the current folder."""
    if is_gguf(model):
        return Path(f"{Path(model).stem}-octavo")
    kind = kind_of(recipe)
    end = kind if to is To.TORCH else f"{kind}-{to.value}"
    return Path(f"{Path(model).resolve().name}-{end}")


@dataclass(frozen=True)
class Wanted:
    """What `octavo quantize` was asked to make of a checkpoint."""

    to: To
    recipe: Recipe
    only: Sequence[str]
    exclude: Sequence[str]
    cpu: Cpu
    verify: bool
    overwrite: bool
    inputs: Path | None = None
    error_feedback: bool = False


def quantize(model: str, out: Path, wanted: Wanted) -> Report:
    """Quantize a checkpoint into the folder `out`, or a .safetensors file (`octavo.torch.load`)."""
    from octavo.report.terminal import progress_bar, working

    refuse_unused_check(wanted)
    with working("loading PyTorch"):
        need_torch(model)
    if is_gguf(model) and (wanted.to is not To.TORCH or out.suffix == ".safetensors"):
        raise OptionError(
            f"{model} is a GGUF file, of which a folder for from_pretrained is made: leave --to "
            "out and name a folder; in Python, octavo.torch.hub.export makes ONNX files of what "
            "octavo.torch.hub.load_gguf returns"
        )
    if out.suffix == ".safetensors":
        if wanted.inputs is not None or wanted.error_feedback:
            raise OptionError(f"-o {out}: --inputs and --error-feedback want a folder; name one")
        if wanted.to is not To.TORCH:
            raise OptionError(f"-o {out}: --to {wanted.to.value} writes a folder; name one")
        return torch_models.quantize(
            model, out, wanted.recipe, wanted.only, wanted.exclude, allow_nothing=False
        )
    with progress_bar() as bar, _stdout_is_ours():
        progress = bar or (lambda stage, done, total: None)
        progress("reading the checkpoint", 0, 0)
        if wanted.to is To.TORCH:
            from octavo.torch.hub.quantized_folder import quantize_folder

            return quantize_folder(
                model,
                out,
                recipe=wanted.recipe,
                only=wanted.only,
                exclude=wanted.exclude,
                inputs=wanted.inputs,
                error_feedback=wanted.error_feedback,
                verify=wanted.verify,
                overwrite=wanted.overwrite,
                progress=progress,
            )
        from octavo.torch.hub import export

        return export(
            model,
            out,
            "native" if wanted.to is To.NATIVE else "portable",
            recipe=wanted.recipe,
            only=wanted.only,
            exclude=wanted.exclude,
            cpu=wanted.cpu.value,
            verify=wanted.verify,
            overwrite=wanted.overwrite,
            progress=progress,
        )


def refuse_limits(model: str) -> None:
    """Raise OptionError for --bits and --size if the checkpoint's weights keep their integers."""
    from octavo.report.terminal import working

    with working("reading the checkpoint"), _stdout_is_ours():
        need_torch(model)
        from octavo.torch.hub.gguf_checkpoint import find_either
        from octavo.torch.hub.libraries import quiet_libraries

        with quiet_libraries():
            found = find_either(model)
    if found.kept_by:
        from octavo.torch.hub.config import limits_refused

        raise limits_refused(found.name, found.kept_by)


def inspect(model: str, recipe: Recipe) -> Inspection:
    """Inspect the checkpoint's layers by config.json and the headers of the weights alone."""
    need_torch(model)
    from octavo.torch.hub.libraries import quiet_libraries

    if is_gguf(model):
        from octavo.torch.hub.gguf_checkpoint import find_gguf
        from octavo.torch.hub.gguf_inspecting import inspect_gguf

        with _stdout_is_ours(), quiet_libraries():
            return inspect_gguf(find_gguf(model), recipe)
    from octavo.torch.hub.checkpoint import find_checkpoint
    from octavo.torch.hub.inspecting import inspect as inspect_checkpoint

    with _stdout_is_ours(), quiet_libraries():
        return inspect_checkpoint(find_checkpoint(model, cached_only=True), recipe)


@contextlib.contextmanager
def _stdout_is_ours() -> Iterator[None]:
    """Redirect what the libraries print to stderr: stdout is for the report."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
