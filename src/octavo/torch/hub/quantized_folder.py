"""A checkpoint quantized into another that from_pretrained opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from octavo.core.progress import Progress, quiet
from octavo.errors import ModelError, OctavoError, OptionError
from octavo.files.staged_folder import MARK, StagedFolder
from octavo.recipe import Recipe
from octavo.recipe.yaml_files import recipe_of
from octavo.results.report import Report, Verification
from octavo.torch.hub.checkpoint import Checkpoint
from octavo.torch.hub.folder_check import SampleCheck
from octavo.torch.hub.gguf_checkpoint import find_either
from octavo.torch.hub.libraries import quiet_libraries
from octavo.torch.hub.samples import read_samples
from octavo.torch.layers.base import REPORT
from octavo.torch.quantize import quantize_dynamic, report
from octavo.torch.replace.plan import selected


def quantize_folder(
    name_or_path: str,
    out: str | Path,
    *,
    recipe: str | Path | Recipe = "int8",
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    inputs: Path | None = None,
    error_feedback: bool = False,
    verify: bool = True,
    overwrite: bool = False,
    progress: Progress = quiet,
) -> Report:
    """Quantizes a checkpoint, layer by layer, into the folder `out`, which from_pretrained opens.

    A GGUF file, and folders of compressed-tensors, GPTQ and AWQ, keep their integers.
    Configuration, tokenizer and the other parts of a sentence-transformers model go along. The
    folder appears whole or not at all. `only` and `exclude` are globs over layer names.

    With `inputs` (a file of samples, see `read_samples`) or `error_feedback` the float model is
    loaded whole, and quantized as `octavo.torch.quantize_dynamic` does with them. With `inputs` the
    result is compared with it, too, unless not `verify`.

    Raises ModelError, RecipeError, NothingQuantizedError, OutputError, and VerificationError where
    the result is too far from the float model; nothing is written then.
    """
    start = perf_counter()
    staging = StagedFolder(Path(out), replace=overwrite)
    with quiet_libraries():
        progress("loading and quantizing", 0, 0)
        found = find_either(name_or_path)
        found.refuse_quantized(readable=True)
        chosen = recipe_of(recipe)
        if only or exclude:
            chosen = selected(chosen, found.skeleton(), only, exclude)
        checked: Verification | None = None
        if inputs is None and not error_feedback:
            model = _loaded(found, chosen)
        else:
            model, checked = _rounded_with(
                found, chosen, inputs, error_feedback, verify=verify, progress=progress
            )
        told = report(model)
        if checked is not None:  # which the files of the folder hold, too
            told = model.__dict__[REPORT] = replace(told, verification=checked)
        with staging:
            progress("saving", 0, 0)
            found.write_others(staging.path)
            part = staging.path / found.folder.relative_to(found.root)
            model.save_pretrained(part)
            made = replace(
                told,
                source=found.name,
                output=str(out),
                model_bytes_before=found.bytes,
                seconds=perf_counter() - start,
            )
            (staging.path / MARK).write_text(made.to_json(), encoding="utf-8")
            staging.commit()
    return made


def _rounded_with(
    found: Checkpoint,
    recipe: Recipe,
    inputs: Path | None,
    error_feedback: bool,
    *,
    verify: bool,
    progress: Progress,
) -> tuple[Any, Verification | None]:
    """Quantize the float model with samples; also return how the quantized one compares on them."""
    from octavo.torch.hub.config import OctavoConfig
    from octavo.torch.hub.quantizer import OctavoQuantizer, forget_tied

    if found.kept_by:
        raise OptionError(
            f"--inputs and --error-feedback are for float models, and {found.name} keeps the "
            f"integers of {found.kept_by}: leave them out"
        )
    samples = None if inputs is None else read_samples(inputs, found)
    model = found.load()
    check = SampleCheck(model, samples, progress) if samples and verify else None
    config = OctavoConfig(recipe=recipe)
    model.hf_quantizer = OctavoQuantizer(config)  # which save_pretrained asks
    try:
        model = quantize_dynamic(
            model,
            inplace=True,
            recipe=recipe,
            inputs=samples,
            error_feedback=error_feedback,
            progress=progress,
        )
    except ValueError as error:
        if isinstance(error, OctavoError):
            raise
        raise ModelError(f"{found.name}: {error}") from error
    model.config.quantization_config = config
    forget_tied(model)
    return model, None if check is None else check.compare(model, recipe.max_error, progress)


def _loaded(found: Checkpoint, recipe: Recipe) -> Any:
    """Have transformers load the model, which is quantized meanwhile."""
    from octavo.torch.hub.config import OctavoConfig

    found.tensors  # noqa: B018 - damage is said in our words
    config = OctavoConfig(recipe=recipe)
    if found.kept_by:
        config.refuse_limits(found.name, found.kept_by)
    return found.loader(found.folder, quantization_config=config)
