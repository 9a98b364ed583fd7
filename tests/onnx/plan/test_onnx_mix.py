"""A mix in ONNX files: what the report adds up to is what --bits and --size allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import octavo.onnx
from octavo.errors import TooFewBitsError
from octavo.recipe import Recipe, Report

RULES: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "float": [{"name": "second", "scheme": "float"}],
    "int8": [{"name": "second", "scheme": "int8"}],
    "int8-block": [{"name": "table", "scheme": "float"}, {"name": "first", "scheme": "int8-block"}],
}
FORMS: list[dict[str, str]] = [
    {"target": "portable"},
    {"target": "native"},
    {"target": "portable", "quant_format": "qdq"},
]


def _model() -> onnx.ModelProto:
    """A table tied to an output layer, two products, one of three axes, and a small one."""
    rng = np.random.default_rng(0)
    shapes = {"table": (500, 192), "w1": (192, 384), "w2": (384, 192), "w3": (2, 192, 160)}
    weights = {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}
    weights["few"] = rng.normal(size=(192, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], name="table"),
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"], name="second"),
        helper.make_node("Gemm", ["c", "table"], ["logits"], name="head", transB=1),
        helper.make_node("MatMul", ["c", "w3"], ["stack"], name="stack"),
        helper.make_node("MatMul", ["c", "few"], ["labels"], name="few"),
    ]
    outs = [("logits", ["n", 500]), ("stack", [2, "n", 160]), ("labels", ["n", 3])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in outs],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _made(tmp_path: Path, mix: dict[str, Any], rules: list[Any], form: dict[str, str]) -> Report:
    recipe = Recipe.from_dict({"base": "int4-mixed", "mix": mix, "rules": rules})
    return octavo.onnx.quantize_dynamic(
        _model(), tmp_path / "m.onnx", recipe=recipe, verify=False, **form
    )


@pytest.mark.parametrize("form", FORMS, ids=["portable", "native", "qdq"])
@pytest.mark.parametrize("rules", RULES.values(), ids=list(RULES))
def test_reports_keep_to_bits_and_size(
    tmp_path: Path, rules: list[dict[str, Any]], form: dict[str, str]
) -> None:
    with pytest.raises(TooFewBitsError) as refused:
        _made(tmp_path, {"bits": 1.0}, rules, form)
    needed = float(str(refused.value).split(" a weight")[0].split()[-1])
    for bits in (needed, needed + 0.7):
        found = _made(tmp_path, {"bits": bits}, rules, form).bits_per_weight
        assert found is not None
        assert needed - 0.5 < found <= bits
    with pytest.raises(TooFewBitsError) as refused:
        _made(tmp_path, {"size": 1000}, rules, form)
    least = int(str(refused.value).split("take ")[1].split(" bytes")[0])
    for size in (least, least + 30_000):
        report = _made(tmp_path, {"size": size}, rules, form)
        total = sum(o.bytes_after for o in report.layers)
        assert total <= size
        assert total > 0.75 * size


@pytest.mark.parametrize("form", FORMS[:2], ids=["portable", "native"])
def test_excluded_layers_are_none_of_the_mix(tmp_path: Path, form: dict[str, str]) -> None:
    recipe = Recipe.from_dict({"base": "int4-mixed", "mix": {"bits": 5.5}})
    report = octavo.onnx.quantize_dynamic(
        _model(),
        tmp_path / "m.onnx",
        recipe=recipe,
        nodes_to_exclude=["table", "head", "stack"],
        verify=False,
        **form,
    )
    assert {o.layer.name for o in report.quantized} == {"first", "second"}
    assert report.bits_per_weight is not None
    assert 4.4 < report.bits_per_weight <= 5.5


def test_activations_stay_as_the_default_has_them(tmp_path: Path) -> None:
    data = {"base": "int4-mixed", "default": {"activation": {"granularity": "row"}}}
    report = octavo.onnx.quantize_dynamic(
        _model(),
        tmp_path / "m.onnx",
        recipe=Recipe.from_dict(data),
        target="native",
        verify=False,
    )
    schemes = {o.layer.name: o.scheme for o in report.quantized}
    assert all("block" in schemes[name] for name in ("first", "second", "head"))
    assert all("per row" in schemes[name] for name in ("first", "second", "head"))


@pytest.mark.parametrize("transposed", [False, True])
def test_layers_that_rounding_hurts_most_get_more_bits(tmp_path: Path, transposed: bool) -> None:
    """Two matrices of one size; in one, groups of inputs hold outliers."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(512, 512)).astype(np.float32) for name in ("plain", "odd")}
    weights["odd"] *= np.where(rng.random((512, 512)) < 0.01, 30, 1).astype(np.float32)
    made = [
        helper.make_node("Gemm", [x, w], [y], name=w, transB=int(transposed))
        for x, w, y in (("x", "plain", "h"), ("h", "odd", "y"))
    ]
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 512])],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    recipe = Recipe.from_dict({"base": "int4-mixed", "mix": {"bits": 6.9}})
    report = octavo.onnx.quantize_dynamic(
        model, tmp_path / "m.onnx", recipe=recipe, target="native", verify=False
    )
    schemes = {o.layer.name: o.scheme for o in report.quantized}
    assert schemes["odd"].startswith("int8")
    assert schemes["plain"].startswith("int4")
