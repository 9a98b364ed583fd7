"""Rules, recipes and presets as plain data."""

import copy
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings

from octavo.errors import RecipeError
from octavo.recipe import FLOAT, PRESETS, Kind, Recipe, Rule, Scheme, preset
from octavo.recipe.reading import LocatedRecipeError
from tests.recipe.strategies import recipes, rules


@settings(deadline=None)
@given(recipe=recipes())
def test_recipes_round_trip(recipe: Recipe) -> None:
    data = json.loads(json.dumps(recipe.to_dict()))
    assert Recipe.from_dict(data) == recipe
    assert Recipe.from_dict(data).to_dict() == data


@settings(deadline=None)
@given(rule=rules())
def test_rules_round_trip(rule: Rule) -> None:
    assert Rule.from_dict(rule.to_dict()) == rule


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip_and_are_their_own_base(name: str) -> None:
    assert preset(name).name == name
    assert Recipe.from_dict(preset(name).to_dict()) == preset(name)
    assert Recipe.from_dict({"base": name}) == preset(name)


def test_a_base_fills_in_what_is_left_out() -> None:
    mine = {"name": "/head", "scheme": "int8-accurate", "reason": "it is small"}
    recipe = Recipe.from_dict({"base": "int8", "max_error": 1, "rules": [mine]})
    base = PRESETS["int8"]
    assert (recipe.name, recipe.default, recipe.max_error) == ("int8", base.default, 1.0)
    assert isinstance(recipe.max_error, float)
    assert recipe.rules[0] == Rule(
        PRESETS["int8-accurate"].default, name="/head", reason="it is small"
    )
    assert recipe.rules[1:] == base.rules
    named = Recipe.from_dict({"base": "int8", "name": "mine", "default": "float", "rules": None})
    assert (named.name, named.default, named.rules) == ("mine", FLOAT, base.rules)
    assert PRESETS["int8"] == base


def test_the_caller_keeps_their_data() -> None:
    data = {"base": "int8", "rules": [{"kind": "conv", "scheme": {"weight": {"qtype": "int8"}}}]}
    before = copy.deepcopy(data)
    Recipe.from_dict(data)
    assert data == before


def test_rules_that_differ_in_their_line_alone_are_equal() -> None:
    assert Rule(FLOAT, name="a", line=3) == Rule(FLOAT, name="a")


def test_rules_first() -> None:
    first = Rule(FLOAT, op="MatMul")
    recipe = PRESETS["int8"].with_rules_first(first)
    assert recipe.rules == (first, *PRESETS["int8"].rules)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(FLOAT, name="/a/*"), "name '/a/*'"),
        (Rule(FLOAT, regex="a|b"), "regex 'a|b'"),
        (Rule(FLOAT, op="MatMul"), "op 'MatMul'"),
        (Rule(FLOAT, kind=Kind.CONV), "kind 'conv'"),
    ],
)
def test_rules_in_words(rule: Rule, words: str) -> None:
    assert rule.describe() == words


BASE: dict[str, Any] = {"base": "int8"}
RULE: dict[str, Any] = {"scheme": "float"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "a recipe needs `default` (a scheme) or `base` (a preset's name). Known: float16, "),
        (
            [],
            "a recipe is a mapping with version, name, base, max_error, attention, mix, default, ",
        ),
        (
            {"base": "int9"},
            "unknown preset 'int9'. Did you mean 'int8' or 'int4'? Known: float16, int4,",
        ),
        ({"base": None}, "`base` is text; got None"),
        ({**BASE, "max_eror": 1}, "unknown key 'max_eror' in a recipe. Did you mean 'max_error'?"),
        ({**BASE, "max_error": "abc"}, "`max_error` is a number; got 'abc'"),
        ({**BASE, "max_error": True}, "`max_error` is a number; got True"),
        ({**BASE, "max_error": 10**400}, "`max_error` is a number; got 1000"),
        ({**BASE, "attention": "float16"}, "unknown attention 'float16'. Did you mean"),
        ({**BASE, "attention": 16}, "`attention` is text; got 16"),
        ({**BASE, "max_error": 0}, "max_error 0.0 must be above 0 and finite"),
        ({**BASE, "max_error": math.nan}, "max_error nan must be above 0 and finite"),
        ({**BASE, "max_error": math.inf}, "max_error inf must be above 0 and finite"),
        ({**BASE, "version": "x"}, "`version` is a whole number; got 'x'"),
        ({**BASE, "version": 1.0}, "`version` is a whole number; got 1.0"),
        ({**BASE, "version": True}, "`version` is a whole number; got True"),
        ({"version": 2, "layers": []}, "recipe version 2 is not 1, the one known here"),
        ({**BASE, "name": 3}, "`name` is text; got 3; put it in quotes"),
        (
            {**BASE, "default": {"weight": {"x": 1}}},
            "default.weight.x: unknown key 'x' in `weight`",
        ),
        ({**BASE, "rules": {}}, "`rules` is a list of mappings; got {}"),
        ({**BASE, "rules": "float"}, "`rules` is a list of mappings; got 'float'"),
        (
            {**BASE, "rules": [RULE, 3]},
            "rules[0]: a rule matches by exactly one of name, regex, kind",
        ),
        (
            {**BASE, "rules": [3]},
            "rules[0]: a rule is a mapping with name, regex, kind, op, scheme",
        ),
        (
            {**BASE, "rules": [{**RULE, "name": "a", "kind": "conv"}]},
            "by exactly one of name, regex, kind, op; got ['name', 'kind']",
        ),
        ({**BASE, "rules": [{"name": "a"}]}, "rules[0]: a rule needs `scheme`: float, a preset's"),
        ({**BASE, "rules": [{**RULE, "name": None}]}, "rules[0].name: `name` is text; got None"),
        ({**BASE, "rules": [{**RULE, "regex": "("}]}, "rules[0].regex: regex '(': missing )"),
        (
            {**BASE, "rules": [{**RULE, "kind": "cnv"}]},
            "rules[0].kind: unknown kind 'cnv'. Did you mean 'conv'? Known: activation_matmul,",
        ),
        (
            {**BASE, "rules": [{**RULE, "knd": "conv"}]},
            "unknown key 'knd' in a rule. Did you mean 'k",
        ),
        (
            {**BASE, "rules": [{"kind": "conv", "scheme": {"weight": {"qtype": "int7"}}}]},
            "rules[0].scheme.weight.qtype: unknown qtype 'int7'",
        ),
    ],
)
def test_data_that_is_no_recipe_is_refused(data: Any, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_dict(data)
    assert message in str(caught.value)


def test_wrong_arguments_are_refused_without_data_too() -> None:
    with pytest.raises(RecipeError, match="exactly one of name, regex, kind, op; got none"):
        Rule(FLOAT)
    with pytest.raises(RecipeError, match=r"regex '\[': unterminated character set"):
        Rule(FLOAT, regex="[")
    with pytest.raises(RecipeError, match="recipe version 3 is not 1"):
        Recipe("x", Scheme(), version=3)
    with pytest.raises(RecipeError, match=r"max_error -1 must be above 0"):
        Recipe("x", Scheme(), max_error=-1)
    with pytest.raises(RecipeError, match="unknown preset 'int-8'"):
        preset("int-8")


def test_located_errors_survive_pickling() -> None:
    error = LocatedRecipeError("no", ("rules", 2, "scheme"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "rules[2].scheme: no"
    assert again.path == error.path
