"""Neural Compressor's Python call, on real models of both kinds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from octavo.errors import OptionError
from octavo.recipe import load_recipe
from octavo.results.tuning import Status
from octavo.tune import Quantization, common
from tests.graphs import normal, run, save
from tests.tune.inc.test_metric_objects import Hits, TorchHits
from tests.tune.searchable import WIDTH, model

CONF = """\
model: {name: small, framework: %s}
quantization: {approach: %s, calibration: {sampling_size: 3}}
evaluation: {accuracy: {metric: {topk: 1}}}
tuning:
  objective: modelsize
  accuracy_criterion: {absolute: 0.02}
"""


def conf(framework: str = "onnxrt_integerops", approach: str = "dynamic", more: str = "") -> Path:
    """The file in the current folder."""
    path = Path("conf.yaml").absolute()
    path.write_text(CONF % (framework, f"post_training_{approach}_quant") + more)
    return path


def asked(model: Any, file: Path | None = None, **attributes: Any) -> Quantization:
    """The call with a model and attributes, as a script sets them."""
    quantizer = Quantization(str(file or conf()))
    quantizer.model = str(model) if isinstance(model, Path) else model
    for name, value in attributes.items():
        setattr(quantizer, name, value)
    return quantizer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories go to the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("octavo.tune.contest.SECONDS", 0.2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layer1 int8 ruins."""
    return save(model(), tmp_path_factory.mktemp("models") / "model.onnx")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that int8 does not harm."""
    return save(model(bad=None), tmp_path_factory.mktemp("models") / "model.onnx")


class Loader:
    """What a data loader is to Neural Compressor: iterable, of (inputs, label)."""

    batch_size = 100

    def __init__(self, path: Path) -> None:
        self.x = normal(400, WIDTH, seed=5)
        (y,) = run(path, {"x": self.x})
        self.label = np.argmax(y, axis=1)

    def __iter__(self) -> Iterator[Any]:
        for at in range(0, len(self.x), self.batch_size):
            yield self.x[at : at + self.batch_size], self.label[at : at + self.batch_size]


def test_a_file_and_a_loader_find_and_save_a_model(tmp_path: Path, path: Path) -> None:
    found = asked(path, eval_dataloader=Loader(path)).fit()
    assert found.result.status is Status.MET
    assert found.result.ranking[0][0] == "layer1"
    assert isinstance(found.model, onnxruntime.InferenceSession)
    out = found.save(tmp_path / "output")
    assert out == tmp_path / "output" / "best_model.onnx"
    assert load_recipe(tmp_path / "output" / "best_recipe.yaml") == found.result.best.recipe
    assert found.save(tmp_path / "one.onnx").read_bytes() == out.read_bytes()
    x = normal(5, WIDTH)
    assert np.array_equal(found.model.run(None, {"x": x})[0], run(out, {"x": x})[0])


def test_what_users_of_tune_have_is_there_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, good: Path
) -> None:
    """A target, threads, shapes, a page, and notes that reach whoever asks for them."""
    page = tmp_path / "page.html"
    how: dict[str, Any] = {"target": "native", "threads": 1, "shapes": {"x": (2, WIDTH)}}
    quantizer = Quantization(conf(), report=page, **how)
    quantizer.model = str(good)
    calls: list[Any] = []
    quantizer.eval_func = lambda session: 1.0 if calls.append(session) is None else 0.0
    result = quantizer.fit().result
    assert result.status is Status.MET
    assert result.report is not None
    assert result.report.target == "native"
    assert any("sampling_size does nothing here" in note for note in result.notes)
    assert any("sampling_size does nothing here" in r.message for r in caplog.records)
    assert "octavo_tuning/conf" in result.notes[-1].replace("\\", "/")
    assert "model.onnx" in page.read_text("utf-8")
    again = Quantization(conf(), resume=True, **how)
    again.model, again.eval_func = quantizer.model, quantizer.eval_func
    before = len(calls)
    assert again.fit().result.best.words == result.best.words
    assert len(calls) == before  # nothing is evaluated twice


def test_an_eval_func_of_neural_compressors_day_runs(path: Path) -> None:
    """It opens the model's bytes itself, and reads the graph's inputs."""
    loader = Loader(path)
    seen: list[int] = []

    def evaluate(given: Any) -> float:
        stored = given.SerializeToString()
        assert stored is not given
        seen.append(len(stored))
        session = onnxruntime.InferenceSession(stored, providers=["CPUExecutionProvider"])
        feed = {given.graph.input[0].name: loader.x}
        (y,) = session.run(None, feed)
        assert np.array_equal(y, given.run(None, feed)[0])
        return float(np.mean(np.argmax(y, axis=1) == loader.label))

    found = asked(common.Model(onnx.load(path)), eval_func=evaluate).fit()
    assert found.result.status is Status.MET
    assert min(seen) < seen[0]  # the quantized model's bytes, not the float one's


def test_bytes_of_target_native_are_refused(good: Path) -> None:
    """Whatever only they tell of it: ONNX Runtime would not open them."""
    quantizer = Quantization(conf(), target="native")
    quantizer.model = good
    quantizer.eval_func = lambda session: float(len(session.SerializeToString()) > 0)
    found = quantizer.fit()
    assert "without target native" in found.result.trials[0].error
    with pytest.raises(AttributeError, match="no attribute 'grph'"):
        found.model.grph  # noqa: B018


def test_common_is_as_scripts_have_it(path: Path) -> None:
    class Samples:
        """A data set: a sample an index, without a batch axis."""

        def __init__(self, x: Any, label: Any) -> None:
            self.x, self.label = x, label

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, at: int) -> Any:
            return {"x": self.x[at]}, self.label[at]

    all_of_them = Loader(path)
    samples = Samples(all_of_them.x, all_of_them.label)
    result = (
        asked(
            common.Model(str(path)),
            eval_dataloader=common.DataLoader(samples, batch_size=150),
            metric=common.Metric(Hits, k=1),
        )
        .fit()
        .result
    )
    assert result.status is Status.MET
    assert result.baseline.accuracy == 1
    assert common.Metric("topk", k=5) == ("topk", {"k": 5})


def test_a_data_loader_gives_batches_of_any_samples() -> None:
    pairs = [(np.full(3, i, np.float32), i) for i in range(5)]
    sizes = [x.shape for x, _ in common.DataLoader(iter_of(pairs), batch_size=2)]
    assert sizes == [(2, 3), (2, 3), (1, 3)]
    discarded = common.DataLoader(pairs, batch_size=2, last_batch="discard")
    assert [label.tolist() for _, label in discarded] == [[0, 1], [2, 3]]
    assert [*common.DataLoader(pairs, batch_size=None)] == pairs
    texts = common.DataLoader([((1, [2, 3]), "a"), ((4, [5, 6]), "b")], batch_size=2)
    ((one, (two, three)), names) = next(iter(texts))
    assert (one.tolist(), two.tolist(), three.tolist(), names) == (
        [1, 4],
        [2, 5],
        [3, 6],
        ["a", "b"],
    )
    assert next(iter(common.DataLoader(pairs, batch_size=5, collate_fn=len))) == 5
    with pytest.raises(OptionError, match=r"sampler, .* are not done here"):
        common.DataLoader(pairs, sampler=[1])
    with pytest.raises(OptionError, match="batch_size=0"):
        common.DataLoader(pairs, batch_size=0)
    with pytest.raises(OptionError, match="allowed: rollover, discard"):
        common.DataLoader(pairs, last_batch="drop")


class iter_of:
    """A data set that is only iterable, as often as wanted."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"report": "page.txt"}, "page.txt"),
        ({"recipe": []}, "recipe is empty"),
        ({"target": "nativ"}, "target='nativ'"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_a_wrong_option_is_an_error(given: dict[str, Any], words: str, good: Path) -> None:
    with pytest.raises(OptionError, match=words):
        quantizer = Quantization(conf(), **given)
        quantizer.model = str(good)
        quantizer.fit()
    assert not Path("octavo_tuning").exists()


def test_an_eval_func_comes_before_the_files_metric() -> None:
    calls: list[Any] = []

    def eval_func(session: Any) -> float:
        calls.append(session)
        return 1.0

    found = asked(model(), eval_func=eval_func)()  # of a ModelProto
    assert len(calls) == 2
    assert found.result.status is Status.MET
    assert found.result.best.index == 1


@pytest.mark.vnni
def test_static_quantization_is_calibrated_on_its_loader(tmp_path: Path, good: Path) -> None:
    file = conf("onnxrt_qlinearops", "static", "  exit_policy: {max_trials: 1}\n")
    loader = Loader(good)
    found = asked(good, file, calib_dataloader=loader, eval_dataloader=loader).fit()
    assert found.result.best.approach.value == "static"
    nodes = onnx.load(found.save(tmp_path / "static.onnx")).graph.node
    kinds = {node.op_type for node in nodes}
    assert "DynamicQuantizeLinear" not in kinds
    assert kinds & {"QLinearMatMul", "QuantizeLinear"}


def test_static_without_calibration_data_says_what_to_do(path: Path) -> None:
    with pytest.raises(OptionError, match="post_training_dynamic_quant"):
        asked(path, conf(approach="static"), eval_func=lambda session: 1.0).fit()


def module_and_data() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A module, inputs, and the classes that it gives them."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    )
    x = torch.randn(200, WIDTH)
    return module, x, module(x).argmax(-1)


def test_what_did_not_meet_the_criterion_is_not_saved_unasked(tmp_path: Path, path: Path) -> None:
    accuracies = iter([1.0, *[0.5] * 99])
    found = asked(path, eval_func=lambda session: next(accuracies)).fit()
    assert found.result.status is Status.BEST_EFFORT
    with pytest.raises(OptionError, match="no recipe met the criterion"):
        found.save(tmp_path / "best.onnx")
    assert not (tmp_path / "best.onnx").exists()
    assert found.save(tmp_path / "best.onnx", force=True).is_file()


def test_a_wrong_attribute_is_an_error() -> None:
    quantizer = Quantization(conf())
    with pytest.raises(OptionError, match="Did you mean 'eval_func'"):
        quantizer.eval_fun = print
    with pytest.raises(OptionError, match="'small'"):
        quantizer.fit()


class Wrong(Hits):
    """Lower is better, as the object says."""

    higher_is_better = False

    def result(self) -> float:
        return 1 - super().result()


def test_a_metric_object_measures(path: Path) -> None:
    loader = Loader(path)
    hits, wrong = (
        asked(path, eval_dataloader=loader, metric=metric).fit().result
        for metric in (Hits(), Wrong())
    )
    assert hits.status is wrong.status is Status.MET
    (y,) = run(path, {"x": loader.x})
    assert hits.baseline.accuracy == np.mean(np.argmax(y, axis=1) == loader.label) == 1.0
    assert wrong.best.accuracy == pytest.approx(1 - hits.best.accuracy)
    assert not wrong.higher_is_better


def test_a_metric_object_measures_a_module_which_is_saved(tmp_path: Path) -> None:
    module, x, labels = module_and_data()
    quantizer = Quantization(str(conf("pytorch", "static")), approach="dynamic")
    quantizer.model, quantizer.metric = module, TorchHits()
    quantizer.eval_dataloader = [(x[:50], labels[:50]), (x[50:], labels[50:])]
    found = quantizer.fit()
    assert found.result.status is Status.MET
    assert found.result.baseline.accuracy == 1.0
    assert (found.model(x).argmax(-1) == labels).float().mean() > 0.97
    assert found.save(tmp_path / "output").name == "best_model.safetensors"


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"metric": Hits()}, "metric needs eval_dataloader"),
        ({"metric": Hits(), "eval_func": len}, "metric stands beside eval_func"),
        ({"metric": Hits, "eval_dataloader": [(1, 1)]}, "Hits is a class"),
    ],
)
def test_a_metric_needs_data_and_stands_alone(
    path: Path, attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        asked(path, **attributes).fit()


def test_a_gain_that_is_asked_for_is_not_met_by_the_float_model(path: Path) -> None:
    file = conf()
    file.write_text(file.read_text().replace("absolute: 0.02", "relative: -0.01"))
    found = asked(path, file, eval_func=lambda m: 0.5).fit().result
    assert not found.status.met
    assert found.criterion == "at least 1% of the float model's accuracy gained"
    accuracies = iter([0.5, *[0.51] * 99])
    assert asked(path, file, eval_func=lambda m: next(accuracies)).fit().result.status.met
