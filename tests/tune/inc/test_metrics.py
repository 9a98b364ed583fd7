"""Metrics by name: golden values, batches of any size, what does not fit, what is refused."""

from __future__ import annotations

import importlib.util
import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InputDataError, OptionError
from octavo.measure.accuracy import Metric
from octavo.tune.inc.metrics import METRICS, metric

Array = npt.NDArray[Any]


def texts(*items: Any) -> Array:
    return np.array(items, dtype=object)


def cut(values: Any, sizes: Sequence[int]) -> list[Any]:
    """`values` in batches of these sizes."""
    ends = np.cumsum(sizes).tolist()
    assert ends[-1] == len(values)
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def score(found: Metric, predicted: Any, labels: Any, sizes: Sequence[int] | None = None) -> float:
    sizes = sizes or [len(predicted)]
    return found.score([[batch] for batch in cut(predicted, sizes)], cut(labels, sizes))


# scikit-learn's documentation of top_k_accuracy_score.
TOPK = np.array([[0.5, 0.2, 0.2], [0.3, 0.4, 0.2], [0.2, 0.4, 0.3], [0.7, 0.2, 0.1]], np.float32)
# ... of f1_score, and of matthews_corrcoef (with -1 as 0).
F1_TRUE, F1_FOUND = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 2, 1, 0, 0, 1])
MCC_TRUE, MCC_FOUND = np.array([1, 1, 1, 0]), np.array([1, 0, 1, 1])
# ... of roc_auc_score, and of mean_squared_error and mean_absolute_error.
ROC_TRUE, ROC_FOUND = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8], np.float32)
MSE_TRUE, MSE_FOUND = np.array([3, -0.5, 2, 7]), np.array([2.5, 0.0, 2, 8], np.float32)
# SciPy's documentation of pearsonr and spearmanr.
PEARSON = np.array([1.0, 2, 3, 4, 5, 6, 7]), np.array([10, 9, 2.5, 6, 4, 3, 2])
SPEARMAN = np.array([1.0, 2, 3, 4, 5]), np.array([5, 6, 7, 8, 7])
# sacreBLEU's README, whose two references a sentence score 48.53; jiwer's, "duck" for "world".
BLEU_FOUND = texts("The dog bit the man.", "It wasn't surprising.", "The man had just bitten him.")
BLEU_TRUE = [
    ["The dog bit the man.", "The dog had bit the man."],
    ["It was not unexpected.", "No one was surprised."],
    ["The man bit him first.", "The man had bitten the dog."],
]

