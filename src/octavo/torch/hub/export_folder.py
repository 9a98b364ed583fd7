"""`export`: a model of the Hub's libraries as a folder of quantized ONNX files that they open."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from octavo.core.form import Form
from octavo.core.progress import Progress, quiet, says_progress
from octavo.errors import OptionError, did_you_mean
from octavo.files.staged_folder import MARK, StagedFolder
from octavo.recipe import Recipe
from octavo.recipe.yaml_files import recipe_of
from octavo.results.report import Report, Verification
from octavo.torch.export import Exported, export_onnx, form_of
from octavo.torch.hub.export_check import Check
from octavo.torch.hub.export_decoders import causal_parts, encoder_decoder_parts
from octavo.torch.hub.export_parts import Part, encoder_parts
from octavo.torch.hub.libraries import quiet_libraries
from octavo.torch.hub.sources import Source, source_of
from octavo.torch.layers.base import REPORT
from octavo.torch.quantize import check_float, is_quantized, quantize_dynamic, report
from octavo.torch.replace.plan import selected
from octavo.torch.run.tasks import Task, task_of

if TYPE_CHECKING:
    from torch import nn


@says_progress
def export(
    model: Any,
    folder: str | os.PathLike[str],
    target: str = "native",
    *,
    recipe: str | Path | Recipe = "int8",
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    task: str | None = None,
    tokenizer: Any = None,
    cpu: str = "vnni",
    opset_version: int = 20,
    verify: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Write `model`, quantized, as the folder of ONNX files that its library opens.

    sentence-transformers opens it with `SentenceTransformer(folder, backend="onnx",
    model_kwargs={"session_options": octavo.onnx.session_options()})`, optimum with
    `ORTModelFor..from_pretrained(folder, session_options=octavo.onnx.session_options())`; both find
    files, inputs and outputs under the names that they use themselves. Beside them are the
    configuration, the tokenizer and the report.

    Args:
        model: a SentenceTransformer, a CrossEncoder, a model of transformers (float, or what
            `octavo.torch.quantize_dynamic` returned), or a checkpoint: its folder or cached name.
        folder: the folder; it appears whole or not at all.
        target: "native": Octavo's own operators; "portable": those of stock ONNX Runtime.
        recipe: a preset's name, a YAML file or a Recipe; of a float model.
        only: globs over layer names: the others stay float.
        exclude: globs over layer names: these stay float.
        task: what the model is for, as the Hub calls it ("feature-extraction", ..). Default: what
            its class is for.
        tokenizer: or processor, saved beside a model of transformers; checkpoints have their own.
        cpu: of portable files, as for `octavo.torch.export_onnx`.
        opset_version: 18 to 23.
        verify: run each file and compare it with the float model.
        overwrite: replace a folder that an earlier call wrote.
        progress: called with a stage, what is done of it and how much there is. Default: a line on
            the terminal, from two seconds on.

    Raises OptionError, RecipeError, ModelError (what is no model or has no such form),
    NothingQuantizedError, VerificationError (a file is too far from the float model) and
    OutputError; nothing is written then.
    """
    start = perf_counter()
    progress = progress or quiet
    form, chosen = form_of(target, cpu, opset_version), recipe_of(recipe)
    staging = StagedFolder(Path(folder), replace=overwrite)
    with quiet_libraries():
        progress("loading", 0, 0)
        source = source_of(model, tokenizer)
        wanted = _task(source, task)
        if not is_quantized(source.model):
            chosen = selected(chosen, source.model, only, exclude)
        check = Check(parts(source.model, wanted), chosen.max_error, progress) if verify else None
        quantized = _quantized(source, chosen, progress)
        with staging:
            to = _Destination(staging.path / source.subfolder, form, progress)
            written = to.write(quantized, parts(quantized, wanted), check)
            source.write_others(staging.path)
            made = replace(
                _report(quantized, written, form, check),
                source=source.name,
                output=str(folder),
                files=tuple(one.path.relative_to(staging.path).as_posix() for one in written),
                seconds=perf_counter() - start,
            )
            (staging.path / MARK).write_text(made.to_json(), encoding="utf-8")
            staging.commit()
    return made


def parts(model: Any, task: Task) -> list[Part]:
    """Return the files that a model becomes."""
    if task in (Task.TEXT_TO_TEXT, Task.SPEECH_TO_TEXT):
        return encoder_decoder_parts(model, task)
    return causal_parts(model) if task is Task.TEXT else encoder_parts(model, task)


def _task(source: Source, given: str | None) -> Task:
    if given is None:
        return source.task or task_of(type(source.model).__name__)
    try:
        return Task(given)
    except ValueError:
        known = [task.value for task in Task]
        raise OptionError(f"unknown task {given!r}.{did_you_mean(given, known)}") from None


def _quantized(source: Source, recipe: Recipe, progress: Progress) -> nn.Module:
    """Return the model itself if it is quantized or was made for this; else a quantized copy."""
    if is_quantized(source.model):
        return source.model
    check_float(source.model)
    return quantize_dynamic(source.model, inplace=source.is_own, recipe=recipe, progress=progress)


@dataclass(frozen=True)
class _Destination:
    """The folder of the ONNX files, and their form."""

    folder: Path
    form: Form
    progress: Progress

    def write(self, model: nn.Module, files: Sequence[Part], check: Check | None) -> list[Exported]:
        """Write and check each file. Raises ModelError and VerificationError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        written = []
        for i, part in enumerate(files):
            self.progress(f"tracing {part.file}", i, len(files))
            part.module.__dict__[REPORT] = model.__dict__[REPORT]
            written.append(self._write(part))
            if check is not None:
                self.progress(f"checking {part.file}", i, len(files))
                check.compare(part, written[-1].path)
        return written

    def _write(self, part: Part) -> Exported:
        example = part.examples[0]
        return export_onnx(
            part.module,
            tuple(example.values()),
            self.folder / part.file,
            self.form.target,
            cpu=self.form.cpu,
            input_names=list(example),
            output_names=list(part.outputs),
            dynamic_shapes={"tensors": tuple(part.axes.get(name) for name in example)},
            opset_version=self.form.opset,
        )


def _report(
    model: nn.Module, written: Sequence[Exported], form: Form, check: Check | None
) -> Report:
    """Report what became of each layer in the files."""
    said = report(model)
    skipped = Verification("skipped", detail="nobody wanted it compared")
    notes = [f"{one.path.name}: {note}" for one in written for note in one.notes]
    return replace(
        said,
        target=form.target.value,
        cpu=form.cpu.value,
        quant_format=form.quant_format.value,
        opset=form.opset,
        min_onnxruntime=max((one.min_onnxruntime for one in written), key=_release),
        model_bytes_after=sum(one.bytes for one in written),
        verification=skipped if check is None else check.verification(),
        notes=(*said.notes, *notes),
    )


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
