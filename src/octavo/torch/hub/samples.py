"""Samples for a checkpoint of transformers from a file: texts, which its tokenizer reads, or runs.

texts.jsonl   "a text" or {"text": "a text"} a line     ->  {"input_ids": .., "attention_mask": ..}
runs.npz      input_ids, attention_mask                 ->  as they are
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octavo.core.feeds import read_runs
from octavo.errors import InputDataError, brief
from octavo.torch.hub.checkpoint import Checkpoint
from octavo.torch.hub.libraries import quiet_libraries

TEXT = "text"
"""The key of a text in a line that is an object."""
_LONGEST = 512  # tokens of a text
MOST = 128
"""How many samples are used, from all over a file: more change next to nothing."""


def read_samples(path: Path, found: Checkpoint) -> list[Mapping[str, Any]]:
    """Read a file's samples, at most `MOST` of them, as the checkpoint's model takes them.

    Raises InputDataError for a file that cannot be read, texts where there is no tokenizer, and
    lines that are neither texts nor inputs by name.
    """
    samples = []
    tokenizer = None
    runs = read_runs(path)
    used = min(len(runs), MOST)
    for where, run in (runs[i * len(runs) // used] for i in range(used)):
        text = run.get(TEXT) if isinstance(run, Mapping) and {*run} == {TEXT} else run
        if isinstance(text, str):
            tokenizer = tokenizer or _tokenizer(found)
            samples.append(_tokens(tokenizer, text, where))
        elif isinstance(run, Mapping):
            samples.append({name: _array(value, f"{where}: {name}") for name, value in run.items()})
        else:
            raise InputDataError(
                f'inputs {where}: a line is a text, an object {{"{TEXT}": ..}}, or an object of '
                f"arrays by the names of the model's inputs; got {type(run).__name__}"
            )
    if not samples:
        raise InputDataError(f"inputs {path}: there are none; give a text a line, 128 are enough")
    return samples


def _array(value: Any, where: str) -> np.ndarray[Any, Any]:
    try:
        found = np.asarray(value)
    except ValueError as error:  # rows of several lengths
        raise InputDataError(f"inputs {where}: {brief(error)}") from error
    if found.dtype.kind not in "biuf":
        given = "text" if found.dtype.kind == "U" else str(found.dtype)
        raise InputDataError(
            f"inputs {where}: needs numbers, not {given}; a line of text has the key 'text' alone"
        )
    return found.astype(np.float32) if found.dtype == np.float64 else found


def _tokenizer(found: Checkpoint) -> Any:
    from transformers import AutoTokenizer

    try:
        with quiet_libraries():
            return AutoTokenizer.from_pretrained(found.folder)
    except Exception as error:  # whatever transformers raises of a folder
        raise InputDataError(
            f"inputs: {found.name} has no tokenizer that reads texts ({brief(error)}); give arrays "
            "by the names of the model's inputs"
        ) from error


def _tokens(tokenizer: Any, text: str, where: str) -> Mapping[str, Any]:
    longest = min(_LONGEST, getattr(tokenizer, "model_max_length", _LONGEST))
    made = dict(tokenizer(text, truncation=True, max_length=longest, return_tensors="np"))
    if not made["input_ids"].size:
        raise InputDataError(f"inputs {where}: the text is empty; leave the line out")
    return made
