"""Schemes: what they may hold, and as plain data."""

import json
from typing import Any

import pytest
from hypothesis import given, settings

from octavo.core.qparams import QType
from octavo.errors import RecipeError
from octavo.recipe import FLOAT, PRESETS, ActivationScheme, Granularity, Scheme, WeightScheme
from tests.recipe.strategies import schemes


@settings(deadline=None)
@given(scheme=schemes())
def test_round_trip(scheme: Scheme) -> None:
    data = json.loads(json.dumps(scheme.to_dict()))
    assert Scheme.from_dict(data) == scheme
    assert Scheme.from_dict(data).to_dict() == data


def test_defaults_are_those_of_the_design() -> None:
    assert Scheme.from_dict({}) == Scheme() == PRESETS["int8"].default
    assert Scheme().to_dict() == {
        "weight": {
            "qtype": "int8",
            "granularity": "channel",
            "symmetric": True,
            "reduce_range": False,
            "observer": "minmax",
        },
        "activation": {"qtype": "uint8", "granularity": "row"},
    }


def test_words_stand_for_schemes() -> None:
    assert Scheme.from_dict("float") is FLOAT
    assert FLOAT.to_dict() == "float"
    for name, recipe in PRESETS.items():
        if recipe.mix is None:  # a mix has more than one
            assert Scheme.from_dict(name) == recipe.default


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        (FLOAT, "float"),
        (Scheme(), "int8 per channel, activations per row"),
        (PRESETS["int8-per-tensor"].default, "int8 per tensor, activations per tensor"),
        (
            PRESETS["int8-accurate"].default,
            "int8 per channel, affine, activations per group of 128",
        ),
        (PRESETS["int8-block"].default, "int8 per block of 32, weights only"),
        (PRESETS["float16"].default, "float16, weights only"),
        (
            Scheme(WeightScheme(QType.UINT8, reduce_range=True)),
            "uint8 per channel, 7 bits, activations per row",
        ),
    ],
)
def test_schemes_in_words(scheme: Scheme, words: str) -> None:
    assert scheme.describe() == words


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: WeightScheme(granularity=Granularity.ROW),
            "weight granularity 'row' is for activations; a weight takes",
        ),
        (
            lambda: ActivationScheme(granularity=Granularity.CHANNEL),
            "activation granularity 'channel' is for weights; an activation takes",
        ),
        (
            lambda: ActivationScheme(QType.INT8),
            "activations are quantized to 'uint8', not 'int8'; leave `activation` out",
        ),
        (
            lambda: WeightScheme(observer="hist"),
            "unknown observer 'hist'. Did you mean 'histogram'",
        ),
        (lambda: WeightScheme(observer="histogram"), "use it with granularity 'tensor', or"),
        (lambda: WeightScheme(block=32), "`block` (a length) goes with granularity 'block'"),
        (
            lambda: WeightScheme(granularity=Granularity.BLOCK),
            "`block` (a length) goes with granularity 'block'",
        ),
        (
            lambda: WeightScheme(granularity=Granularity.BLOCK, block=7),
            "block 7 is not one of 16, 32, 64, 128, 256",
        ),
        (lambda: ActivationScheme(group=128), "`group` (a length) goes with granularity 'group'"),
        (
            lambda: ActivationScheme(granularity=Granularity.GROUP, group=0),
            "group 0 is not one of 16, 32, 64, 128, 256",
        ),
        (lambda: Scheme(weight=None), "with quantized activations needs a quantized weight"),
        (
            lambda: Scheme(WeightScheme(QType.FLOAT16)),
            "float16 weights take float activations; say `activation: null`",
        ),
    ],
)
def test_contradictions_are_refused(make: Any, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("flaot", "unknown scheme 'flaot'. Did you mean 'float' or 'float16'? Known: float, flo"),
        (None, "a scheme (or `float`, or a preset's name) is a mapping with weight, activation; "),
        ([1], "got [1]"),
        ({"wieght": {}}, "unknown key 'wieght' in a scheme"),
        ({1: {}}, "unknown key 1 in a scheme"),
        ({"weight": "int8"}, "`weight` is a mapping with qtype, granularity"),
        (
            {"weight": {"blok": 1}},
            "weight.blok: unknown key 'blok' in `weight`. Did you mean 'block'?",
        ),
        (
            {"weight": {"qtype": "int7"}},
            "unknown qtype 'int7'. Did you mean 'int8' or 'int4' or 'uint8'?",
        ),
        ({"weight": {"qtype": 8}}, "weight.qtype: `qtype` is text; got 8; put it in quotes"),
        (
            {"weight": {"granularity": "chanel"}},
            "unknown granularity 'chanel'. Did you mean 'chann",
        ),
        ({"weight": {"granularity": None}}, "`granularity` is text; got None"),
        ({"weight": {"symmetric": "yes"}}, "`symmetric` is true or false; got 'yes'"),
        ({"weight": {"reduce_range": 1}}, "`reduce_range` is true or false; got 1"),
        ({"weight": {"observer": True}}, "`observer` is text; got True; put it in quotes"),
        (
            {"weight": {"granularity": "block", "block": "32"}},
            "`block` is a whole number; got '32'",
        ),
        (
            {"weight": {"granularity": "block", "block": 32.0}},
            "`block` is a whole number; got 32.0",
        ),
        (
            {"weight": {"granularity": "block", "block": True}},
            "`block` is a whole number; got True",
        ),
        (
            {"activation": {"symmetric": True}},
            "unknown key 'symmetric' in `activation`. Known: gran",
        ),
        (
            {"activation": {"qtype": "int8"}},
            "activation.qtype: activations are quantized to 'uint8'",
        ),
    ],
)
def test_data_that_is_no_scheme_is_refused(data: Any, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Scheme.from_dict(data)
    assert message in str(caught.value)
