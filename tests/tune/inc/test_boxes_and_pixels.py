"""mAP and mIOU: what goes into torchmetrics, and with it installed, what comes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from octavo.errors import InputDataError, OptionError
from octavo.tune.inc.boxes import KEYS, mean_ap
from octavo.tune.inc.metrics import METRICS, metric

BOXES = np.array([[[0, 0, 10, 10], [20, 20, 30, 30]]], np.float32)
SCORES = np.array([[0.9, 0.8]], np.float32)
FOUND = [BOXES, SCORES, np.array([[1, 2]], np.float32)]
LABEL = {"boxes": BOXES[0].tolist(), "classes": [1, 2]}


class Recorder:
    """Stands in for torchmetrics' MeanAveragePrecision."""

    made: list[Recorder]

    def __init__(self, **options: Any) -> None:
        self.options, self.updates = options, []
        Recorder.made.append(self)

    def update(self, found: Any, wanted: Any) -> None:
        self.updates.append((found, wanted))

    def compute(self) -> dict[str, Any]:
        return {key: torch.tensor(float(i)) for i, key in enumerate(KEYS.values())}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Recorder]]:
    detection = ModuleType("torchmetrics.detection")
    detection.MeanAveragePrecision = Recorder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchmetrics", ModuleType("torchmetrics"))
    monkeypatch.setitem(sys.modules, "torchmetrics.detection", detection)
    Recorder.made = []
    yield Recorder


@pytest.mark.parametrize(
    ("outputs", "options"),
    [
        (FOUND, {}),
        ([np.array([2.0]), *FOUND], {}),
        ([part[0] for part in FOUND], {}),
        (FOUND[::-1], {"output_index_mapping": {"boxes": 2, "scores": 1, "classes": 0}}),
    ],
    ids=["three", "counted", "one-image", "mapped"],
)
@pytest.mark.parametrize(
    "label",
    [
        LABEL,
        [LABEL],
        [{"boxes": torch.tensor(BOXES[0]).numpy(), "labels": np.array([1, 2])}],
        (BOXES, [[]], [[1, 2]], [b"image"]),
        (BOXES, [[b"cat", "dog"]], [[]], [b"image"]),
    ],
    ids=["mapping", "mappings", "arrays", "classes", "names"],
)
def test_forms_of_predictions_and_labels(
    recorder: type[Recorder], tmp_path: Path, outputs: Any, options: Any, label: Any
) -> None:
    path = tmp_path / "names.yaml"
    path.write_text("cat: 1\ndog: 2\n")
    assert mean_ap([outputs], [label], anno_path=str(path), **options) == 0.0
    (((found,), (wanted,)),) = recorder.made[0].updates
    assert found["boxes"].dtype == torch.float32
    assert found["labels"].dtype == wanted["labels"].dtype == torch.int64
    np.testing.assert_array_equal(found["boxes"], BOXES[0])
    np.testing.assert_array_equal(found["scores"], SCORES[0])
    np.testing.assert_array_equal(found["labels"], [1, 2])
    np.testing.assert_array_equal(wanted["boxes"], BOXES[0])
    np.testing.assert_array_equal(wanted["labels"], [1, 2])


def test_boxes_that_do_not_count_and_images_without_objects(recorder: type[Recorder]) -> None:
    mean_ap([[np.array([1]), *FOUND]], [{"boxes": [], "classes": []}])
    (((found,), (wanted,)),) = recorder.made[0].updates
    assert found["boxes"].shape == (1, 4)
    assert wanted["boxes"].shape == (0, 4)
    assert wanted["labels"].shape == (0,)


def test_the_definitions_of_the_named_metrics(recorder: type[Recorder]) -> None:
    coco = [round(0.5 + 0.05 * i, 2) for i in range(10)]
    wanted = {
        "mAP": ([0.5], 1001),
        "VOCmAP": ([0.5], 1001),
        "COCOmAP": (coco, 101),
        "COCOmAPv2": (coco, 101),
    }
    for name, (overlaps, points) in wanted.items():
        METRICS[name].score([FOUND], [LABEL])
        options = recorder.made[-1].options
        assert options["iou_thresholds"] == overlaps
        assert len(options["rec_thresholds"]) == points
    key = "DetectionBoxes_Precision/mAP@.75IOU"
    assert METRICS["COCOmAP"].score([FOUND], [LABEL], map_key=key) == 2.0


