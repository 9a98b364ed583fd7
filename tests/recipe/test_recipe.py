"""Rules, recipes and presets as plain data."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings

from octavo.core.qparams import QType
from octavo.errors import RecipeError
from octavo.recipe import (
    FLOAT,
    PRESETS,
    ActivationScheme,
    Granularity,
    Kind,
    Recipe,
    Rule,
    Scheme,
    WeightScheme,
    preset,
)
from octavo.recipe.reading import LocatedRecipeError
from tests.recipe.strategies import recipes, rules


@settings(deadline=None, max_examples=40)
@given(recipe=recipes(), rule=rules())
def test_recipes_and_rules_round_trip(recipe: Recipe, rule: Rule) -> None:
    data = json.loads(json.dumps(recipe.to_dict()))
    assert Recipe.from_dict(data) == recipe
    assert Recipe.from_dict(data).to_dict() == data
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


def test_rules_first_and_rules_that_differ_in_their_line_alone_are_equal() -> None:
    first = Rule(FLOAT, name="a", line=3)
    assert first == Rule(FLOAT, name="a")
    assert PRESETS["int8"].with_rules_first(first).rules == (first, *PRESETS["int8"].rules)


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


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Rule(FLOAT), "exactly one of name, regex, kind, op; got none"),
        (lambda: Recipe.from_dict([]), "a recipe is a mapping"),  # type: ignore[arg-type]
        (lambda: WeightScheme(granularity=Granularity.ROW), "'row' is for activations"),
        (lambda: ActivationScheme(granularity=Granularity.CHANNEL), "'channel' is for weights"),
        (lambda: WeightScheme(observer="histogram"), "use it with granularity 'tensor'"),
        (lambda: WeightScheme(block=32), "`block` .* granularity 'block'"),
        (lambda: WeightScheme(granularity=Granularity.BLOCK), "`block` .* granularity 'block'"),
        (lambda: ActivationScheme(group=128), "`group` .* granularity 'group'"),
        (lambda: ActivationScheme(granularity=Granularity.GROUP, group=0), "group 0 is not one"),
        (lambda: Scheme(weight=None), "needs a quantized weight"),
        (lambda: Scheme(WeightScheme(QType.FLOAT16)), "say `activation: null`"),
    ],
)
def test_contradictions_are_refused_without_a_file_too(make: Any, named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        make()


def test_located_errors_survive_pickling() -> None:
    error = LocatedRecipeError("no", ("rules", 2, "scheme"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "rules[2].scheme: no"
    assert again.path == error.path