GOLDEN: dict[str, tuple[str, Any, Any, Any, float]] = {
    "top-1": ("topk", 1, TOPK, [0, 1, 2, 2], 0.5),
    "top-2": ("topk", {"k": 2}, TOPK, [0, 1, 2, 2], 0.75),
    "top-1-one-hot": ("topk", None, TOPK, np.eye(3)[[0, 1, 2, 2]], 0.5),
    "accuracy": ("Accuracy", {}, TOPK, [0, 1, 2, 2], 0.5),
    "accuracy-column": ("Accuracy", {}, TOPK, np.array([[0], [1], [2], [2]]), 0.5),
    "accuracy-classes": ("Accuracy", {}, F1_FOUND, F1_TRUE, 2 / 6),
    "accuracy-binary": ("Accuracy", {}, ROC_FOUND[:, None], ROC_TRUE, 0.75),
    "accuracy-threshold": ("Accuracy", {"threshold": 0.2}, ROC_FOUND, ROC_TRUE, 0.75),
    "accuracy-texts": ("Accuracy", None, texts("a", "b", "c"), ["a", "b", "d"], 2 / 3),
    "f1-macro": ("F1", {"average": "macro"}, F1_FOUND, F1_TRUE, 0.8 / 3),
    "f1-micro": ("F1", {"average": "micro"}, F1_FOUND, F1_TRUE, 1 / 3),
    "f1-binary": ("F1", {}, MCC_FOUND, MCC_TRUE, 2 / 3),
    "roc": ("ROC", {"task": "dlrm"}, ROC_FOUND, ROC_TRUE, 0.75),
    "roc-two-logits": ("ROC", {}, np.stack([-ROC_FOUND, ROC_FOUND], 1), ROC_TRUE, 0.75),
    "mse": ("MSE", {}, MSE_FOUND, MSE_TRUE, 0.375),
    "rmse": ("RMSE", {"compare_label": True}, MSE_FOUND[:, None], MSE_TRUE, math.sqrt(0.375)),
    "mae": ("MAE", None, MSE_FOUND, MSE_TRUE, 0.5),
    "loss": ("Loss", {}, MSE_FOUND, MSE_TRUE, 3.125),
    "pearson": ("Pearson", {}, PEARSON[0], PEARSON[1], -0.828503883588428),
    "spearman": ("Spearman", {}, SPEARMAN[0], SPEARMAN[1], 0.8207826816681233),
    "bleu": ("BLEU", {}, BLEU_FOUND, BLEU_TRUE, 48.530827009929865),
    "wer": ("WER", {}, texts("hello duck", "one two"), ["hello world", "one two"], 0.25),
    "cer": ("CER", {}, texts("i cant spell"), ["i can spell"], 1 / 11),
    # Two of two words are among the four of the answer; the second answer is right.
    "roc-two-scores": (
        "ROC",
        {},
        np.array([[0, 1], [4, 6], [0, 2], [4, 5.5]], np.float32),
        ROC_TRUE,
        0.625,
    ),  # differences of 1, 2, 2 and 1.5
    "squad": ("SquadF1", {}, texts("the Eiffel Tower!"), ["Eiffel tower in Paris"], 100 * 4 / 6),
    "squad-best": ("SquadF1", {}, texts("a tower"), [["Paris", "The tower."]], 100.0),
    "squad-exact": (
        "SquadF1",
        {"exact": True},
        texts("A Tower.", "x"),
        [["Paris", "tower"], "y"],
        50.0,
    ),
    "glue-mrpc": ("GLUE", {"task": "mrpc"}, TOPK, [0, 1, 2, 2], 0.5),
    "glue-cola": ("GLUE", {"task": "cola"}, np.eye(2)[MCC_FOUND], MCC_TRUE, -1 / 3),
    "glue-sts-b": (
        "GLUE",
        {"task": "sts-b"},
        SPEARMAN[0][:, None],
        SPEARMAN[1],
        (0.8207826816681233 + 0.8320502943378436) / 2,
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_values_in_batches_of_any_size(case: str) -> None:
    name, options, predicted, labels, wanted = GOLDEN[case]
    found = metric(name, options)
    assert found.name == name
    assert score(found, predicted, labels) == pytest.approx(wanted, abs=1e-9)
    if len(predicted) > 2:
        sizes = [1, len(predicted) - 2, 1]
        assert score(found, predicted, labels, sizes) == pytest.approx(wanted, abs=1e-9)
    again = pickle.loads(pickle.dumps(found))
    assert score(again, predicted, labels) == pytest.approx(wanted, abs=1e-9)


def test_each_metric_says_its_direction_and_what_it_is_compared_with() -> None:
    lower = {n for n in ALL if not metric(n).higher_is_better}
    assert lower == {"MSE", "RMSE", "MAE", "Loss", "WER", "CER"}
    assert {n for n in ALL if not metric(n).needs_labels} == {"Loss", "agreement", "closeness"}
    assert {n for n in ALL if metric(n).needs_references} == {"agreement", "closeness"}
    against_float = metric("mse", {"compare_label": False})
    assert against_float.name == "MSE"
    assert against_float.needs_references
    assert not against_float.needs_labels


ALL = [name for name in METRICS if not name.endswith(("mIOU", "mAP", "mAPv2"))]


def test_equal_scores_go_to_the_first_class() -> None:
    """A model that says nothing is not right about everything."""
    same = np.zeros((4, 4), np.float32)
    assert score(metric("topk", 1), same, [0, 1, 2, 3]) == 0.25
    assert score(metric("topk", 3), same, [0, 1, 2, 3]) == 0.75
    assert score(metric("Accuracy"), same, [0, 1, 2, 3]) == 0.25


def test_tokens_and_pixels_are_samples() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((2, 5, 3)).astype(np.float32)  # [batch, tokens, classes]
    true = tokens.argmax(axis=2)
    true[0, 0] = (true[0, 0] + 1) % 3
    assert score(metric("Accuracy"), tokens, true) == pytest.approx(0.9)
    pixels = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)  # [batch, classes, h, w]
    assert score(metric("Accuracy"), pixels, pixels.argmax(axis=1)) == 1.0


def test_nan_is_wrong_or_the_answer() -> None:
    bad = TOPK.copy()
    bad[0, 2] = np.nan
    assert score(metric("topk", 1), TOPK[:2], [0, 1]) == 1.0
    assert score(metric("topk", 1), bad[:2], [0, 1]) == 0.5
    assert score(metric("Accuracy"), bad[:2], [0, 1]) == 0.5
    assert score(metric("Accuracy"), bad[:2], [-1, 1]) == 0.5
    column = np.array([np.nan, 0.1, 0.9], np.float32)
    for name in ("F1", "ROC", "MSE", "RMSE", "MAE", "Loss", "Pearson", "Spearman"):
        assert math.isnan(score(metric(name), column, [0, 0, 1])), name
    assert math.isnan(score(metric("GLUE", {"task": "cola"}), bad[:2], [0, 1]))
    assert score(metric("Pearson"), column[1:], [3.0, 3.0]) != 0  # constant: NaN, and no warning


def test_integer_predictions_may_be_negative() -> None:
    ids = np.array([-1, 1, 1])
    assert score(metric("F1", {"average": "micro"}), ids, [-1, 1, -1]) == pytest.approx(2 / 3)


def test_spans_of_answers() -> None:
    """Five tokens; the best pair in order counts, not the two best apart."""
    start = np.array([[0.0, 4.0, 0.0, 5.0, 0.0]], np.float32)
    end = np.array([[9.0, 0.0, 4.0, 0.0, 0.0]], np.float32)  # 9 lies before each start but 0
    found = metric("SquadF1")
    assert found.score([[start, end]], [[[0, 0]]]) == 100.0  # 0 + 9
    end[0, 0] = 6.0
    assert found.score([[start, end]], [np.array([[1, 2]])]) == 100.0  # 4 + 4
    assert found.score([[start, end]], [[[2, 3]]]) == pytest.approx(50.0)  # one of two and two
    assert found.score([[start, end]], [[4, 4]]) == 0.0
    assert metric("SquadF1", {"exact": True}).score([[start, end]], [[[2, 3]]]) == 0.0
    start[0, 2] = np.nan
    assert found.score([[start, end]], [[[1, 2]]]) == 0.0


# --- as the float model ---

LOGITS = np.array([[1.0, 2.0, 0.0], [5.0, 1.0, 1.0]], np.float32)


def test_agreement_with_the_float_model() -> None:
    other = LOGITS.copy()
    other[0] = [3.0, 2.0, 0.0]
    found = metric("agreement")
    assert found.score([[LOGITS]], [[LOGITS]]) == 1.0
    assert found.score([[other]], [[LOGITS]]) == 0.5
    assert found.score([[LOGITS], [other[:1]]], [[LOGITS], [LOGITS[:1]]]) == pytest.approx(2 / 3)
    # Further outputs do not count; images have their classes second, as do single scores none.
    assert found.score([[LOGITS, other]], [[LOGITS, LOGITS]]) == 1.0
    image = np.zeros((1, 2, 2, 3), np.float32)
    flipped = image.copy()
    flipped[0, 1, 0, 0] = 1.0
    assert found.score([[flipped]], [[image]]) == pytest.approx(5 / 6)
    assert found.score([[np.float32([0.4, 0.6])]], [[np.float32([0.6, 0.7])]]) == 0.5


def test_closeness_takes_the_worst_output() -> None:
    found = metric("closeness")
    ones, ids = np.ones(100, np.float32), np.arange(100)
    off = ones.copy()
    off[0] = 1.2  # half of .2^2 over 100
    assert found.score([[ones, ids]], [[ones, ids + 1]]) == 1.0
    assert found.score([[ones], [off]], [[ones], [ones]]) == pytest.approx(1 - 0.5 * 0.04 / 100)
    assert found.score([[ones, off]], [[ones, ones]]) == pytest.approx(1 - 0.5 * 0.04 / 100)
    assert found.score([[ids]], [[np.where(ids < 25, -1, ids)]]) == 0.75
    masked = np.array([-np.inf, 1.0, np.nan])
    assert found.score([[masked]], [[masked]]) == 1.0
    assert found.score([[masked]], [[np.array([-np.inf, 1.0, 1.0])]]) == -math.inf
    assert found.score([[np.ones(3)]], [[masked]]) == -math.inf
    assert found.score([[np.full(2, 1e300)]], [[np.ones(2)]]) == -math.inf


def test_errors_from_the_float_model_count_each_floating_output() -> None:
    found = metric("MAE", {"compare_label": False})
    a, b, ids = np.zeros(3, np.float32), np.ones((1, 1), np.float32), np.arange(2)
    assert found.score([[a, b, ids]], [[a + 2, b, ids + 5]]) == pytest.approx(6 / 4)


arrays = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 2**32 - 1)), min_size=1, max_size=4
).map(
    lambda drawn: [np.random.default_rng(s).standard_normal((n, 3)).astype("f4") for n, s in drawn]
)


