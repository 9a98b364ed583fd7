"""Schemes: what they may hold, and as plain data."""

import json

import pytest
from hypothesis import given, settings

from octavo.core.qparams import QType
from octavo.recipe import FLOAT, PRESETS, Scheme, WeightScheme
from tests.recipe.strategies import schemes


@settings(deadline=None, max_examples=40)
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
