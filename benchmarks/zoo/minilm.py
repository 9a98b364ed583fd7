"""all-MiniLM-L6 with what int8 does to it: three labelled tasks and the error of the hidden states.

    path = onnx_path()
    embed = embedder(open_session(path))
    evaluation = Evaluation(embed)             # the float model, which also fits the TREC probe
    evaluation.scores(embed)                   # Scores(lee=.656, wordsim=.729, trec=.805)
    evaluation.scores(embedder(int8_session))
    hidden_state_error(open_session(path), int8_session)

A PyTorch module from ``torch_model()`` may stand wherever a session does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from benchmarks.zoo.minilm_export import (
    Exporter,
    onnx_path,
    torch_hidden_states,
    torch_model,
    untrained_model,
)
from benchmarks.zoo.minilm_text import (
    INPUT_NAMES,
    MAX_LENGTH,
    Questions,
    lee_documents,
    lee_similarities,
    model_dir,
    questions,
    tokenize,
    word_pairs,
)
from benchmarks.zoo.sessions import Array, Float32, Int64, Session, open_session

if TYPE_CHECKING:
    import torch

__all__ = [
    "INPUT_NAMES",
    "MAX_LENGTH",
    "SERVED",
    "Embed",
    "Evaluation",
    "Exporter",
    "Questions",
    "Scores",
    "embedder",
    "hidden_state_error",
    "hidden_states",
    "lee_documents",
    "lee_similarities",
    "model_dir",
    "onnx_path",
    "open_session",
    "questions",
    "tokenize",
    "torch_model",
    "untrained_model",
    "word_pairs",
]

WIDTH = 384
SERVED = "sdpa"
"""The attention that transformers gives whoever does not ask: what PyTorch users run."""
Embed = Callable[[Sequence[str]], Float32]
Model: TypeAlias = "Session | torch.nn.Module"

_FIT, _TEST = 1500, 600
# scikit-learn's default of 1 fits too little: a unit vector's entries are about 0.05.
_INVERSE_REGULARIZATION = 10.0


def hidden_states(model: Model, feed: dict[str, Int64]) -> Array:
    """Last hidden state, ``float32 [batch, tokens, 384]``, for a feed of ``tokenize``."""
    if isinstance(model, Session):
        return model.run(None, feed)[0]
    return torch_hidden_states(model, feed)


def embedder(model: Model, batch: int = 32) -> Embed:
    """The function texts -> ``float32 [n, 384]`` unit vectors of the package's configuration.

    Mean of the real tokens' hidden states, then L2 normalization. Texts run ``batch`` at a time in
    order of length, so that little of the work is padding.
    """

    def embed(texts: Sequence[str]) -> Float32:
        vectors = np.empty((len(texts), WIDTH), dtype=np.float32)
        for rows, feed in _batches(tuple(texts), batch):
            weights = feed["attention_mask"][..., np.newaxis].astype(np.float32)
            pooled = (hidden_states(model, feed) * weights).sum(axis=1) / weights.sum(axis=1)
            vectors[rows] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors

    return embed


@lru_cache(maxsize=16)
def _batches(texts: tuple[str, ...], batch: int) -> list[tuple[Int64, dict[str, Int64]]]:
    """Rows of ``texts`` and their feed, shortest first; cached, as every model sees the same."""
    lengths = tokenize(texts)["attention_mask"].sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    chunks = [order[start : start + batch] for start in range(0, len(order), batch)]
    return [(rows, tokenize([texts[row] for row in rows])) for rows in chunks]


@dataclass(frozen=True)
class Scores:
    """Pearson correlation on Lee, Spearman's on WordSim353, accuracy of the TREC probe."""

    lee: float
    wordsim: float
    trec: float

    def by_task(self) -> dict[str, float]:
        return {
            "Lee, Pearson": self.lee,
            "WordSim353, Spearman": self.wordsim,
            "TREC probe, accuracy": self.trec,
        }


@dataclass(frozen=True)
class Evaluation:
    """The three tasks, for any number of models against one float model.

    ``float_embed`` fits the TREC probe: a logistic regression on float embeddings, kept fixed, so
    that int8 embeddings must be right themselves and not merely separable.
    """

    float_embed: Embed

    def scores(self, embed: Embed) -> Scores:
        return Scores(self.lee(embed), self.wordsim(embed), self.trec(embed))

    def lee(self, embed: Embed) -> float:
        """Pearson correlation of cosine and human similarity over the 1225 Lee pairs."""
        vectors = embed(lee_documents())
        cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
        return float(np.corrcoef(cosines, lee_similarities())[0, 1])

    def wordsim(self, embed: Embed) -> float:
        """Spearman correlation of cosine and human similarity over the 353 pairs of words."""
        from scipy.stats import spearmanr

        pairs = word_pairs()
        words = sorted({word for first, second, _ in pairs for word in (first, second)})
        vectors = dict(zip(words, embed(words), strict=True))
        cosines = [float(vectors[first] @ vectors[second]) for first, second, _ in pairs]
        return float(spearmanr(cosines, [score for _, _, score in pairs]).statistic)

    def trec(self, embed: Embed) -> float:
        """Accuracy of the probe on 600 questions that it was not fitted on."""
        _, test, _ = _split()
        return float(self._probe.score(embed(test.texts), test.labels))

    def trec_held_out(self, embed: Embed) -> float:
        """Accuracy of the probe on all 3,880 questions that it was not fitted on.

        Those of `trec` are among them.
        """
        _, _, held_out = _split()
        return float(self._probe.score(embed(held_out.texts), held_out.labels))

    @cached_property
    def _probe(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        fit, _, _ = _split()
        probe = LogisticRegression(C=_INVERSE_REGULARIZATION, max_iter=2000)
        return probe.fit(self.float_embed(fit.texts), fit.labels)


@lru_cache
def _split() -> tuple[Questions, Questions, Questions]:
    """1500 questions to fit the probe, 600 others to test it, and those with all of the rest."""
    everything = questions()
    # RandomState's stream is frozen for good; default_rng's may change with numpy.
    order = np.random.RandomState(0).permutation(len(everything.texts))
    parts = (order[:_FIT], order[_FIT : _FIT + _TEST], order[_FIT:])
    fit, test, held_out = (everything.take(part) for part in parts)
    return fit, test, held_out


def hidden_state_error(float_model: Model, int8_model: Model, batch: int = 50) -> float:
    """1 - cosine between both models' hidden states over all real tokens of the 50 Lee documents.

    One cosine over everything (each token's vector weighs by its norm), 0 for equal models. The
    documents run padded, ``batch`` at a time; a batch widens the range of a scheme with one
    activation scale per tensor, so its figure is a little better with ``batch=1``.
    """
    dot = norm_float = norm_int8 = 0.0
    documents = lee_documents()
    for start in range(0, len(documents), batch):
        feed = tokenize(documents[start : start + batch])
        real = feed["attention_mask"] == 1
        expected = hidden_states(float_model, feed)[real].astype(np.float64)
        got = hidden_states(int8_model, feed)[real].astype(np.float64)
        dot += float((expected * got).sum())
        norm_float += float((expected * expected).sum())
        norm_int8 += float((got * got).sum())
    return 1.0 - dot / float(np.sqrt(norm_float * norm_int8))