@settings(max_examples=25, deadline=None)  # the first example loads libraries
@given(arrays)
def test_perfect_predictions_have_the_best_value(batches: list[Array]) -> None:
    true = [batch.argmax(axis=1) for batch in batches]
    outputs = [[batch] for batch in batches]
    best = {"topk": 1.0, "Accuracy": 1.0, "agreement": 1.0, "closeness": 1.0}
    for name, value in best.items():
        labels: Any = outputs if metric(name).needs_references else true
        assert metric(name).score(outputs, labels) == value
    assert metric("F1", {"average": "micro"}).score(outputs, true) == 1.0
    for name in ("MSE", "RMSE", "MAE"):
        assert metric(name).score(outputs, batches) == 0.0
        assert metric(name, {"compare_label": False}).score(outputs, outputs) == 0.0
    for name in ("Pearson", "Spearman"):
        assert metric(name).score(outputs, batches) == pytest.approx(1.0)
    said = [[texts(*(f"{value:.3f} and so on to the end" for value in b[:, 0]))] for b in batches]
    right = [outputs[0].tolist() for outputs in said]
    assert metric("BLEU").score(said, right) == pytest.approx(100.0)
    assert metric("SquadF1").score(said, right) == 100.0
    assert metric("WER").score(said, right) == metric("CER").score(said, right) == 0.0


