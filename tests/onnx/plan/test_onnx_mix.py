"""A mix in ONNX files: what the report adds up to is what --bits and --size allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.errors import TooFewBitsError
from octavo.recipe import Recipe
from octavo.results.report import Report
from tests.graphs import convert, normal, rng, text

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
    shapes = {"table": (500, 192), "w1": (192, 384), "w2": (384, 192), "w3": (2, 192, 160)}
    weights = {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    weights["few"] = normal(192, 3)
    body = """[table] x = Gather (table, ids)
        [first] a = MatMul (x, w1)
        b = Relu (a)
        [second] c = MatMul (b, w2)
        [head] logits = Gemm <transB = 1> (c, table)
        [stack] stack = MatMul (c, w3)
        [few] labels = MatMul (c, few)"""
    outs = "float[n, 500] logits, float[2, n, 160] stack, float[n, 3] labels"
    return text(body, "int64[n] ids", outs, weights, opset=21)


def _made(tmp_path: Path, recipe: dict[str, Any], **options: Any) -> Report:
    recipe = {"base": "int4-mixed", **recipe}
    return convert(_model(), tmp_path, recipe=Recipe.from_dict(recipe), **options).report


@pytest.mark.sweep(2)
@pytest.mark.parametrize("form", FORMS, ids=["portable", "native", "qdq"])
@pytest.mark.parametrize("rules", RULES.values(), ids=list(RULES))
def test_reports_keep_to_bits_and_size(
    tmp_path: Path, rules: list[dict[str, Any]], form: dict[str, str]
) -> None:
    def made(**mix: Any) -> Report:
        return _made(tmp_path, {"mix": mix, "rules": rules}, **form)

    with pytest.raises(TooFewBitsError) as refused:
        made(bits=1.0)
    needed = float(str(refused.value).split(" a weight")[0].split()[-1])
    for bits in (needed, needed + 0.7):
        found = made(bits=bits).bits_per_weight
        assert found is not None
        assert needed - 0.5 < found <= bits
    with pytest.raises(TooFewBitsError) as refused:
        made(size=1000)
    least = int(str(refused.value).split("take ")[1].split(" bytes")[0])
    for size in (least, least + 30_000):
        total = sum(o.bytes_after for o in made(size=size).layers)
        assert 0.75 * size < total <= size


@pytest.mark.parametrize("form", FORMS[:2], ids=["portable", "native"])
def test_excluded_layers_are_none_of_the_mix(tmp_path: Path, form: dict[str, str]) -> None:
    excluded = ["table", "head", "stack"]
    report = _made(tmp_path, {"mix": {"bits": 5.5}}, nodes_to_exclude=excluded, **form)
    assert {o.layer.name for o in report.quantized} == {"first", "second"}
    assert report.bits_per_weight is not None
    assert 4.4 < report.bits_per_weight <= 5.5


def test_activations_stay_as_the_default_has_them(tmp_path: Path) -> None:
    default = {"activation": {"granularity": "row"}}
    report = _made(tmp_path, {"default": default}, target="native")
    schemes = {o.layer.name: o.scheme for o in report.quantized}
    for name in ("first", "second", "head"):
        assert "block" in schemes[name] and "per row" in schemes[name]


@pytest.mark.parametrize("transposed", [0, 1])
def test_layers_that_rounding_hurts_most_get_more_bits(tmp_path: Path, transposed: int) -> None:
    """Two matrices of one size; in one, groups of inputs hold outliers."""
    weights = {"plain": normal(512, 512), "odd": normal(512, 512, seed=1)}
    weights["odd"] *= np.where(rng(2).random((512, 512)) < 0.01, 30, 1).astype(np.float32)
    gemm = f"Gemm <transB = {transposed}>"
    body = f"[plain] h = {gemm} (x, plain) [odd] y = {gemm} (h, odd)"
    recipe = Recipe.from_dict({"base": "int4-mixed", "mix": {"bits": 6.9}})
    model = text(body, "float[n, 512] x", weights=weights, opset=21)
    done = convert(model, tmp_path, recipe=recipe, target="native")
    assert done.outcome("odd").scheme.startswith("int8")
    assert done.outcome("plain").scheme.startswith("int4")
