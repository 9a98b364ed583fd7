"""BLEU, WER, CER and SquadF1: metrics of texts.

Texts are one a sample, [batch] or [batch, 1]; a label is a text a sample, for BLEU and SquadF1 also
a list of texts, each of them a right answer.

SquadF1 is as the SQuAD 1.1 evaluation defines it: texts are compared word by word after lower case,
without punctuation and the articles a, an, the. It takes spans, too: the first two outputs are the
logits of the answer's start and end, [batch, tokens], and the label is [batch, 2], the first and
the last token of the right answer. Tokens take the words' place, so the figures are not those of
texts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError, brief
from octavo.measure.accuracy import Array, Outputs, batches
from octavo.tune.inc.metric_pairs import label_array, mismatch


def bleu(
    predictions: Sequence[Outputs],
    labels: Sequence[Any],
    tokenize: str = "13a",
    lowercase: bool = False,
) -> float:
    """Return sacreBLEU's corpus BLEU, 0 to 100."""
    from sacrebleu.metrics import BLEU

    found, wanted = _text_pairs(predictions, labels)
    most = max(map(len, wanted))
    streams = [
        [answers[i] if i < len(answers) else None for answers in wanted] for i in range(most)
    ]
    metric = BLEU(tokenize=tokenize, lowercase=lowercase)
    return float(metric.corpus_score(found, streams).score)


def error_rate(predictions: Sequence[Outputs], labels: Sequence[Any], function: str) -> float:
    """Return jiwer's `wer` (words) or `cer` (characters) over all texts.

    0 is perfect, and it can exceed 1.
    """
    import jiwer

    found, wanted = _text_pairs(predictions, labels)
    several = next((answers for answers in wanted if len(answers) != 1), None)
    if several:
        raise InputDataError(f"an error rate takes one reference a sample, not {several!r}")
    try:
        return float(getattr(jiwer, function)([answers[0] for answers in wanted], found))
    except ValueError as error:  # an empty reference
        raise InputDataError(f"the error rate cannot be computed: {brief(error)}") from error


def squad(predictions: Sequence[Outputs], labels: Sequence[Any], exact: bool = False) -> float:
    """Return the mean F1 in per cent, or with `exact` the share of answers that match.

    The best of several right answers counts. A sample whose logits hold NaN has F1 0.
    """
    if predictions and len(predictions[0]) and np.asarray(predictions[0][0]).dtype.kind == "f":
        scores = _span_scores(predictions, labels, exact)
    else:
        scores = [
            max(_shared_words(_words(text), _words(answer), exact) for answer in answers)
            for text, answers in zip(*_text_pairs(predictions, labels), strict=True)
        ]
    if not scores:
        raise InputDataError("there are no answers to score; the data holds no samples")
    return 100.0 * sum(scores) / len(scores)


def _text_pairs(
    predictions: Sequence[Outputs], labels: Sequence[Any]
) -> tuple[list[str], list[list[str]]]:
    """Return each sample's predicted text, and its references."""
    found: list[str] = []
    wanted: list[list[str]] = []
    for number, (output, label) in enumerate(batches(predictions, labels)):
        texts = _texts(output.ravel())
        if texts is None:
            raise InputDataError(
                f"batch {number}: the metric compares texts, and the model's first output is "
                f"{list(output.shape)} of {output.dtype}; decode it in an `evaluate` function"
            )
        given = label.tolist() if isinstance(label, np.ndarray) else label
        each = [given] if isinstance(given, (str, bytes)) else given or []
        answers = [_texts(answer) for answer in each]
        known = [answer for answer in answers if answer]
        if not len(known) == len(answers) == len(texts):
            raise InputDataError(
                f"batch {number}: {len(texts)} texts are predicted, and the label is "
                f"{label!r:.60}; it is a list with a text for each"
            )
        found += texts
        wanted += known
    return found, wanted


def _texts(item: Any) -> list[str] | None:
    """Return one text or a list of them as a list; None where they are no texts."""
    given = item.tolist() if isinstance(item, np.ndarray) else item
    each = given if isinstance(given, (list, tuple)) else [given]
    texts = [t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in each]
    return texts if all(isinstance(text, str) for text in texts) else None


def _words(text: str) -> list[str]:
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _shared_words(found: list[str], wanted: list[str], exact: bool) -> float:
    if exact:
        return float(found == wanted)
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
            said = "SquadF1 takes texts, or logits of start and end [batch, tokens] and labels"
            raise mismatch(number, start, wanted, f"{said} [batch, 2]")
        for s, e, (first, last) in zip(start, end, wanted.tolist(), strict=True):
            span = _best_span(s, e)
            same = span == (first, last)
            if span is None or (exact and not same):
                scores.append(0.0)
            else:
                scores.append(1.0 if same else _overlap(span, (first, last)))
    return scores


def _best_span(start: Array, end: Array) -> tuple[int, int] | None:
    """Return the first and last token with the largest sum of logits, in order; None for NaN."""
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
