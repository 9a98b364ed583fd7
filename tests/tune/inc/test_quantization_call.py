"""Neural Compressor's Python call, on real models of both kinds."""

import re
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
from tests.tune.searchable import WIDTH, model

CONF = """\
model: {name: small, framework: %s}
quantization: {approach: %s, calibration: {sampling_size: 3}}
evaluation: {accuracy: {metric: {topk: 1}}}
tuning:
  objective: modelsize
  accuracy_criterion: {absolute: 0.02}
"""


def conf(folder: Path, framework: str = "onnxrt_integerops", approach: str = "dynamic") -> Path:
    path = folder / "conf.yaml"
    path.write_text(CONF % (framework, f"post_training_{approach}_quant"))
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories go to the current folder."""
    monkeypatch.chdir(tmp_path)


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


def test_a_file_and_a_loader_find_and_save_a_model(tmp_path: Path) -> None:
    path = save(model(), tmp_path / "model.onnx")
    quantizer = Quantization(str(conf(tmp_path)))
    quantizer.model = str(path)
    quantizer.eval_dataloader = Loader(path)
    found = quantizer.fit()
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
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target, threads, shapes, a page, and notes that reach whoever asks for them."""
    monkeypatch.setattr("octavo.tune.contest.SECONDS", 0.2)
    path = conf(tmp_path)
    page = tmp_path / "page.html"
    how: dict[str, Any] = {"target": "native", "threads": 1, "shapes": {"x": (2, WIDTH)}}
    quantizer = Quantization(path, report=page, **how)
    quantizer.model = str(save(model(bad=None), tmp_path / "model.onnx"))
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
    again = Quantization(path, resume=True, **how)
    again.model, again.eval_func = quantizer.model, quantizer.eval_func
    before = len(calls)
    assert again.fit().result.best.words == result.best.words
    assert len(calls) == before  # nothing is evaluated twice


def test_an_eval_func_of_neural_compressors_day_runs(tmp_path: Path) -> None:
    """It opens the model's bytes itself, and reads the graph's inputs."""
    path = save(model(), tmp_path / "model.onnx")
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

    quantizer = Quantization(conf(tmp_path))
    quantizer.model = common.Model(onnx.load(path))
    quantizer.eval_func = evaluate
    assert quantizer.fit().result.status is Status.MET
    assert min(seen) < seen[0]  # the quantized model's bytes, not the float one's


def test_bytes_of_target_native_are_refused(tmp_path: Path) -> None:
    """Whatever only they tell of it: ONNX Runtime would not open them."""
    quantizer = Quantization(conf(tmp_path), target="native")
    quantizer.model = save(model(bad=None), tmp_path / "model.onnx")
    quantizer.eval_func = lambda session: float(len(session.SerializeToString()) > 0)
    found = quantizer.fit()
    assert (
        "call model.run(None, inputs), or search without target native"
        in found.result.trials[0].error
    )
    with pytest.raises(AttributeError, match="no attribute 'grph'"):
        found.model.grph  # noqa: B018


