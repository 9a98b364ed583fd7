"""What `export` is given: the module of transformers in it, and the files that go along with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from octavo.errors import ModelError, OptionError
from octavo.files.checkpoints import MODULES
from octavo.torch.hub.checkpoint import Checkpoint, find_checkpoint
from octavo.torch.hub.sentence_files import rename_for_release_5
from octavo.torch.run.tasks import Task

ONNX = "onnx"
"""The folder in which sentence-transformers looks for ONNX files."""


@dataclass(frozen=True)
class Source:
    """`model` is of transformers; `is_own`: it was made for this call, and may be changed.

    `subfolder` is where the ONNX files go; `write_others` writes all but them into a folder.
    """

    name: str
    model: Any
    is_own: bool
    subfolder: str
    write_others: Callable[[Path], None]
    task: Task | None = None


def source_of(given: Any, tokenizer: Any = None) -> Source:
    """Return the source that `given`, a model or a checkpoint's folder or name, is.

    Raises ModelError for what is no model, OptionError for a tokenizer that cannot be saved.
    """
    if isinstance(given, (str, os.PathLike)):
        return of_checkpoint(find_checkpoint(given))
    kinds = {kind.__name__ for kind in type(given).__mro__}
    if "SentenceTransformer" in kinds:
        return _of_sentence_transformer(given)
    if "CrossEncoder" in kinds:
        return _of_cross_encoder(given)
    if not isinstance(given, nn.Module) or not hasattr(given, "config"):
        raise ModelError(
            f"model is a {type(given).__name__}; give a model of transformers, a "
            "SentenceTransformer, a CrossEncoder, or a checkpoint's folder or name"
        )
    if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
        raise OptionError(
            f"tokenizer is a {type(tokenizer).__name__}; give one of transformers, or a processor"
        )
    name = type(given).__name__
    return Source(name, given, False, "", lambda place: _save_config(given, tokenizer, place))


def of_checkpoint(found: Checkpoint) -> Source:
    """Load a checkpoint in float32. Raises ModelError and AlreadyQuantizedError."""
    of_sentences = (found.root / MODULES).is_file()
    part = found.folder.relative_to(found.root)
    return Source(
        found.name,
        found.load(),
        True,
        str(part / ONNX) if of_sentences else "",
        found.write_others,
        Task.FEATURES if of_sentences else found.task,
    )


def _save_config(model: Any, tokenizer: Any, place: Path) -> None:
    model.config.save_pretrained(place)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        generation.save_pretrained(place)
    if tokenizer is not None:
        tokenizer.save_pretrained(place)


def _of_sentence_transformer(given: Any) -> Source:
    transformer = given[0]
    model = getattr(transformer, "auto_model", None)
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"the first module of the SentenceTransformer is a {type(transformer).__name__}; "
            "Octavo exports those that begin with a Transformer of backend torch"
        )
    write = _without_weights(given, model)
    return Source(type(given).__name__, model, False, ONNX, write, Task.FEATURES)


def _of_cross_encoder(given: Any) -> Source:
    write = _without_weights(given, given.model)
    return Source(type(given).__name__, given.model, False, ONNX, write, Task.SEQUENCE_CLASSES)


def _without_weights(given: Any, model: nn.Module) -> Callable[[Path], None]:
    """Return a function that saves all of `given` but the weights of `model` to a folder."""

    def write(place: Path) -> None:
        save, model.save_pretrained = model.save_pretrained, model.config.save_pretrained
        try:
            given.save_pretrained(str(place))
        finally:
            model.save_pretrained = save
        if (place / MODULES).is_file():
            rename_for_release_5(place, given.max_seq_length)

    return write
