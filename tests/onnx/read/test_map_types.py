"""Models that give or take maps: scikit-learn's classifiers, as skl2onnx writes them, and more."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from octavo.errors import InputDataError, NothingQuantizedError, VerificationError
from octavo.onnx import OnnxTarget, compare, convert_target, inspect, quantize_dynamic, session
from octavo.onnx.read.map_types import as_array
from octavo.recipe import preset
from octavo.tune import tune
from tests.graphs import FLOAT, build, checked, normal, text

STRING, INT64 = TensorProto.STRING, TensorProto.INT64
CLASSES = 4


@lru_cache
def samples(names: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 32)).astype(np.float32)
    y = (x @ rng.standard_normal((32, CLASSES))).argmax(1)
    return x, np.array(["cat", "dog", "cow", "hen"])[y] if names else y


@lru_cache
def classifier(kind: str) -> bytes:
    """What skl2onnx writes for it."""
    from skl2onnx import convert_sklearn, to_onnx
    from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    mlp = MLPClassifier((64, 32), max_iter=60, random_state=0)
    x, y = samples(kind == "texts")
    options: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training that is not finished, and deprecations
        if kind == "dictionaries":
            rows = [{f"f{i}": float(v) for i, v in enumerate(row)} for row in x]
            model = make_pipeline(DictVectorizer(sparse=False), mlp).fit(rows, y)
            takes = DictionaryType(StringTensorType([1]), FloatTensorType([1]))
            return convert_sklearn(model, initial_types=[("row", takes)]).SerializeToString()
        if kind == "opset-9":
            options["target_opset"] = {"": 9, "ai.onnx.ml": 1}
        if kind == "columns":
            options["options"] = {"zipmap": "columns"}
        models = {
            "pipeline": make_pipeline(StandardScaler(), mlp),
            "logistic": LogisticRegression(),
            "forest": RandomForestClassifier(3, random_state=0),
        }
        return to_onnx(models.get(kind, mlp).fit(x, y), x[:1], **options).SerializeToString()


MLPS = ("numbers", "texts", "pipeline", "columns", "opset-9")


def written(kind: str, folder: Path) -> Path:
    path = folder / f"{kind}.onnx"
    path.write_bytes(classifier(kind))
    return path


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("kind", MLPS)
def test_a_classifier_gives_maps_after_as_before(kind: str, target: str, tmp_path: Path) -> None:
    path, out = written(kind, tmp_path), tmp_path / "out.onnx"
    report = quantize_dynamic(path, out, target=target)
    assert len(report.quantized) >= 2
    assert report.verification.status == "passed"
    assert 0 < report.verification.error < 0.05
    feed = {"X": samples()[0]}
    labels, *expected = session(path).run(None, feed)
    our_labels, *got = session(out).run(None, feed)
    assert [type(a) for a in got] == [type(a) for a in expected]
    if kind != "columns":
        assert got[0][0].keys() == expected[0][0].keys()
        assert np.abs(as_array(got[0]) - as_array(expected[0])).max() < 0.1
    assert (our_labels == labels).mean() > 0.95
    before, after = (onnx.load(p).graph.output[1:] for p in (path, out))
    assert [v.type for v in after] == [v.type for v in before]


@pytest.mark.parametrize("recipe", ["int8-per-tensor", "float16", "int8-accurate"])
def test_recipes_that_raise_the_opset_keep_the_types(recipe: str, tmp_path: Path) -> None:
    path, out = written("opset-9", tmp_path), tmp_path / "out.onnx"
    before = path.read_bytes()
    report = quantize_dynamic(path, out, recipe=recipe)
    assert report.verification.status == "passed"
    assert report.opset >= 10 and path.read_bytes() == before
    assert inspect(path).decisions
    assert onnx.load(out).graph.output[1].type == onnx.load(path).graph.output[1].type


@pytest.mark.parametrize("kind", ["logistic", "forest"])
def test_one_without_layers_says_so(kind: str, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    with pytest.raises(NothingQuantizedError, match="it has no layer that holds weights"):
        quantize_dynamic(path, tmp_path / "out.onnx")
    report = quantize_dynamic(path, tmp_path / "out.onnx", allow_nothing=True)
    assert report.verification.status == "passed"


def test_the_numbers_inside_are_what_is_compared(tmp_path: Path) -> None:
    """Nothing but the maps holds floating-point numbers here."""
    path = written("numbers", tmp_path)
    strict = replace(preset("int8"), max_error=1e-9)
    with pytest.raises(VerificationError, match="at output 'output_probability'"):
        quantize_dynamic(path, tmp_path / "out.onnx", recipe=strict)


def test_other_commands_take_them(tmp_path: Path) -> None:
    path, out, native = written("texts", tmp_path), tmp_path / "o.onnx", tmp_path / "n.onnx"
    quantize_dynamic(path, out)
    found = {output.name: output for output in compare(path, out).outputs}
    assert 0 < found["output_probability"].difference.error < 0.1
    assert convert_target(out, native, to="native").verification.error is not None
    tuned = tune(str(path), criterion=0.05, max_trials=1, objective="modelsize")
    assert tuned.status.met
    assert 0 < tuned.baseline.accuracy - tuned.best.accuracy < 0.05


def rows(count: int) -> list[dict[str, Any]]:
    x, _ = samples()
    return [{"row": {f"f{i}": float(v) for i, v in enumerate(x[n])}} for n in range(count)]


def test_dictionaries_are_made_up_with_the_keys_that_are_known(tmp_path: Path) -> None:
    path, out = written("dictionaries", tmp_path), tmp_path / "out.onnx"
    report = quantize_dynamic(path, out)
    assert report.verification.status == "passed"
    assert 0 < report.verification.error < 0.05
    (made,) = OnnxTarget(path).made_up({}, 0)[:1]
    assert made["row"].keys() == rows(1)[0]["row"].keys()
    assert onnx.load(out).graph.input[0].type == onnx.load(path).graph.input[0].type


def test_dictionaries_are_given(tmp_path: Path) -> None:
    path, out = written("dictionaries", tmp_path), tmp_path / "out.onnx"
    assert quantize_dynamic(path, out, check_inputs=rows(3)).verification.runs == 3
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows(5))))
    assert quantize_dynamic(path, out, check_inputs=data).verification.runs == 5
    assert compare(path, out, data).runs == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros((1, 32), np.float32), "takes a map, and this is a ndarray"),
        ({"f0": "much"}, "takes a map of texts to float32"),
        ({0: 0.5}, "takes a map of texts to float32, which cannot hold what is given: 0 is no"),
    ],
)
def test_what_is_no_such_map_is_refused(given: Any, said: str, tmp_path: Path) -> None:
    path = written("dictionaries", tmp_path)
    with pytest.raises(InputDataError, match=said):
        quantize_dynamic(path, tmp_path / "out.onnx", check_inputs={"row": given})


NUMBERS = list(range(10, 42))
READERS = {
    "texts": (STRING, {"string_vocabulary": [f"f{i}" for i in range(32)]}, "DictVectorizer"),
    "numbers": (INT64, {"int64_vocabulary": NUMBERS}, "DictVectorizer"),
    "cast": (INT64, {"map_form": "SPARSE", "max_map": 32, "cast_to": "TO_FLOAT"}, "CastMap"),
}


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("kind", READERS)
def test_each_operator_that_takes_a_map_is_fed(kind: str, target: str, tmp_path: Path) -> None:
    key, attributes, op = READERS[kind]
    nodes = [
        helper.make_node(op, ["row"], ["x"], domain="ai.onnx.ml", **attributes),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="layer"),
    ]
    model = build(nodes, {}, {"y": (FLOAT, [1, 64])}, {"w": normal(32, 64)})
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    takes = helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, None))
    model.graph.input.append(helper.make_value_info("row", takes))
    v = checked(model, tmp_path, target=target)
    assert v.status == "passed" and 0 < v.error < 0.05
    if kind == "numbers":  # as JSON has them
        row = {"row": {str(k): 1.5 for k in NUMBERS}}
        checked(model, tmp_path, check_inputs=row)


def test_sequences_of_tensors_are_compared_too(tmp_path: Path) -> None:
    body = "[layer] h = MatMul (x, w) parts = SplitToSequence <axis = 1> (h)"
    model = text(body, "float[n, 64] x", "seq(float[]) parts", {"w": normal(64, 64)})
    v = checked(model, tmp_path)
    assert v.status == "passed" and 0 < v.error < 0.05


@pytest.mark.parametrize(
    ("output", "array"),
    [
        ([{1: 0.25, 0: 0.75}, {0: 0.5, 1: 0.5}], [[0.75, 0.25], [0.5, 0.5]]),
        ({"b": 2.0, "a": 1.0}, [1.0, 2.0]),
        ([{0: 1.0}, {0: 2.0, 1: 3.0}], [1.0, 2.0, 3.0]),
        ([np.ones(2), np.zeros(2)], [[1.0, 1.0], [0.0, 0.0]]),
        ([np.ones(1), np.zeros(2)], [1.0, 0.0, 0.0]),
        ([], []),
    ],
)
def test_as_array(output: Any, array: Any) -> None:
    found = as_array(output)
    assert np.array_equal(found, np.array(array, np.float32))
    assert np.shape(found) == np.shape(array)