@settings(max_examples=25, deadline=None)  # the first example loads libraries
@given(arrays)
def test_how_data_is_cut_does_not_matter(batches: list[Array]) -> None:
    together = np.concatenate(batches)
    true = [np.arange(len(b)) % 2 for b in batches]
    for name in ("topk", "Accuracy", "MSE", "Loss"):
        labels: Any = batches[::-1] if name == "Loss" else true
        if name == "MSE":
            labels = [np.zeros_like(b) for b in batches]
        parts = metric(name).score([[b] for b in batches], labels)
        whole = metric(name).score([[together]], [np.concatenate(labels)])
        assert parts == pytest.approx(whole)


# --- what does not fit ---


@pytest.mark.parametrize(
    ("name", "predicted", "labels", "message"),
    [
        ("Accuracy", TOPK, [0, 1], r"\[4, 3\] of float32 and labels \[2\] of int64 do not fit"),
        ("Accuracy", TOPK, np.eye(3)[[0, 1, 2, 2]] * 2, "rows with a single 1"),
        ("Accuracy", TOPK, ["a", "b", "c", "d"], "both are numbers, or both are texts"),
        ("topk", TOPK, [0, 1, 2, 3], "label 3 is no class from 0 to 2"),
        ("topk", TOPK, [0, 1, 2, -1], "label -1 is no class"),
        ("topk", ROC_FOUND, ROC_TRUE, r"topk takes scores \[batch, classes\]"),
        ("F1", F1_FOUND, F1_TRUE, "give `average`, one of micro, macro, weighted"),
        ("F1", MCC_FOUND, [1.0, 0.0, np.nan, 1.0], "1 of 4 labels are NaN"),
        ("ROC", TOPK, [0, 1, 0, 1], r"\[batch, 2\] and labels"),
        ("ROC", ROC_FOUND, [1, 1, 1, 1], "labels 0 and 1, both of them; the data has 1"),
        ("MSE", TOPK, MSE_TRUE, r"\[4, 3\] of float32 and labels \[4\] of float64"),
        ("MSE", texts("a"), [1.0], "both are numbers"),
        ("Pearson", np.ones(1), np.ones(1), "two numbers at least; there is 1"),
        ("BLEU", TOPK, ["a"] * 4, "compares texts, and the model's first output is"),
        ("WER", texts("a", "b"), ["a"], r"2 texts are predicted, and the label is \['a'\]"),
        ("WER", texts("a"), [["a", "b"]], "one reference a sample"),
        ("SquadF1", TOPK, [[0, 1]] * 4, r"logits of start and end \[batch, tokens\]"),
        ("agreement", TOPK, [TOPK[:2]], r"the shape is \[4, 3\], and the float model's \[2, 3\]"),
        ("agreement", TOPK, None, "1 outputs and the float model 0"),
        ("Accuracy", TOPK, None, "batch 0 has no label"),
    ],
)
def test_what_does_not_fit_is_an_error(
    name: str, predicted: Array, labels: Any, message: str
) -> None:
    with pytest.raises(InputDataError, match=message):
        metric(name).score([[predicted]], [labels])


