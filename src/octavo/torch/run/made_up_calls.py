"""Inputs made up for a model of transformers, by what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelError
from octavo.torch.run.calls import takes
from octavo.torch.run.tasks import Task, task_of

Draw = Callable[[np.random.Generator], npt.NDArray[Any]]
BATCH, LENGTH, DECODED = 4, 16, 8


def call_plan(model: Any) -> Mapping[str, Draw] | None:
    """Return what draws each input of a call; None for a model that is not of transformers."""
    if not type(model).__module__.startswith("transformers.") or not hasattr(model, "config"):
        return None
    try:
        task = task_of(type(model).__name__)
    except ModelError:
        return None
    if task is Task.SPEECH_TO_TEXT:
        return {"input_features": _mel(model), "decoder_input_ids": _ids(model, DECODED)}
    if not takes(model, "input_ids"):
        return None
    found = {"input_ids": _ids(model, LENGTH)}
    if takes(model, "attention_mask"):
        found["attention_mask"] = lambda rng: np.ones((BATCH, LENGTH), np.int64)
    if takes(model, "token_type_ids") and getattr(model.config, "type_vocab_size", 0) > 1:
        found["token_type_ids"] = lambda rng: np.zeros((BATCH, LENGTH), np.int64)
    if takes(model, "decoder_input_ids"):
        found["decoder_input_ids"] = _ids(model, DECODED)
    return found


def _ids(model: Any, length: int) -> Draw:
    words = model.config.get_text_config().vocab_size
    return lambda rng: rng.integers(min(5, words - 1), words, (BATCH, length))


def _mel(model: Any) -> Draw:
    config = model.config
    shape = (BATCH, config.num_mel_bins, 2 * config.max_source_positions)
    return lambda rng: rng.standard_normal(shape).astype(np.float32)
