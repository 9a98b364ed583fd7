"""How accuracy is measured: what `tune` makes of evaluate, metric and data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import InputDataError, OptionError
from octavo.measure.data import Dataset
from octavo.results.target import Built
from octavo.results.tuning import Status
from octavo.tune import Criterion, evaluators, tune
from octavo.tune.arguments import checked_evaluator, weighted_metrics
from octavo.tune.evaluators import CallableEvaluator, MetricEvaluator, WeightedMetric
from octavo.tune.inc.metrics import metric
from tests.tune.simulated_target import Simulated, evaluate

TARGET = Simulated((0.1,))
DATA = [({"x": np.arange(6.0).reshape(3, 2)}, np.array([1, 1, 0]))]


def made(evaluate: Any = None, metric: Any = None, data: Any = None) -> evaluators.Evaluator:
    return checked_evaluator(
        evaluate, metric, data, TARGET, shapes=(), seed=0, limit=-1, relative=True
    )


def model(scale: float = 1.0) -> Built:
    return Built(None, lambda feed: [feed["x"] * np.array([scale, 1.0])], 1)


def test_a_metric_on_an_iterable() -> None:
    it = made(metric="topk", data=DATA)
    assert it.accuracy(model(), model) == pytest.approx(2 / 3)
    assert not it.agreement_only
    assert it.feeds(5)[0]["x"].shape == (3, 2)


def test_data_without_a_metric_is_compared_with_the_float_model() -> None:
    it = made(data=DATA)
    assert it.agreement_only
    assert it.accuracy(model(), model) == 1.0
    assert it.accuracy(model(1.5), model) < 1.0


def test_a_weighted_mean_of_metrics_with_two_directions_is_refused() -> None:
    with pytest.raises(OptionError, match="needs one direction"):
        made(metric=[("topk", 0.5), ("MSE", 0.5)], data=DATA)


def test_data_beside_evaluate_are_for_calibration_and_timing() -> None:
    it = made(evaluate=evaluate, data=DATA)
    assert it.feeds(5)[0]["x"].shape == (3, 2)


def test_weighted_metrics_are_their_mean() -> None:
    it = made(metric=[("topk", 3.0), (("F1", {}), 1.0)], data=DATA)
    alone = [made(metric=name, data=DATA).accuracy(model(), model) for name in ("topk", "F1")]
    assert it.accuracy(model(), model) == pytest.approx((3 * alone[0] + alone[1]) / 4)


def test_metrics_without_weights_each_have_to_meet_the_criterion() -> None:
    def loss(relative: bool) -> float:
        metrics = (
            WeightedMetric(metric("topk")),
            WeightedMetric(metric("MSE", {"compare_label": False})),
        )
        it = MetricEvaluator(metrics, Dataset.of(DATA), relative=relative)
        assert it.accuracy(model(), model) == 1.0
        return 1.0 - it.accuracy(model(1.5), model)

    # The classes change by a third of the float model's score; MSE rises from 0 by 20/6 / ...
    error = np.mean((np.arange(6.0).reshape(3, 2)[:, 0] * 0.5) ** 2) / 2
    assert loss(relative=False) == pytest.approx(max(error, 1 / 3))
    with pytest.raises(OptionError, match="the float model's MSE is exactly 0"):
        loss(relative=True)


def test_the_direction_is_the_metrics_where_only_it_knows() -> None:
    result = tune(
        Simulated((0.0,)),
        metric="Loss",
        data=[({"x": np.ones((1, 2))}, None)],
        objective="modelsize",
    )
    assert not result.higher_is_better
    assert result.status is Status.MET


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"evaluate": evaluate, "metric": "topk"}, "give one of them"),
        ({"metric": "topk"}, "--data"),
        ({"evaluate": 3}, "evaluate is a int"),
        ({"metric": [], "data": DATA}, "at least one"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        made(**arguments)


def test_weights_are_for_all_or_for_none() -> None:
    with pytest.raises(OptionError, match="for all of them or for none"):
        weighted_metrics([("topk", 1.0), ("F1", None)])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"approach": "dynamics"}, "'dynamic'"),
        ({"workers": 0}, "workers"),
        ({"metric": 3, "data": [1]}, "evaluate and metric"),
        ({"output": "x.safetensors"}, ".onnx"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_arguments_of_tune_that_are_wrong(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((OptionError, TypeError), match=words):
        tune(TARGET, evaluate, **arguments)


def test_a_callable_by_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judged.py").write_text("def score(model):\n    return 0.25\nnumber = 3\n")
    assert CallableEvaluator("judged:score").accuracy(model(), model) == 0.25
    with pytest.raises(OptionError, match="judged:number is a int"):
        CallableEvaluator("judged:number").callable()
    for name in ("nowhere:score", "judged.py", "judged"):
        with pytest.raises(OptionError, match=r"no module 'nowhere'|is not module:function"):
            made(evaluate=name)
    with pytest.raises(OptionError, match="scores"):
        CallableEvaluator("judged:scores").callable()


def test_a_function_that_a_module_lacks_is_known_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is read and not run; what cannot be told of it is not refused."""
    monkeypatch.chdir(tmp_path)
    known = "import numpy as np\nif np.ones(1):\n    def best(model): ...\n"
    (tmp_path / "lacking.py").write_text(f"{known}raise RuntimeError('it was run')\n")
    (tmp_path / "starred.py").write_text(f"from math import *\n{known}")
    with pytest.raises(OptionError, match="lacking has no 'nope'") as raised:
        made(evaluate="lacking:nope")
    assert "'np'" not in str(raised.value)
    assert made(evaluate="lacking:best").description == "lacking:best"
    assert made(evaluate="starred:nope").description == "starred:nope"


def test_an_answer_that_is_no_number_is_named_by_its_kind() -> None:
    with pytest.raises(InputDataError, match=r"^f returned a list; needs a number, or a dict"):
        evaluators.as_number([0.5] * 1000, "f")


def test_a_criterion_that_is_given_keeps_its_direction() -> None:
    result = tune(
        Simulated((0.1,)),
        evaluate,
        criterion=Criterion(absolute=0.05, higher_is_better=False),
        objective="modelsize",
    )
    assert result.best.index == 1
    assert result.best.loss == pytest.approx(-0.1)