def test_more_classes_are_asked_for_than_there_are() -> None:
    with pytest.raises(InputDataError, match="k is 5, and the model tells 3 classes apart"):
        score(metric("topk", 5), TOPK, [0, 1, 2, 2])


@pytest.mark.parametrize("name", ALL)
def test_no_data_is_an_error(name: str) -> None:
    with pytest.raises(InputDataError, match="no samples"):
        metric(name).score([], [])
    with pytest.raises(InputDataError, match="the model returned no output"):
        metric(name).score([[]], [[1]])
    if metric(name).needs_labels:
        with pytest.raises(InputDataError, match="2 batches were predicted and 1 have labels"):
            metric(name).score([[TOPK]] * 2, [[0, 1, 2, 2]])


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("acuracy", None, "there is no metric 'acuracy'. Did you mean 'Accuracy'"),
        ("topk", 0, "metric topk: k: value 0 is not in range; allowed: a whole number, 1 or more"),
        ("topk", {"k": True}, "k: value True"),
        ("topk", {"n": 5}, "metric topk: n: unknown key 'n'; allowed: k"),
        ("F1", {"average": "none"}, "average: value 'none' .* allowed: binary, micro"),
        (
            "F1",
            5,
            "metric F1: value 5 is not a section; allowed: a mapping with average, threshold",
        ),
        ("Accuracy", {"threshold": "high"}, "threshold: value 'high' .* allowed: a finite number"),
        ("MSE", {"compare_label": 0}, "compare_label: value 0 .* allowed: true, false"),
        ("GLUE", {"task": "squad"}, "task: value 'squad' .* allowed: mrpc, qqp"),
        ("ROC", {"task": "x"}, "task: value 'x' .* allowed: dlrm, dien, wide_deep"),
        ("Pearson", 3, "allowed: a mapping with nothing"),
        ("mAP", {"iou_thrs": 2.0}, "iou_thrs: value 2.0 .* from 0 to 1"),
        ("mAP", {"map_points": 12}, "map_points: value 12 .* allowed: 0, 11, 101"),
        ("COCOmAP", {"map_key": "mAP"}, "map_key: value 'mAP'"),
        ("COCOmAPv2", {"output_index_mapping": {"boxes": 0}}, "needs the key 'scores'"),
        ("mIOU", {"num_classes": 1}, "num_classes: value 1"),
    ],
)
def test_unknown_names_and_options_are_refused(name: str, options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        metric(name, options)


CPU = "torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu"


@pytest.mark.parametrize(
    ("name", "library", "command"),
    [
        ("f1", "sklearn", "pip install 'scikit-learn>=1.4'"),
        ("Pearson", "scipy", "pip install 'scipy>=1.12'"),
        ("BLEU", "sacrebleu", "pip install 'sacrebleu>=2.4'"),
        ("WER", "jiwer", "pip install 'jiwer>=3'"),
        ("mIOU", "torchmetrics", f"pip install torchmetrics {CPU}"),
        ("mAP", "torchmetrics", f"pip install torchmetrics torchvision pycocotools {CPU}"),
        ("VOCmAP", "torchmetrics", f"pip install torchmetrics torchvision pycocotools {CPU}"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, library: str, command: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: None)
    with pytest.raises(OptionError) as caught:
        metric(name)
    assert f" {library}" in str(caught.value)
    assert str(caught.value).endswith(f" not installed: {command}")
