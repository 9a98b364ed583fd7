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
    """Return the mean over classes of the average precision, 0 to 1, at the overlaps `iou_thrs`.

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

    def tensors(images: list[Boxes]) -> list[dict[str, Any]]:
        kinds = {"boxes": np.float32, "scores": np.float32, "labels": np.int64}
        return [
            {key: torch.from_numpy(value.astype(kinds[key])) for key, value in boxes.items()}
            for boxes in images
        ]

    for number, (_, label) in enumerate(batches(predictions, labels)):
        try:
            found = list(_found(predictions[number], output_index_mapping))
            wanted = [_wanted(boxes, kinds, names) for boxes, kinds in _images(label)]
            if len(found) != len(wanted):
                raise InputDataError(
                    f"boxes of {len(found)} images are predicted, and labels are of {len(wanted)}"
                )
        except InputDataError as error:
            raise InputDataError(f"batch {number}: {error}") from None
        metric.update(tensors(found), tensors(wanted))
    return float(metric.compute()[KEYS[map_key]])


def _found(outputs: Outputs, mapping: Mapping[str, int] | None) -> Iterator[Boxes]:
    """Yield the predicted boxes of each image."""
    if mapping is None:
        order = ["num_detections"] * (len(outputs) >= 4) + ["boxes", "scores", "classes"]
        mapping = {name: index for index, name in enumerate(order)}
    if max(mapping.values()) >= len(outputs):
        raise InputDataError(
            f"the model returned {len(outputs)} outputs; boxes are read from {dict(mapping)}"
        )
    boxes, scores, kinds = (
        np.asarray(outputs[mapping[name]]) for name in ("boxes", "scores", "classes")
    )
    if boxes.ndim == 2:
        boxes, scores, kinds = boxes[None], scores[None], kinds[None]
    fits = boxes.ndim == 3 and boxes.shape[2] == 4
    if not fits or not scores.shape == kinds.shape == boxes.shape[:2]:
        raise InputDataError(
            f"boxes {list(boxes.shape)}, scores {list(scores.shape)} and classes "
            f"{list(kinds.shape)} are not [batch, N, 4], [batch, N] and [batch, N]"
        )
    at = mapping.get("num_detections", -1)
    counts = np.asarray(outputs[at]).ravel() if at >= 0 else [boxes.shape[1]] * len(boxes)
    for count, *parts in zip(counts, boxes, scores, kinds, strict=False):
        one = dict(zip(("boxes", "scores", "labels"), parts, strict=True))
        yield {key: value[: int(count)] for key, value in one.items()}


def _images(label: Any) -> list[tuple[Any, Any]]:
    """Return the boxes of each image, and their classes or names."""
    each = [label] if isinstance(label, Mapping) else label
    if not isinstance(each, (list, tuple)) or not each:
        raise InputDataError(
            f"the label is a {type(each).__name__}; give for each image a mapping with boxes and "
            "classes"
        )
    if isinstance(each[0], Mapping):
        return [(image.get("boxes"), image.get("classes", image.get("labels"))) for image in each]
    if len(each) != 4:
        raise InputDataError(
            f"the label has {len(each)} parts; they are boxes, names, classes and image ids"
        )
    boxes, texts, kinds, _ = each
    known = [k if len(k) else t for k, t in zip(kinds, texts, strict=True)]
    return list(zip(boxes, known, strict=True))


def _wanted(boxes: Any, kinds: Any, names: Mapping[str, int]) -> Boxes:
    """Return the true boxes of an image."""
    if boxes is None or kinds is None or len(boxes) != len(kinds):
        raise InputDataError("an image's label has no class for each box")
    numbers = []
    for kind in np.asarray(kinds).ravel().tolist():
        text = kind.decode("utf-8", "replace") if isinstance(kind, bytes) else kind
        if isinstance(text, str) and text not in names:
            raise InputDataError(
                f"the object {text!r} has no class; give `anno_path`, a YAML file with lines "
                f"`{text}: 1`"
            )
        numbers.append(names[text] if isinstance(text, str) else int(text))
    return {
        "boxes": np.asarray(boxes, np.float32).reshape(-1, 4),
        "labels": np.asarray(numbers, np.int64),
    }


def _names(path: str) -> dict[str, int]:
    """Read the class of each name."""
    from ruamel.yaml import YAML

    try:
        with Path(path).open(encoding="utf-8") as file:
            data = YAML(typ="safe").load(file)
        return {str(name): int(kind) for name, kind in data.items()}
    except Exception as error:  # the file's, the YAML's, or a value that is no number
        raise OptionError(
            f"anno_path {path}: cannot be read as lines `name: class`: {brief(error)}"
        ) from error
