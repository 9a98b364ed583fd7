"""BLEU, WER and CER: predicted texts beside reference texts.

The first output has one text a sample, [batch] or [batch, 1]. A label is a text a sample; for BLEU
it may also be a list of texts a sample, each of them a right answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError, brief
from octavo.measure.metrics.arrays import batches
from octavo.measure.metrics.definition import BOOLEAN, Entry, Option, Outputs


def text_pairs(
    predictions: Sequence[Outputs], labels: Sequence[Any]
) -> tuple[list[str], list[list[str]]]:
    """Each sample's predicted text, and its references."""
    found: list[str] = []
    wanted: list[list[str]] = []
    for number, (output, label) in enumerate(batches(predictions, labels)):
        texts = [_text(item) for item in output.ravel().tolist()]
        plain = label.tolist() if isinstance(label, np.ndarray) else label
        answers = [
            _answers(a) for a in ([plain] if isinstance(plain, (str, bytes)) else plain or ())
        ]
        if None in texts:
            raise InputDataError(
                f"batch {number}: the metric compares texts, and the model's first output is "
                f"{list(output.shape)} of {output.dtype}; decode it in an `evaluate` function"
            )
        if None in answers or len(answers) != len(texts):
            raise InputDataError(
                f"batch {number}: {len(texts)} texts are predicted, and the label is "
                f"{_shown(label)}; it is a list with a text for each"
            )
        found += [t for t in texts if t is not None]
        wanted += [a for a in answers if a is not None]
    return found, wanted


def _shown(label: Any) -> str:
    return repr(label) if len(repr(label)) < 60 else f"{repr(label)[:60]} ..."


def _text(item: Any) -> str | None:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return item if isinstance(item, str) else None


def _answers(item: Any) -> list[str] | None:
    """One sample's references; None where they are no texts."""
    if isinstance(item, np.ndarray):
        item = item.tolist()
    texts = [_text(part) for part in (item if isinstance(item, (list, tuple)) else [item])]
    known = [text for text in texts if text is not None]
    return known if known and len(known) == len(texts) else None


def bleu(
    predictions: Sequence[Outputs],
    labels: Sequence[Any],
    tokenize: str = "13a",
    lowercase: bool = False,
) -> float:
    """sacreBLEU's corpus BLEU, 0 to 100."""
    from sacrebleu.metrics import BLEU

    found, wanted = text_pairs(predictions, labels)
    most = max(map(len, wanted))
    streams = [
        [answers[i] if i < len(answers) else None for answers in wanted] for i in range(most)
    ]
    metric = BLEU(tokenize=tokenize, lowercase=lowercase)
    return float(metric.corpus_score(found, streams).score)


def wer(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """jiwer's word error rate over all texts: 0 is perfect, and it can exceed 1."""
    from jiwer import wer as rate

    return _rate(rate, predictions, labels)


def cer(predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    """jiwer's character error rate over all texts: 0 is perfect, and it can exceed 1."""
    from jiwer import cer as rate

    return _rate(rate, predictions, labels)


def _rate(rate: Any, predictions: Sequence[Outputs], labels: Sequence[Any]) -> float:
    found, wanted = text_pairs(predictions, labels)
    several = next((answers for answers in wanted if len(answers) != 1), None)
    if several:
        raise InputDataError(f"an error rate takes one reference a sample, not {several!r}")
    try:
        return float(rate([answers[0] for answers in wanted], found))
    except ValueError as error:  # an empty reference
        raise InputDataError(f"the error rate cannot be computed: {brief(error)}") from error


METRICS = {
    "BLEU": Entry(
        bleu,
        options={
            "tokenize": Option.one_of("13a", "intl", "char", "zh", "none"),
            "lowercase": BOOLEAN,
        },
        libraries=("sacrebleu",),
    ),
    "WER": Entry(wer, higher_is_better=False, libraries=("jiwer",)),
    "CER": Entry(cer, higher_is_better=False, libraries=("jiwer",)),
}