@pytest.mark.parametrize(
    ("outputs", "label", "message"),
    [
        (FOUND[:2], LABEL, "returned 2 outputs; boxes are read from"),
        ([BOXES, SCORES[:, :1], FOUND[2]], LABEL, r"scores \[1, 1\] and classes \[1, 2\] are not"),
        (FOUND, [LABEL, LABEL], "boxes of 1 images are predicted, and labels are of 2"),
        (FOUND, 3, "the label is a int; give for each image a mapping"),
        (FOUND, [[1], [2]], "the label has 2 parts; they are boxes, names"),
        (FOUND, {"boxes": BOXES[0], "classes": [1]}, "no class for each box"),
        (FOUND, (BOXES, [["cat", "dog"]], [[]], ["i"]), "'cat' has no class; give `anno_path`"),
    ],
)
@pytest.mark.usefixtures("recorder")
def test_boxes_that_do_not_fit(outputs: Any, label: Any, message: str) -> None:
    with pytest.raises(InputDataError, match=f"batch 0: .*{message}"):
        mean_ap([outputs], [label])


@pytest.mark.usefixtures("recorder")
def test_names_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "names.yaml"
    with pytest.raises(OptionError, match=r"names.yaml: cannot be read as lines"):
        mean_ap([FOUND], [LABEL], anno_path=str(path))
    path.write_text("cat: first\n")
    with pytest.raises(OptionError, match=r"names.yaml: cannot be read as lines"):
        mean_ap([FOUND], [LABEL], anno_path=str(path))


# --- with the libraries ---


def test_mean_ap_of_known_boxes() -> None:
    for library in ("torchmetrics", "torchvision", "pycocotools"):
        pytest.importorskip(library)
    for name in ("mAP", "COCOmAP", "COCOmAPv2", "VOCmAP"):
        assert metric(name).score([FOUND], [LABEL]) == pytest.approx(1.0)
    # The first box overlaps by .6: right at three of COCO's ten thresholds.
    low = BOXES.copy()
    low[0, 0] = [0, 0, 10, 6]
    assert metric("mAP").score([[low, *FOUND[1:]]], [LABEL]) == pytest.approx(1.0)
    assert metric("COCOmAP").score([[low, *FOUND[1:]]], [LABEL]) == pytest.approx((0.3 + 1) / 2)
    # Two objects; right, wrong, right by score: precision 1 up to half the recall, 2/3 beyond.
    three = np.array([[[0, 0, 10, 10], [50, 50, 60, 60], [20, 20, 30, 30]]], np.float32)
    found = [three, np.array([[0.9, 0.8, 0.7]], np.float32), np.ones((1, 3), np.float32)]
    label = {"boxes": BOXES[0], "classes": [1, 1]}
    assert metric("mAP").score([found], [label]) == pytest.approx(0.5 + 0.5 * 2 / 3, abs=1e-3)
    eleven = metric("mAP", {"map_points": 11})
    assert eleven.score([found], [label]) == pytest.approx((6 + 5 * 2 / 3) / 11)


def test_miou_of_known_pixels() -> None:
    pytest.importorskip("torchmetrics")
    found = metric("mIOU", {"num_classes": 3})
    # Class 0: one of two, class 1: two of three; class 2 does not occur.
    maps, true = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 1, 1]])
    assert found.score([[maps]], [true]) == pytest.approx((1 / 2 + 2 / 3) / 2)
    true[0, 3] = 255  # not a class: left out
    scores = np.zeros((1, 3, 1, 4), np.float32)
    scores[0, [0, 0, 1, 1], 0, [0, 1, 2, 3]] = 1
    assert found.score([[scores]], [true[:, None]]) == pytest.approx((1 / 2 + 1 / 2) / 2)
    scores[0, 0, 0, 0] = np.nan  # wrong
    assert found.score([[scores]], [true[:, None]]) == pytest.approx((0 + 1 / 2) / 2)
    with pytest.raises(InputDataError, match="predicts class 7, and num_classes is 3"):
        found.score([[maps + 6]], [np.zeros((1, 4), int)])
    with pytest.raises(InputDataError, match="no pixel has a label from 0 to 2"):
        found.score([[maps]], [np.full((1, 4), 255)])
