"""mAP, COCOmAP, COCOmAPv2 and VOCmAP: the mean average precision of boxes, by torchmetrics.

Predictions are the outputs boxes [batch, N, 4], scores [batch, N] and classes [batch, N], in this
order, or after a first one with the number of boxes that count [batch], or where
`output_index_mapping` says. Boxes are two opposite corners, in the labels' unit and order.

A label is what Neural Compressor's dataloaders give, (boxes, names, classes, image ids) with a
sequence each, of which names or classes are empty; or for each image a mapping with `boxes` and
`classes` (one image: the mapping alone). Names are turned into classes by the YAML file
`anno_path`, which has lines `name: class`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import InputDataError, OptionError, brief
from octavo.measure.accuracy import Outputs, batches

COCO_THRESHOLDS = "0.5:0.05:0.95"
KEYS = {
    "DetectionBoxes_Precision/mAP": "map",
    "DetectionBoxes_Precision/mAP@.50IOU": "map_50",
    "DetectionBoxes_Precision/mAP@.75IOU": "map_75",
    "DetectionBoxes_Precision/mAP (small)": "map_small",
    "DetectionBoxes_Precision/mAP (medium)": "map_medium",
    "DetectionBoxes_Precision/mAP (large)": "map_large",
}
# Recall levels: torchmetrics takes points, so that the whole area (0) is a fine grid of them.
POINTS = {0: 1001, 11: 11, 101: 101}

Boxes = dict[str, Any]


def mean_ap(
    predictions: Sequence[Outputs],
    labels: Sequence[Any],
    iou_thrs: float | str = 0.5,
    map_points: int = 0,
    map_key: str = "DetectionBoxes_Precision/mAP",
    anno_path: str = "",
    output_index_mapping: Mapping[str, int] | None = None,
) -> float:
    """The mean over classes of the average precision, 0 to 1, at the overlaps `iou_thrs`.

    `map_points` are the recall levels of the average: 101 as COCO, 11 as VOC 2007, 0 the area under
    the curve (to a thousandth). -1 where no image has an object that counts.
    """
    import torch
    from torchmetrics.detection import MeanAveragePrecision

    overlaps = np.arange(0.5, 1.0, 0.05) if iou_thrs == COCO_THRESHOLDS else [float(iou_thrs)]
    metric = MeanAveragePrecision(
        iou_thresholds=[round(float(t), 2) for t in overlaps],
        rec_thresholds=np.linspace(0.0, 1.0, POINTS[map_points]).tolist(),
    )
    metric.warn_on_many_detections = False
    names = _names(anno_path) if anno_path else {}

    def tensors(boxes: Boxes) -> dict[str, Any]:
        kinds = {"boxes": np.float32, "scores": np.float32, "labels": np.int64}
        return {key: torch.from_numpy(boxes[key].astype(kinds[key])) for key in boxes}

    for number, (_, label) in enumerate(batches(predictions, labels)):
        found = list(_found(predictions[number], output_index_mapping, number))
        wanted = list(_wanted(label, names, number))
        if len(found) != len(wanted):
            raise InputDataError(
                f"batch {number}: boxes of {len(found)} images are predicted, and labels are of "
                f"{len(wanted)}"
            )
        metric.update([tensors(b) for b in found], [tensors(b) for b in wanted])
    return float(metric.compute()[KEYS[map_key]])


def _found(outputs: Outputs, mapping: Mapping[str, int] | None, number: int) -> Iterator[Boxes]:
    """Predicted boxes of each image."""
    if mapping is None:
        order = ["boxes", "scores", "classes"]
        order = ["num_detections", *order] if len(outputs) >= 4 else order
        mapping = {name: index for index, name in enumerate(order)}
    if max(mapping.values()) >= len(outputs):
        raise InputDataError(
            f"batch {number}: the model returned {len(outputs)} outputs; boxes are read from "
            f"{dict(mapping)}"
        )
    boxes, scores, kinds = (
        np.asarray(outputs[mapping[name]]) for name in ("boxes", "scores", "classes")
    )
    if boxes.ndim == 2:
        boxes, scores, kinds = boxes[None], scores[None], kinds[None]
    fits = boxes.ndim == 3 and boxes.shape[2] == 4
    if not fits or not scores.shape == kinds.shape == boxes.shape[:2]:
        raise InputDataError(
            f"batch {number}: boxes {list(boxes.shape)}, scores {list(scores.shape)} and classes "
            f"{list(kinds.shape)} are not [batch, N, 4], [batch, N] and [batch, N]"
        )
    at = mapping.get("num_detections", -1)
    counts = [boxes.shape[1]] * len(boxes)
    if at >= 0:
        counts = [int(n) for n in np.asarray(outputs[at]).ravel()]
    for image, count in enumerate(counts[: len(boxes)]):
        one = {"boxes": boxes[image], "scores": scores[image], "labels": kinds[image]}
        yield {key: value[:count] for key, value in one.items()}


def _wanted(label: Any, names: Mapping[str, int], number: int) -> Iterator[Boxes]:
    """True boxes of each image."""
    if isinstance(label, Mapping):
        label = [label]
    if not isinstance(label, (list, tuple)) or not label:
        raise InputDataError(
            f"batch {number}: the label is a {type(label).__name__}; give for each image a mapping "
            "with boxes and classes"
        )
    if isinstance(label[0], Mapping):
        images = [(i.get("boxes"), i.get("classes", i.get("labels"))) for i in label]
    elif len(label) == 4:
        boxes, texts, kinds, _ = label
        known = [k if len(k) else t for k, t in zip(kinds, texts, strict=True)]
        images = list(zip(boxes, known, strict=True))
    else:
        raise InputDataError(
            f"batch {number}: the label has {len(label)} parts; they are boxes, names, classes and "
            "image ids"
        )
    for boxes, kinds in images:
        if boxes is None or kinds is None or len(boxes) != len(kinds):
            raise InputDataError(f"batch {number}: an image's label has no class for each box")
        numbers = [_class(kind, names, number) for kind in np.asarray(kinds).ravel().tolist()]
        yield {
            "boxes": np.asarray(boxes, np.float32).reshape(-1, 4),
            "labels": np.asarray(numbers, np.int64),
        }


def _class(kind: Any, names: Mapping[str, int], number: int) -> int:
    text = kind.decode("utf-8", "replace") if isinstance(kind, bytes) else kind
    if not isinstance(text, str):
        return int(text)
    if text not in names:
        raise InputDataError(
            f"batch {number}: the object {text!r} has no class; give `anno_path`, a YAML file with "
            f"lines `{text}: 1`"
        )
    return names[text]


def _names(path: str) -> dict[str, int]:
    from ruamel.yaml import YAML

    try:
        with Path(path).open(encoding="utf-8") as file:
            data = YAML(typ="safe").load(file)
        return {str(name): int(kind) for name, kind in data.items()}
    except Exception as error:  # the file's, the YAML's, or a value that is no number
        raise OptionError(
            f"anno_path {path}: cannot be read as lines `name: class`: {brief(error)}"
        ) from error
