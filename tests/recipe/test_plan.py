"""From an inventory and a recipe to decisions."""

import pytest

from octavo.errors import RecipeError
from octavo.recipe import (
    FLOAT,
    PRESETS,
    Kind,
    Layer,
    Recipe,
    Rule,
    Scheme,
    dump_recipe,
    plan,
    preset,
)
from octavo.recipe.recipe import Origin
from octavo.recipe.yaml_files import loads_recipe

ACCURATE = PRESETS["int8-accurate"].default
BLOCK = PRESETS["int8-block"].default


def layer(name: str, kind: Kind = Kind.LINEAR, op: str = "MatMul") -> Layer:
    return Layer(name, kind, op, (("w", (4, 4)),), bytes=64, macs_per_row=16)


LAYERS = [
    layer("/encoder/0/query"),
    layer("/encoder/0/dense", op="Gemm"),
    layer("/encoder/1/query"),
    layer("/conv", Kind.CONV, "Conv"),
    layer("/head[0]", op="Gemm"),
]


def schemes(*rules: Rule, default: Scheme = FLOAT) -> list[Scheme]:
    return [d.scheme for d in plan(LAYERS, Recipe("test", default, rules))]


def test_one_decision_for_each_layer_in_order() -> None:
    decisions = plan(LAYERS, PRESETS["int8"])
    assert [d.layer for d in decisions] == LAYERS
    assert [d.scheme.is_float for d in decisions] == [False, False, False, True, False]
    assert decisions[3].reason.startswith("float by default: ONNX Runtime's integer convolution")
    assert {d.reason for d in decisions if not d.scheme.is_float} == {""}
    assert plan([], PRESETS["int8"]) == []


def test_convolutions_stay_float_except_as_quantize_dynamic_has_them() -> None:
    converted = {
        name for name, recipe in PRESETS.items() if not plan(LAYERS, recipe)[3].scheme.is_float
    }
    assert converted == {"int8-per-tensor", "float16"}


def test_the_first_rule_that_matches_decides() -> None:
    one, every = Rule(ACCURATE, name="/encoder/0/query"), Rule(BLOCK, name="/encoder/*")
    assert schemes(one, every)[:3] == [ACCURATE, BLOCK, BLOCK]
    assert schemes(every, one)[:3] == [BLOCK, BLOCK, BLOCK]
    assert schemes(Rule(BLOCK, kind=Kind.LINEAR), Rule(ACCURATE, op="MatMul"))[0] == BLOCK
    assert schemes(Rule(ACCURATE, op="Gemm"), default=BLOCK) == [
        *(BLOCK, ACCURATE, BLOCK, BLOCK, ACCURATE)
    ]


def test_a_base_decides_after_the_rules_of_the_file() -> None:
    recipe = loads_recipe("base: int8\nrules: [{kind: conv, scheme: int8}]")
    assert not plan(LAYERS, recipe)[3].scheme.is_float


def test_how_patterns_match() -> None:
    def matched(rule: Rule) -> list[int]:
        return [i for i, entry in enumerate(LAYERS) if rule.matches(entry)]

    assert matched(Rule(FLOAT, name="/encoder/*/query")) == [0, 2]
    assert matched(Rule(FLOAT, name="/head[0]")) == [4]  # the very name, though also a glob
    assert matched(Rule(FLOAT, name="/ENCODER/*")) == []
    assert matched(Rule(FLOAT, regex=r"/encoder/\d/.*")) == [0, 1, 2]
    assert matched(Rule(FLOAT, regex="/con|query")) == []  # the whole name
    assert matched(Rule(FLOAT, regex="/encoder/0")) == []
    assert matched(Rule(FLOAT, op="Gemm")) == [1, 4]
    assert matched(Rule(FLOAT, kind=Kind.CONV)) == [3]


def test_float_layers_have_a_reason() -> None:
    rules = (Rule(FLOAT, name="/conv", reason="too slow"), Rule(FLOAT, op="Gemm"))
    decisions = plan(LAYERS, Recipe("test", FLOAT, rules))
    assert [d.reason for d in decisions] == [
        "the recipe's default is float",
        "the recipe's rule for op 'Gemm'",
        "the recipe's default is float",
        "too slow",
        "the recipe's rule for op 'Gemm'",
    ]


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (
            "name: /encoder/0/qeury",
            "name '/encoder/0/qeury' matches no layer. Did you mean '/encoder/0/query'",
        ),
        ("name: /decoder/*", "Known: /conv, /encoder/0/dense, /encoder/0/query"),
        ("regex: /conv/.*", "regex '/conv/.*' matches no layer. Did you mean '/conv'"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error_that_names_its_line(
    rule: str, named: str
) -> None:
    recipe = loads_recipe(f"base: int8\nrules:\n  - {{{rule}, scheme: float}}")
    with pytest.raises(RecipeError) as caught:
        plan(LAYERS, recipe)
    assert str(caught.value).startswith("<string>:3: rule ")
    assert named in str(caught.value)


def test_kinds_ops_and_shadowed_rules_need_not_match() -> None:
    shadowed = (Rule(FLOAT, name="/*"), Rule(BLOCK, name="/conv"))
    unused = (Rule(FLOAT, kind=Kind.GRU), Rule(FLOAT, op="Einsum"))
    assert set(schemes(*shadowed, *unused)) == {FLOAT}


def test_names_are_looked_up_and_patterns_tried_in_the_order_of_the_rules() -> None:
    """A name with a glob's signs means the layer of that very name too."""
    rules = (
        Rule(FLOAT, name="c", reason="first"),
        Rule(ACCURATE, name="b[0]"),
        Rule(BLOCK, name="b*"),
        Rule(FLOAT, name="c", reason="second"),
        Rule(FLOAT, name="a", reason="named"),
        Rule(BLOCK, regex="a|c"),
    )
    layers = [layer(name) for name in ("a", "b[0]", "b0", "c")]
    decisions = plan(layers, Recipe("r", Scheme(), rules))
    assert [d.reason for d in decisions] == ["named", "", "", "first"]
    assert [d.scheme for d in decisions] == [FLOAT, ACCURATE, ACCURATE, FLOAT]


def test_a_decision_says_whose_it_is() -> None:
    mine = Rule(FLOAT, name="/mine", reason="mine")
    layers = [layer("/mine", Kind.CONV), layer("/theirs", Kind.CONV), layer("/fc")]
    recipe = preset("int8").with_rules_first(mine)
    origins = [Origin.USER, Origin.PRESET, Origin.DEFAULT]
    # A preset's rule stays one in a file.
    for given in (recipe, loads_recipe(dump_recipe(recipe))):
        assert [d.origin for d in plan(layers, given)] == origins
        assert [d.left_by_preset for d in plan(layers, given)] == [False, True, False]
