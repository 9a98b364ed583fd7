"""The drop-in's arguments: each honoured or refused by name, each changing its own axis only."""

from __future__ import annotations

import copy
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime.quantization as ort_quantization
import pytest

from octavo.core.form import Form
from octavo.core.qparams import QType
from octavo.errors import NothingQuantizedError, OptionError, RecipeError
from octavo.onnx import QuantType, quantize_dynamic
from octavo.onnx.plan.options import EXTRA_OPTIONS, parse_request
from octavo.recipe import FLOAT, Granularity, Recipe, Rule, Scheme, preset
from octavo.recipe.recipe import PRESETS
from tests.graphs import Converted, checked, convert, mlp, normal, refused, save, text


def asked(**given: Any) -> Any:
    return parse_request(**{"recipe": None, "form": Form(), **given})


def test_the_positional_arguments_are_onnx_runtimes() -> None:
    ours = inspect.signature(quantize_dynamic).parameters.values()
    theirs = inspect.signature(ort_quantization.quantize_dynamic).parameters.values()
    positional = [p for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] == [p.name for p in theirs]
    assert positional[-1].name == "extra_options"
    required = [p.name for p in positional if p.default is p.empty]
    assert required == [p.name for p in theirs if p.default is p.empty]
    own = [p.name for p in ours if p.kind is p.KEYWORD_ONLY]
    assert own[:7] == [
        "recipe", "target", "cpu", "quant_format", "check_inputs", "verify", "progress",
    ]  # fmt: skip
    assert len(own) + len(positional) == len(ours)


def test_every_documented_extra_option_is_known() -> None:
    text = ort_quantization.quantize_dynamic.__doc__ or ""
    documented = re.findall(r"^ +([\w.]+) = True/False", text, re.MULTILINE)
    assert len(documented) >= 6
    assert set(documented) <= set(EXTRA_OPTIONS)


def test_a_call_written_for_onnx_runtime(tmp_path: Path) -> None:
    """All arguments in their places; only the import has changed."""
    path = save(mlp(4), tmp_path / "m.onnx")
    arguments = (
        ["MatMul"], True, False, ort_quantization.QuantType.QInt8,
        ["layer0", "layer1", "layer2"], ["layer2"], False, {"MatMulConstBOnly": True},
    )  # fmt: skip
    ort_quantization.quantize_dynamic(path, tmp_path / "theirs.onnx", *arguments)
    report = quantize_dynamic(path, tmp_path / "ours.onnx", *arguments)
    assert [o.layer.name for o in report.quantized] == ["layer0", "layer1"]
    theirs = onnx.load(tmp_path / "theirs.onnx").graph.node
    assert sum(n.op_type == "MatMulInteger" for n in theirs) == 2


def weight_of(recipe: Recipe) -> Any:
    assert recipe.default.weight is not None
    return recipe.default.weight


def test_nothing_given_is_the_recipe() -> None:
    assert asked().recipe == preset("int8")
    for name in PRESETS:
        assert asked(recipe=name).recipe == preset(name)


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"per_channel": True}, {"granularity": Granularity.CHANNEL}),
    ({"per_channel": False}, {"granularity": Granularity.TENSOR}),
    ({"reduce_range": True}, {"reduce_range": True}),
    ({"reduce_range": False}, {"reduce_range": False}),
    ({"weight_type": QuantType.QInt8}, {"qtype": QType.INT8}),
    ({"weight_type": QuantType.QUInt8}, {"qtype": QType.UINT8}),
    ({"weight_type": ort_quantization.QuantType.QUInt8}, {"qtype": QType.UINT8}),
    ({"weight_type": "QUInt8"}, {"qtype": QType.UINT8}),
    ({"extra_options": {"WeightSymmetric": True}}, {"symmetric": True}),
    ({"extra_options": {"WeightSymmetric": False}}, {"symmetric": False}),
]


@pytest.mark.parametrize("name", ["int8", "int8-accurate", "int8-per-tensor"])
@pytest.mark.parametrize(("given", "changes"), CHANGES, ids=str)
def test_one_argument_changes_one_axis(
    name: str, given: dict[str, Any], changes: dict[str, Any]
) -> None:
    before = preset(name)
    if name == "int8-per-tensor" and changes.get("qtype") is QType.UINT8:
        changes = {**changes, "symmetric": False}  # as in ONNX Runtime's own quantize_dynamic
    after = asked(recipe=name, **given).recipe
    assert weight_of(after) == replace(weight_of(before), **changes)
    assert after.default.activation == before.default.activation
    assert after.max_error == before.max_error
    assert [replace(r, scheme=FLOAT) for r in after.rules] == [
        replace(r, scheme=FLOAT) for r in before.rules
    ]