def test_common_is_as_scripts_have_it(tmp_path: Path) -> None:
    class Samples:
        """A data set: a sample an index, without a batch axis."""

        def __init__(self, x: Any, label: Any) -> None:
            self.x, self.label = x, label

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, at: int) -> Any:
            return {"x": self.x[at]}, self.label[at]

    class Right:
        """A metric: the share of right classes."""

        def __init__(self, least: int) -> None:
            self.least = least

        def reset(self) -> None:
            self.seen: list[Any] = []

        def update(self, predictions: Any, labels: Any) -> None:
            self.seen.append(np.argmax(predictions[0], axis=1) == labels)

        def result(self) -> float:
            right = np.concatenate(self.seen)
            assert len(right) >= self.least
            return float(np.mean(right))

    path = save(model(), tmp_path / "model.onnx")
    all_of_them = Loader(path)
    quantizer = Quantization(conf(tmp_path))
    quantizer.model = common.Model(str(path))
    quantizer.eval_dataloader = common.DataLoader(
        Samples(all_of_them.x, all_of_them.label), batch_size=150
    )
    quantizer.metric = common.Metric(Right, least=400)
    result = quantizer.fit().result
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
    with pytest.raises(OptionError, match="sampler is not done here"):
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
        ({"report": "page.txt"}, "page.txt: end the name with .html"),
        ({"recipe": []}, "recipe is empty"),
        ({"target": "nativ"}, "target='nativ'"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_a_wrong_option_is_an_error(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    path = str(save(model(bad=None), tmp_path / "model.onnx"))
    with pytest.raises(OptionError, match=re.escape(words)):
        quantizer = Quantization(conf(tmp_path), **given)
        quantizer.model = path
        quantizer.fit()
    assert not (tmp_path / "octavo_tuning").exists()


def test_an_eval_func_comes_before_the_files_metric(tmp_path: Path) -> None:
    calls = []

    def eval_func(session: Any) -> float:
        calls.append(session)
        return 1.0

    quantizer = Quantization(conf(tmp_path))
    quantizer.model = model()  # a ModelProto
    quantizer.eval_func = eval_func
    found = quantizer()
    assert len(calls) == 2
    assert found.result.status is Status.MET
    assert found.result.best.index == 1


def test_static_quantization_is_calibrated_on_its_loader(tmp_path: Path) -> None:
    path = save(model(bad=None), tmp_path / "model.onnx")
    quantizer = Quantization(conf(tmp_path, "onnxrt_qlinearops", "static"))
    quantizer.model = str(path)
    quantizer.calib_dataloader = Loader(path)
    quantizer.eval_dataloader = Loader(path)
    found = quantizer.fit()
    assert found.result.best.approach.value == "static"
    kinds = {node.op_type for node in _nodes(found.save(tmp_path / "static.onnx"))}
    assert "DynamicQuantizeLinear" not in kinds
    assert kinds & {"QLinearMatMul", "QuantizeLinear"}


def _nodes(path: Path) -> Any:
    import onnx

    return onnx.load(path).graph.node


def test_static_without_calibration_data_says_what_to_do(tmp_path: Path) -> None:
    quantizer = Quantization(conf(tmp_path, approach="static"))
    quantizer.model = str(save(model(), tmp_path / "model.onnx"))
    quantizer.eval_func = lambda session: 1.0
    with pytest.raises(OptionError, match="post_training_dynamic_quant"):
        quantizer.fit()


def test_a_module_is_tuned_and_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    x = torch.randn(200, 32)
    label = module(x).argmax(-1)
    quantizer = Quantization(conf(tmp_path, "pytorch"))
    quantizer.model = module
    quantizer.eval_dataloader = [(x, label)]
    found = quantizer.fit()
    assert found.result.status is Status.MET
    assert (found.model(x).argmax(-1) == label).float().mean() > 0.97
    assert found.save(tmp_path / "output").name == "best_model.safetensors"


def test_what_did_not_meet_the_criterion_is_not_saved_unasked(tmp_path: Path) -> None:
    quantizer = Quantization(conf(tmp_path))
    quantizer.model = str(save(model(), tmp_path / "model.onnx"))
    accuracies = iter([1.0, *[0.5] * 99])
    quantizer.eval_func = lambda session: next(accuracies)
    found = quantizer.fit()
    assert found.result.status is Status.BEST_EFFORT
    with pytest.raises(OptionError, match="no recipe met the criterion"):
        found.save(tmp_path / "best.onnx")
    assert not (tmp_path / "best.onnx").exists()
    assert found.save(tmp_path / "best.onnx", force=True).is_file()


def test_a_wrong_attribute_is_an_error(tmp_path: Path) -> None:
    quantizer = Quantization(conf(tmp_path))
    with pytest.raises(OptionError, match="Did you mean 'eval_func'"):
        quantizer.eval_fun = print
    with pytest.raises(OptionError, match="names model 'small', not its file"):
        quantizer.fit()


class Hits:
    """A metric as Neural Compressor asks for; the outputs of an ONNX model are a list."""

    def __init__(self) -> None:
        self.batches: list[float] = []

    def reset(self) -> None:
        self.batches = []

    def update(self, predictions: Any, labels: Any, sample_weight: Any = None) -> None:
        self.batches.append(float((predictions[0].argmax(axis=1) == labels).mean()))

    def result(self) -> float:
        return sum(self.batches) / len(self.batches)


class Wrong(Hits):
    """Lower is better, as the object says."""

    higher_is_better = False

    def result(self) -> float:
        return 1 - super().result()


class TensorHits(Hits):
    """As for PyTorch: predictions and labels are tensors."""

    def update(self, predictions: Any, labels: Any, sample_weight: Any = None) -> None:
        self.batches.append(float((predictions.argmax(dim=1) == labels).float().mean()))


def test_a_metric_object_measures(tmp_path: Path) -> None:
    path = save(model(), tmp_path / "model.onnx")
    found = {}
    for metric in ("topk", Hits(), Wrong()):
        quantizer = Quantization(str(conf(tmp_path)))
        quantizer.model, quantizer.eval_dataloader = str(path), Loader(path)
        quantizer.metric = metric
        found[type(metric)] = quantizer.fit().result
    assert {result.status for result in found.values()} == {Status.MET}
    assert found[Hits].baseline.accuracy == pytest.approx(1.0)
    assert found[Hits].best.accuracy == pytest.approx(found[str].best.accuracy)
    assert found[Wrong].best.accuracy == pytest.approx(1 - found[str].best.accuracy)
    assert not found[Wrong].higher_is_better


def test_a_metric_object_measures_a_module(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
    )
    x = torch.randn(100, WIDTH)
    labels = module(x).argmax(1)
    quantizer = Quantization(str(conf(tmp_path, "pytorch", "static")), approach="dynamic")
    quantizer.model, quantizer.metric = module, TensorHits()
    quantizer.eval_dataloader = [(x[:50], labels[:50]), (x[50:], labels[50:])]
    result = quantizer.fit().result
    assert result.status is Status.MET
    assert result.baseline.accuracy == 1.0


def test_a_metric_needs_data_and_stands_alone(tmp_path: Path) -> None:
    quantizer = Quantization(str(conf(tmp_path)))
    quantizer.model, quantizer.metric = str(save(model(), tmp_path / "model.onnx")), Hits()
    with pytest.raises(OptionError, match="metric needs eval_dataloader"):
        quantizer.fit()
    quantizer.eval_func = lambda m: 1.0
    with pytest.raises(OptionError, match="metric stands beside eval_func"):
        quantizer.fit()
    quantizer.eval_func, quantizer.eval_dataloader, quantizer.metric = None, [(1, 1)], Hits
    with pytest.raises(OptionError, match="Hits is a class"):
        quantizer.fit()


def test_a_gain_that_is_asked_for_is_not_met_by_the_float_model(tmp_path: Path) -> None:
    path = conf(tmp_path)
    path.write_text(path.read_text().replace("absolute: 0.02", "relative: -0.01"))
    quantizer = Quantization(str(path))
    quantizer.model = str(save(model(), tmp_path / "model.onnx"))
    quantizer.eval_func = lambda m: 0.5
    found = quantizer.fit().result
    assert not found.status.met
    assert found.criterion == "at least 1% of the float model's accuracy gained"
    seen: list[Any] = []
    quantizer.eval_func = lambda m: 0.5 if not seen.append(m) and len(seen) == 1 else 0.51  # type: ignore[func-returns-value]
    assert quantizer.fit().result.status.met
