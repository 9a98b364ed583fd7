"""A checkpoint quantized into another that from_pretrained opens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from octavo.files.checkpoints import is_gguf
from octavo.files.staged_folder import MARK, StagedFolder
from octavo.recipe import Recipe, Report
from octavo.recipe.yaml_files import recipe_of
from octavo.torch.hub.checkpoint import Checkpoint, find_checkpoint
from octavo.torch.hub.gguf_checkpoint import find_gguf
from octavo.torch.hub.libraries import quiet_libraries
from octavo.torch.plan import selected
from octavo.torch.quantize import report

Progress = Callable[[str, int, int], None]


def _quiet(stage: str, done: int, total: int) -> None:
    return None


def quantize_folder(
    name_or_path: str,
    out: str | Path,
    *,
    recipe: str | Path | Recipe = "int8",
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress = _quiet,
) -> Report:
    """Quantizes a checkpoint, layer by layer, into the folder `out`, which from_pretrained opens.

    A GGUF file, and folders of compressed-tensors, GPTQ and AWQ, keep their integers.
    Configuration, tokenizer and the other parts of a sentence-transformers model go along. The
    folder appears whole or not at all. `only` and `exclude` are globs over layer names.

    Raises ModelError, RecipeError, NothingQuantizedError and OutputError.
    """
    start = perf_counter()
    staging = StagedFolder(Path(out), replace=overwrite)
    with quiet_libraries():
        progress("loading and quantizing", 0, 0)
        found = find_gguf(name_or_path) if is_gguf(name_or_path) else find_checkpoint(name_or_path)
        found.refuse_quantized(readable=True)
        chosen = recipe_of(recipe)
        if only or exclude:
            chosen = selected(chosen, found.skeleton(), only, exclude)
        model = _loaded(found, chosen)
        with staging:
            progress("saving", 0, 0)
            found.write_others(staging.path)
            part = staging.path / found.folder.relative_to(found.root)
            model.save_pretrained(part)
            made = replace(
                report(model),
                source=found.name,
                output=str(out),
                model_bytes_before=found.bytes,
                seconds=perf_counter() - start,
            )
            (staging.path / MARK).write_text(made.to_json(), encoding="utf-8")
            staging.commit()
    return made


def _loaded(found: Checkpoint, recipe: Recipe) -> Any:
    """The model, quantized while transformers loads it."""
    from octavo.torch.hub.config import OctavoConfig

    found.tensors  # noqa: B018 - damage is said in our words
    config = OctavoConfig(recipe=recipe)
    if found.kept_by:
        config.refuse_limits(found.name, found.kept_by)
    return found.loader(found.folder, quantization_config=config)