def test_it_changes_the_schemes_of_rules_too_and_no_float_ones() -> None:
    recipe = Recipe("mine", Scheme(), (Rule(Scheme(), name="a"), Rule(FLOAT, name="b")))
    a, b = asked(recipe=recipe, per_channel=False).recipe.rules
    assert a.scheme.weight is not None and a.scheme.weight.granularity is Granularity.TENSOR
    assert b.scheme is FLOAT
    assert weight_of(recipe).granularity is Granularity.CHANNEL  # the caller's is as it was


@pytest.mark.parametrize(
    ("given", "error", "texts"),
    [
        ({"weight_type": ort_quantization.QuantType.QInt4}, OptionError, ["QInt4", "'int4'"]),
        ({"weight_type": 3}, OptionError, ["weight_type '3'", "QInt8, QUInt8"]),
        ({"reduce_range": 2}, OptionError, ["reduce_range", "2"]),
        ({"op_types_to_quantize": ["Transpose", "Add"]}, RecipeError, ["'Add'", "MatMul"]),
        ({"op_types_to_quantize": "MatMul"}, OptionError, ["op_types_to_quantize is a list"]),
        ({"nodes_to_exclude": "layer0"}, OptionError, ["nodes_to_exclude is a list"]),
        ({"nodes_to_exclude": [1]}, OptionError, ["nodes_to_exclude is a list", "[1]"]),
        ({"extra_options": ["EnableSubgraph"]}, OptionError, ["extra_options maps names"]),
        ({"extra_options": {"Banana": True}}, OptionError, ["'Banana'", "MatMulConstBOnly"]),
        ({"extra_options": {7: True}}, OptionError, ["unknown extra option 7"]),
        ({"extra_options": {"extra.Sigmoid.nnapi": True}}, OptionError, ["NNAPI", "refused"]),
        (
            {"extra_options": {"ForceQuantizeNoInputCheck": True}}, OptionError,
            ["ForceQuantizeNoInputCheck", "operators without weights"],
        ),
        (
            {"target": "native", "quant_format": "qdq"}, OptionError,
            ["quant_format='qdq' (--format) is for other runtimes", "target 'native'"],
        ),
        ({"cpu": None}, OptionError, ["cpu=None", "any, vnni"]),
        ({"recipe": "float16", "weight_type": "QInt8"}, OptionError, ["float16", "qtype"]),
        ({"recipe": "float16", "per_channel": True}, OptionError, ["granularity", "float16"]),
        ({"recipe": "int8-block", "reduce_range": True}, OptionError, ["int8-block"]),
        (
            {"quant_format": "qdq", "extra_options": {"ActivationSymmetric": True}}, OptionError,
            ["ActivationSymmetric"],
        ),
        (
            {"nodes_to_quantize": ["enc*"]}, RecipeError,
            ["nodes_to_quantize (--only): 'enc*'", "layer1"],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_refused_by_name(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], texts: list[str]
) -> None:
    """Beside those of tests/errors/transcripts/python_onnx.txt."""
    path = save(mlp(), tmp_path / "m.onnx")
    with refused(tmp_path, error, *texts):
        quantize_dynamic(path, tmp_path / "out.onnx", **given)


@pytest.mark.parametrize("key", EXTRA_OPTIONS)
@pytest.mark.parametrize("value", [True, False])
def test_every_extra_option_is_honoured_or_refused(tmp_path: Path, key: str, value: bool) -> None:
    options = {key: value}
    try:
        assert names(convert(mlp(1), tmp_path, extra_options=options)) == ["layer0"]
    except OptionError as error:
        assert value and repr(key) in str(error)
    assert options == {key: value}


def names(done: Converted) -> list[str]:
    return [o.layer.name for o in done.report.quantized]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"nodes_to_quantize": ["layer1"]}, "1"),
        ({"nodes_to_quantize": ["layer[02]"]}, "02"),
        ({"nodes_to_quantize": ["layer?"], "nodes_to_exclude": ["*3"]}, "012"),
        ({"nodes_to_exclude": ["layer0", "layer[12]"]}, "3"),
        ({"nodes_to_exclude": ["relu*"]}, "0123"),
        ({"nodes_to_quantize": ["relu0", "layer2"]}, "2"),
        ({"nodes_to_quantize": [], "nodes_to_exclude": [], "op_types_to_quantize": []}, "0123"),
        ({"op_types_to_quantize": ["MatMul", "Transpose"]}, "0123"),
        ({"nodes_to_exclude": ("layer0",)}, "123"),
    ],
    ids=str,
)
def test_selection_by_name(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    given = copy.deepcopy(options)
    done = convert(mlp(4), tmp_path, **options)
    assert names(done) == [f"layer{i}" for i in expected]
    assert options == given, "the caller's lists were changed"
    reasons = {o.layer.name: o.reason for o in done.report.left_float}
    assert len(reasons) == 4 - len(expected) and all(reasons.values())


def test_a_name_with_brackets_matches_itself(tmp_path: Path) -> None:
    model = mlp(2)
    model.graph.node[0].name = "layer[0]/*"
    assert names(convert(model, tmp_path, nodes_to_exclude=["layer[0]/*"])) == ["layer1"]


@pytest.mark.parametrize("pattern", ["same", "sam*"])
@pytest.mark.parametrize("branches", [False, True], ids=["a row", "branches"])
def test_a_name_stands_for_every_node_that_has_it(
    tmp_path: Path, branches: bool, pattern: str
) -> None:
    """And each layer has a name of its own too."""
    body, inputs = "[same] a = MatMul (x, w) [same] h = MatMul (a, w)", "float[2, 64] x"
    if branches:
        each = "() => (float[] {0}) {{ [same] {0} = MatMul (x, w) }}"
        then, other = each.format("o"), each.format("p")
        body = f"h = If (c) <then_branch = t {then}, else_branch = e {other}>"
        inputs += ", bool c"
    model = text(f"{body} [other] y = MatMul (h, w)", inputs, weights={"w": normal(64, 64)})
    excluded = convert(model, tmp_path, nodes_to_exclude=[pattern]).report
    assert [o.quantized for o in excluded.layers] == [False, False, True]
    assert [o.reason for o in excluded.left_float] == ["excluded by name"] * 2
    only = convert(model, tmp_path, nodes_to_quantize=[pattern]).report
    assert [o.quantized for o in only.layers] == [True, True, False]
    own = [o.layer.name for o in only.layers]
    assert len(set(own)) == 3
    done = convert(model, tmp_path, nodes_to_exclude=[own[1]]).report
    assert [o.quantized for o in done.layers] == [True, False, True]


def test_subgraphs(tmp_path: Path) -> None:
    body = """h = If (c) <then_branch = t () => (float[] o) { [a] o = MatMul (x, k) },
                    else_branch = e () => (float[] o) { [b] o = MatMul (x, w) }>
        [outside] y = MatMul (h, w)"""
    weights = {"k": normal(48, 48), "w": normal(48, 48, seed=5)}
    model = text(body, "float[m, 48] x, bool c", weights=weights)
    assert sorted(names(convert(model, tmp_path))) == ["a", "b", "outside"]
    done = convert(model, tmp_path, extra_options={"EnableSubgraph": False})
    assert names(done) == ["outside"]
    assert all("EnableSubgraph" in o.reason for o in done.report.left_float)
    with pytest.raises(NothingQuantizedError):
        convert(model, tmp_path, nodes_to_exclude=["a", "b", "outside"])


def test_a_recipe_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "version: 1\nname: mine\nbase: int8\nrules:\n"
        "  - name: layer0\n    scheme: float\n    reason: first layers matter\n"
    )
    for given in (path, str(path)):
        done = convert(mlp(), tmp_path, recipe=given)
        assert names(done) == ["layer1"] and done.report.recipe["name"] == "mine"
        assert done.outcome("layer0").reason == "first layers matter"
    with pytest.raises(RecipeError, match=r"none\.yaml"):
        convert(mlp(), tmp_path, recipe=tmp_path / "none.yaml")


def test_a_rule_by_name_beats_a_node_list_and_must_match(tmp_path: Path) -> None:
    """The lists choose among layers; how a layer is held is the recipe's."""
    recipe = preset("int8").with_rules_first(Rule(FLOAT, name="layer1", reason="because"))
    for options in ({}, {"nodes_to_quantize": ["layer*"]}):
        done = convert(mlp(), tmp_path, recipe=recipe, **options)
        assert names(done) == ["layer0"]
        assert done.outcome("layer1").reason == "because"
    recipe = preset("int8").with_rules_first(Rule(FLOAT, name="layerX"))
    with refused(tmp_path, RecipeError, "name 'layerX' matches no layer", "Did you mean"):
        convert(mlp(), tmp_path, recipe=recipe)


def test_progress(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    checked(mlp(), tmp_path, progress=lambda *step: seen.append(step))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["reading", "quantizing", "writing", "verifying"]
    assert all(0 <= done <= total for _, done, total in seen)
    assert ("quantizing", 2, 2) in seen
