"""A tuning run that was made up, for the tests of what is shown of one."""

from __future__ import annotations

from dataclasses import replace

from octavo.recipe import Recipe, Scheme
from octavo.results.report import LayerOutcome, Report
from octavo.results.tuning import Status, Trial, TuneResult
from tests.results.reports import linear, report

RECIPE = Recipe("int8", Scheme())
TRACEBACK = """\
Traceback (most recent call last):
  File "score.py", line 3, in evaluate
    raise ValueError("no labels")
ValueError: no labels
"""
BASELINE = Trial(
    0,
    None,
    "float",
    "float",
    accuracy=0.915,
    loss=0.0,
    meets=True,
    latency=0.0081,
    time_ratio=1.0,
    bytes=90_400_000,
)


def trial(index: int, words: str, accuracy: float, ratio: float, size: int) -> Trial:
    loss = (0.915 - accuracy) / 0.915
    return Trial(
        index,
        RECIPE,
        words,
        f"key {index}",
        layers=12,
        quantized=11,
        accuracy=accuracy,
        loss=loss,
        meets=loss <= 0.01,
        latency=0.0081 * ratio,
        time_ratio=ratio,
        bytes=size,
        score=ratio,
        seconds=2.5,
        elapsed=2.5 * index,
    )


MISSED = trial(1, "int8, all 12 layers", 0.8312, 0.5, 22_500_000)
BEST = trial(2, "int8, 1 of 12 layers float: fc3", 0.912, 0.52, 23_100_000)
MET = trial(3, "int8, 2 of 12 layers float: fc3, fc1", 0.9131, 0.63, 25_100_000)
FAILED = Trial(4, RECIPE, "int8, fc3 in blocks of 32", "key 4", layers=12, error=TRACEBACK)


def layer_report(layers: int = 12) -> Report:
    """All layers quantized but the last."""
    outcomes = []
    for i in range(1, layers + 1):
        left = i == layers
        outcomes.append(
            LayerOutcome(
                linear(f"fc{i}", macs_per_row=9),
                not left,
                "float" if left else Scheme().describe(),
                "the accuracy criterion" if left else "",
                2_359_296,
                2_359_296 if left else 595_968,
                None if left else 40.0 + i / 10,
            )
        )
    return report(*outcomes, output="model.int8.onnx", model_bytes_after=23_100_000, seconds=1.2)


def result(**changes: object) -> TuneResult:
    made = TuneResult(
        status=Status.MET,
        best=BEST,
        trials=(MISSED, BEST, MET, FAILED),
        baseline=BASELINE,
        model="model.onnx",
        criterion="at most 1% of the float model's accuracy lost",
        objective="performance",
        strategy="auto",
        seconds=62.3,
        ranking=(("fc3", 0.21), ("fc1", 0.0123), ("fc2", 0.004)),
        model_runs=13,
        report=layer_report(),
        output="model.int8.onnx",
        notes=("calibration.sampling_size does nothing for dynamic quantization",),
        bound=0.01,
        relative=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
