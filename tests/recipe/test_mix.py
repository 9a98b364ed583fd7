"""Bits for layers: sizes are kept to, sensitive layers get more, bad limits are named."""

from __future__ import annotations

import math

import pytest

from octavo.core.layer import Kind, Layer
from octavo.core.qparams import QType
from octavo.errors import RecipeError
from octavo.recipe import FLOAT, Decision, Recipe, Rule, plan, preset
from octavo.recipe.bit_budget import Mix


def _linear(name: str, n: int = 512, k: int = 512, shares: tuple[str, ...] = ()) -> Layer:
    shape = ((f"{name}.weight", (n, k)),)
    return Layer(name, Kind.LINEAR, "Linear", shape, 4 * n * k, n * k, shares_with=shares)


LAYERS = [_linear(f"layers.{i}.{part}") for i in range(4) for part in ("q", "k", "v", "o")]

NAMES = [layer.name for layer in LAYERS]


def _recipe(**mix: object) -> Recipe:
    return Recipe.from_dict({"base": "int4-mixed", "mix": mix})


def _bits(decisions: list[Decision]) -> float:
    """A weight, as the formats count: integers and float16 scales."""
    held = weights = 0.0
    for decision in decisions:
        w, size = decision.scheme.weight, math.prod(decision.layer.weights[0][1])
        assert w is not None and w.block is not None
        held += size * ((4 if w.qtype is QType.INT4 else 8) + (16 if w.symmetric else 20) / w.block)
        weights += size
    return held / weights


@pytest.mark.parametrize("bits", [4.3, 4.5, 5.0, 6.5, 8.7])
def test_bits_are_kept_to_and_used(bits: float) -> None:
    found = _bits(plan(LAYERS, _recipe(bits=bits)))
    assert found <= bits
    assert found > bits - 0.6  # 16 layers alike: the last one does not fit


def test_more_bits_never_make_a_layer_worse() -> None:
    sensitivities = {layer.name: 1.0 + i for i, layer in enumerate(LAYERS)}
    before: list[float] = [0.0] * len(LAYERS)
    for bits in (4.4, 4.7, 5.5, 7.0):
        found = plan(LAYERS, _recipe(bits=bits, sensitivities=sensitivities))
        now = [_bits([decision]) for decision in found]
        assert all(b >= a for a, b in zip(before, now, strict=True))
        before = now


def test_layers_that_share_weights_lose_together() -> None:
    """Two that hold one weight lose 6 of 4 bits, more than the single one, and get the 8 bits."""
    twins = ("a", "b")
    layers = [_linear(name, shares=tuple(n for n in twins if n != name)) for name in twins]
    mix = _recipe(bits=6.8, sensitivities={"a": 3.0, "b": 3.0, "c": 5.0})
    decisions = plan([*layers, _linear("c")], mix)
    bits = {d.layer.name: d.scheme.weight.qtype for d in decisions if d.scheme.weight}
    assert bits == {"a": QType.INT8, "b": QType.INT8, "c": QType.INT4}


def test_sensitive_layers_get_the_bits() -> None:
    losses = {name: 50.0 if name == "layers.2.v" else 1.0 for name in NAMES}
    decisions = plan(LAYERS, _recipe(bits=4.9, sensitivities=losses))
    eight = [d.layer.name for d in decisions if _bits([d]) > 8]
    assert "layers.2.v" in eight
    assert len(eight) < 4


def test_small_layers_come_before_large_ones_of_the_same_sensitivity() -> None:
    layers = [_linear("large", 4096, 512), _linear("small", 128, 512)]
    said = {"large": 1.0, "small": 1.0}
    large, small = plan(layers, _recipe(bits=4.8, sensitivities=said))
    assert _bits([small]) > 8 > _bits([large])


