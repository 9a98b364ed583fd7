"""mIOU: intersection over union of predicted and true pixels, the mean over classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.errors import InputDataError
from octavo.measure.metrics.arrays import class_pairs
from octavo.measure.metrics.definition import Entry, Outputs, whole


def miou(predictions: Sequence[Outputs], labels: Sequence[Any], num_classes: int = 21) -> float:
    """torchmetrics' Jaccard index over all pixels, the mean of the classes that occur.

    The first output has classes [batch, height, width] or scores [batch, classes, height, width].
    Pixels whose label is not from 0 to `num_classes` - 1 are left out; a score of NaN is wrong.
    """
    import torch
    from torchmetrics.functional.classification import multiclass_jaccard_index

    predicted, true = class_pairs(predictions, labels)
    counted = (true >= 0) & (true < num_classes)
    predicted, true = predicted[counted].astype(np.int64), true[counted].astype(np.int64)
    if true.size == 0:
        raise InputDataError(f"mIOU: no pixel has a label from 0 to {num_classes - 1}")
    if predicted.max() >= num_classes:
        raise InputDataError(
            f"mIOU: the model predicts class {predicted.max()}, and num_classes is {num_classes}"
        )
    # NaN pixels are no class: one more than there are takes them, and its own share is left out.
    predicted = np.where(predicted < 0, num_classes, predicted)
    shares = multiclass_jaccard_index(
        torch.from_numpy(predicted), torch.from_numpy(true), num_classes + 1, average="none"
    ).numpy()[:num_classes]
    occurs = np.isin(np.arange(num_classes), np.concatenate([predicted, true]))
    return float(shares[occurs].mean())


METRICS = {
    "mIOU": Entry(
        miou,
        options={"num_classes": whole(2)},
        libraries=("torch", "torchmetrics"),
    )
}
