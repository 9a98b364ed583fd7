"""SquadF1: how much of the right answer the answer shares, as the SQuAD 1.1 evaluation defines it.

Two forms of predictions are taken:

- texts: the first output has a text a sample, the label a text or a list of right texts a sample.
  Texts are compared word by word after lower case, without punctuation and the articles a, an, the.
- spans: the first two outputs are the logits of the answer's start and end, [batch, tokens], the
  label is [batch, 2], the first and the last token of the right answer. Tokens take the words'
  place, so the figures are not those of texts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError
from octavo.measure.accuracy import Array, Outputs, batches
from octavo.tune.inc.metric_pairs import label_array, mismatch, text_pairs


def squad(predictions: Sequence[Outputs], labels: Sequence[Any], exact: bool = False) -> float:
    """The mean F1 in per cent, or with `exact` the share of answers that match, in per cent.

    The best of several right answers counts. A sample whose logits hold NaN has F1 0.
    """
    if predictions and len(predictions[0]) and np.asarray(predictions[0][0]).dtype.kind == "f":
        scores = _span_scores(predictions, labels, exact)
    else:
        found, wanted = text_pairs(predictions, labels)
        compare = _same if exact else _f1
        scores = [
            max(compare(_words(text), _words(answer)) for answer in answers)
            for text, answers in zip(found, wanted, strict=True)
        ]
    if not scores:
        raise InputDataError("there are no answers to score; the data holds no samples")
    return 100.0 * sum(scores) / len(scores)


def _words(text: str) -> list[str]:
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _same(found: list[str], wanted: list[str]) -> float:
    return float(found == wanted)


def _f1(found: list[str], wanted: list[str]) -> float:
    shared = sum((Counter(found) & Counter(wanted)).values())
    return 2.0 * shared / (len(found) + len(wanted)) if shared else 0.0


def _span_scores(predictions: Sequence[Outputs], labels: Sequence[Any], exact: bool) -> list[float]:
    scores: list[float] = []
    for number, (start, label) in enumerate(batches(predictions, labels)):
        wanted = label_array(label, number)
        end = np.asarray(predictions[number][1]) if len(predictions[number]) > 1 else start[:0]
        if wanted.shape == (2,) and len(start) == 1:
            wanted = wanted[None]
        fits = start.ndim == 2 and start.shape == end.shape and start.size
        if not fits or wanted.shape != (len(start), 2):
            raise mismatch(
                number,
                start,
                wanted,
                "SquadF1 takes texts, or logits of start and end [batch, tokens] and labels "
                "[batch, 2]",
            )
        for s, e, (first, last) in zip(start, end, wanted.tolist(), strict=True):
            span = _best_span(s, e)
            if span is None:
                scores.append(0.0)
                continue
            same = span == (first, last)
            scores.append(float(same) if exact or same else _overlap(span, (first, last)))
    return scores


def _best_span(start: Array, end: Array) -> tuple[int, int] | None:
    """The first and last token with the largest sum of logits, in order; None for NaN."""
    best_end = np.maximum.accumulate(end[::-1])[::-1]  # at or after each token
    total = start + best_end
    if np.isnan(total).any():
        return None
    first = int(np.argmax(total))
    return first, first + int(np.argmax(end[first:]))


def _overlap(found: tuple[int, int], wanted: tuple[float, float]) -> float:
    shared = min(found[1], wanted[1]) - max(found[0], wanted[0]) + 1
    lengths = found[1] - found[0] + 1 + wanted[1] - wanted[0] + 1
    return 2.0 * shared / lengths if shared > 0 else 0.0