def test_layers_that_share_weights_are_held_alike_and_counted_once() -> None:
    tied = [_linear("table", 4096, 64, ("head",)), _linear("head", 4096, 64, ("table",))]
    table, head = plan(tied, _recipe(size=4096 * 64 * 6 // 8))
    assert table.scheme.weight == head.scheme.weight
    assert _bits([head]) <= 6


def test_losses_of_layers_that_share_weights_are_added() -> None:
    layers = [_linear("table", shares=("head",)), _linear("head", shares=("table",))]
    losses = {"table": 3.0, "head": 3.0, "other": 5.0}
    recipe = _recipe(bits=7.0, sensitivities=losses)
    table, _, other = plan([*layers, _linear("other")], recipe)
    assert _bits([table]) > 8 > _bits([other])


def test_a_size_counts_layers_left_float() -> None:
    recipe = _recipe(size=2 * 10**6).with_rules_first(Rule(FLOAT, name="layers.0.*"))
    with pytest.raises(RecipeError, match=r"4194304 of them in layers that the mix leaves alone"):
        plan(LAYERS, recipe)
    recipe = _recipe(size=6 * 10**6).with_rules_first(Rule(FLOAT, name="layers.0.*"))
    mixed = [d for d in plan(LAYERS, recipe) if not d.scheme.is_float]
    assert _bits(mixed) * 12 * 512 * 512 / 8 + 4 * 4 * 512 * 512 <= 6 * 10**6


def test_bits_count_layers_of_rules_as_they_are_held() -> None:
    rules = (Rule(preset("int8").default, name="layers.0.*"), Rule(FLOAT, name="layers.1.*"))
    decisions = plan(LAYERS, _recipe(bits=6.0).with_rules_first(*rules))
    held = {d.layer.name: d for d in decisions}
    assert all(held[name].scheme.is_float for name in NAMES[4:8])
    mixed = _bits([held[name] for name in NAMES[8:]])
    assert 4.5 < (4 * 8 + 8 * mixed) / 12 <= 6.0
    with pytest.raises(RecipeError, match=r"bits 5\.0: these layers take, \d+ bytes by rules"):
        plan(LAYERS, _recipe(bits=5.0).with_rules_first(*rules))


def test_layers_of_rules_that_share_weights_count_once() -> None:
    tied = [_linear("a", 512, 512, ("b",)), _linear("b", 512, 512, ("a",)), *LAYERS]
    rules = (Rule(FLOAT, name="a"), Rule(FLOAT, name="b"))
    with pytest.raises(RecipeError, match=r"1048576 of them in layers"):
        plan(tied, _recipe(size=10).with_rules_first(*rules))


def test_activations_and_other_kinds_are_the_defaults() -> None:
    conv = Layer("conv", Kind.CONV, "Conv", (("w", (8, 8, 3, 3)),), 4 * 8 * 72, None)
    data = {"base": "int4-mixed", "default": {"activation": {"granularity": "row"}}}
    other = Recipe.from_dict(data | {"rules": [{"kind": "conv", "scheme": "int8-accurate"}]})
    *layers, last = plan([*LAYERS, conv], other)
    assert {d.scheme.activation for d in layers} == {preset("int8").default.activation}
    assert _bits(layers) <= 5
    assert last.scheme == preset("int8-accurate").default
    weights_only = Recipe.from_dict({"base": "int4-mixed", "default": "int8-block"})
    assert {d.scheme.activation for d in plan(LAYERS, weights_only)} == {None}


@pytest.mark.parametrize("default", ["float", "float16"])
def test_a_default_without_integers_has_no_mix(default: str) -> None:
    with pytest.raises(RecipeError, match=r"a mix chooses bits where `default` has integers"):
        Recipe.from_dict({"base": "int4-mixed", "default": default})


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        ({"bits": 5, "size": 10}, "one of `bits`"),
        ({"bits": -1}, "above 0"),
        ({"bits": 5, "sensitivities": {"a": -1}}, "0 or more"),
        ({"bits": 5, "sensitivities": {"a": [1, 2]}}, "or 6 of them"),
        ({"bits": 5, "sensitivity": {}}, "sensitivity"),
    ],
    ids=["both", "negative", "negative-sensitivity", "two-losses", "unknown-key"],
)
def test_bad_mixes_are_refused(mix: dict[str, object], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Recipe.from_dict({"base": "int4-mixed", "mix": mix})
    with pytest.raises(RecipeError, match=r"bits 3\.0: these layers take 4\.\d a weight or more"):
        plan(LAYERS, _recipe(bits=3.0))


def test_the_preset_never_refuses() -> None:
    tiny = [_linear("tiny", 3, 5)]
    assert _bits(plan(tiny, preset("int4-mixed"))) < 5
    assert 4.5 < _bits(plan(LAYERS, preset("int4-mixed"))) <= 5


def test_a_mixed_recipe_comes_back_from_its_data() -> None:
    recipe = _recipe(
        bits=4.75, sensitivities={"layers.0.q": 2.5, "layers.0.k": [6, 5, 4, 3, 2, 0.1]}
    )
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert isinstance(preset("int4-mixed").mix, Mix)
    assert "mix" not in preset("int4").to_dict()
