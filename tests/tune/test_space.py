from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import RecipeError
from octavo.recipe import (
    FLOAT,
    Decision,
    Kind,
    Layer,
    Recipe,
    Rule,
    Scheme,
    WeightScheme,
    dump_recipe,
    plan,
    preset,
)
from octavo.recipe.yaml_files import loads_recipe
from octavo.results.tuning import Approach
from octavo.tune.space import Space
from tests.tune.simulated_context import BLOCKS, GROUPS, HALF, RAISED, layer, layers, space_of

INT8 = preset("int8")
EVERY_KIND = Recipe("every kind", Scheme())
PER_TENSOR = preset("int8-per-tensor")


def space(
    model: list[Layer],
    base: Recipe = INT8,
    alternatives: tuple[Rule, ...] = (),
    raised: tuple[Scheme, ...] = RAISED,
) -> Space:
    return Space.of(plan(model, base), base, alternatives, raised)


@pytest.mark.parametrize(
    ("kind", "schemes"),
    [
        (Kind.LINEAR, (Scheme(), GROUPS, BLOCKS, HALF, FLOAT)),
        *((k, (Scheme(), HALF, FLOAT)) for k in (Kind.CONV, Kind.LSTM, Kind.GRU, Kind.ATTENTION)),
        (Kind.EMBEDDING, (replace(Scheme(), activation=None), HALF, FLOAT)),
        (Kind.ACTIVATION_MATMUL, (Scheme(), FLOAT)),  # no weight to raise
    ],
)
def test_a_layer_has_its_own_scheme_then_the_raised_ones_that_fit_its_kind_then_float(
    kind: Kind, schemes: tuple[Scheme, ...]
) -> None:
    (choice,) = space([layer("a", kind)], EVERY_KIND, raised=(Scheme(), *RAISED)).choices
    assert choice.schemes == schemes
    assert choice.own == schemes[0]
    assert choice.intermediate_schemes == schemes[1:-1]


@pytest.mark.parametrize(
    ("base", "rungs"),
    [
        ("int8-per-tensor", (Scheme(), GROUPS, BLOCKS, HALF)),
        ("int8", (GROUPS, BLOCKS, HALF)),
        ("int8-accurate", (BLOCKS, HALF)),
        ("int8-block", (HALF,)),
        ("float16", ()),
    ],
)
def test_nothing_coarser_than_the_recipes_own_counts_as_raised(
    base: str, rungs: tuple[Scheme, ...]
) -> None:
    (choice,) = space([layer("a")], preset(base), raised=(Scheme(), *RAISED)).choices
    assert choice.intermediate_schemes == rungs


def test_layers_that_the_recipe_leaves_float_are_not_in_the_space() -> None:
    model = [layer("a"), layer("c", Kind.CONV)]
    found = space(model)
    assert [c.layer.name for c in found.choices] == ["a"]
    assert found.total_layers == 2


def test_an_alternative_brings_a_float_layer_into_the_space() -> None:
    model = [layer("a"), layer("c", Kind.CONV)]
    other = Rule(PER_TENSOR.default, kind=Kind.CONV)
    _, conv = space(model, alternatives=(other,)).choices
    assert conv.schemes == (FLOAT, PER_TENSOR.default)
    assert conv.own == FLOAT


def test_an_alternative_stands_before_the_raised_schemes_and_only_once() -> None:
    again = (Rule(PER_TENSOR.default, name="a"), Rule(HALF, name="a"), Rule(FLOAT, name="a"))
    (choice,) = space([layer("a")], alternatives=again, raised=(BLOCKS, HALF)).choices
    assert choice.schemes == (Scheme(), PER_TENSOR.default, HALF, BLOCKS, FLOAT)


def test_a_layer_that_cannot_be_quantized_is_never_in_the_space() -> None:
    decisions = [Decision(layer("a"), FLOAT, "its weight has rank 3")]
    found = Space.of(decisions, INT8, (Rule(Scheme(), name="*"),), RAISED)
    assert found.choices == ()
    assert found.candidate({}).recipe is INT8


def test_the_size_counts_every_assignment() -> None:
    assert space_of(3).size == 5**3


def test_no_deviation_is_the_base_recipe_itself() -> None:
    found = space_of(2)
    candidate = found.candidate({"l0": Scheme()})
    assert candidate.recipe is found.base
    assert candidate.description == "int8"


def test_each_layer_that_deviates_has_a_rule_of_its_own_before_all_others() -> None:
    recipe = space_of(3).candidate({"l2": BLOCKS, "l0": FLOAT, "l1": Scheme()}).recipe
    first, second = recipe.rules[:2]
    assert (first.name, first.scheme) == ("l0", FLOAT)
    assert "tuning" in first.reason
    assert (second.name, second.scheme, second.reason) == ("l2", BLOCKS, "")
    assert recipe.rules[2:] == INT8.rules
    assert recipe.name == "int8 tuned"
    held = {d.layer.name: d.scheme for d in plan(layers(3), recipe)}
    assert held == {"l0": FLOAT, "l1": Scheme(), "l2": BLOCKS}


def test_a_recipe_that_was_tuned_before_keeps_its_name() -> None:
    tuned = replace(INT8, name="int8 tuned")
    assert space([layer("a")], tuned).candidate({"a": FLOAT}).recipe.name == "int8 tuned"


@pytest.mark.parametrize("name", ["a[0]", "a*", "?", "/x/[!b]", "a.b", "^$", "\\", ""])
def test_a_rule_speaks_of_the_layer_of_its_name_alone(name: str) -> None:
    model = [layer(n) for n in dict.fromkeys([name, "a0", "ax", "a", "b", "/x/c"])]
    recipe = space(model).candidate({name: FLOAT}).recipe
    assert [d.layer.name for d in plan(model, recipe) if d.scheme.is_float] == [name]


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=8),
        st.sampled_from([Scheme(), *RAISED, FLOAT]),
        min_size=1,
        max_size=6,
    )
)
def test_a_candidates_recipe_survives_yaml_and_gives_what_was_assigned(
    assignment: dict[str, Scheme],
) -> None:
    model = [layer(name) for name in assignment]
    recipe = space(model).candidate(assignment).recipe
    read = loads_recipe(dump_recipe(recipe))
    assert read == recipe
    assert {d.layer.name: d.scheme for d in plan(model, read)} == assignment


def test_an_unknown_layer_is_an_error_that_names_its_neighbours() -> None:
    with pytest.raises(RecipeError, match=r"no layer 'l9' can be tuned.*Known: l0, l1"):
        space_of(2).candidate({"l9": FLOAT})


@pytest.mark.parametrize(
    ("count", "assignment", "words"),
    [
        (37, {"l3": FLOAT, "l1": FLOAT}, "int8, 2 of 37 layers float: l1, l3"),
        (2, {"l0": FLOAT}, "int8, 1 of 2 layers float: l0"),
        (3, {"l0": BLOCKS}, "int8, 1 layer int8 per block of 32, weights only: l0"),
        (
            4,
            {"l0": HALF, "l1": FLOAT, "l2": HALF},
            "int8, 1 of 4 layers float: l1; 2 layers float16, weights only: l0, l2",
        ),
        (2, {"l0": HALF, "l1": HALF}, "int8, all 2 layers float16, weights only"),
        (1, {"l0": HALF}, "int8, 1 layer float16, weights only"),
    ],
)
def test_words_say_what_deviates(count: int, assignment: dict[str, Scheme], words: str) -> None:
    assert space_of(count).candidate(assignment).description == words


def test_words_stay_short_and_can_be_given() -> None:
    found = space_of(40).candidate({f"l{at}": FLOAT for at in range(30)})
    assert found.description == "int8, 30 of 40 layers float: l0, l1, l2, l3 and 26 more"
    assert space_of(2).candidate({"l0": FLOAT}, "all but one").description == "all but one"


def test_a_static_space_makes_static_candidates_and_says_so() -> None:
    found = replace(space_of(2), approach=Approach.STATIC).candidate({"l0": FLOAT})
    assert found.approach is Approach.STATIC
    assert found.description == "int8 static, 1 of 2 layers float: l0"


def tied() -> Space:
    table = layer("table", Kind.EMBEDDING, shares_with=("head",))
    head = layer("head", shares_with=("table",))
    return space([table, layer("middle"), head])


def test_a_lookup_becomes_float_with_the_product_that_shares_its_table() -> None:
    found = tied()
    assert found.settle({"head": FLOAT}) == {"table": FLOAT, "head": FLOAT}
    assert found.quantized_layers({"head": FLOAT}) == {"middle"}
    assert found.candidate({"head": FLOAT}) == found.candidate({"head": FLOAT, "table": FLOAT})


def test_other_layers_that_share_a_weight_are_decided_each_on_its_own() -> None:
    assert tied().settle({"table": FLOAT}) == {"table": FLOAT}
    assert tied().settle({"head": BLOCKS}) == {"head": BLOCKS}
    products = [layer("a", shares_with=("b",)), layer("b", shares_with=("a",))]
    assert space(products).settle({"a": FLOAT}) == {"a": FLOAT}


def test_a_lookup_beside_a_product_that_the_recipe_itself_leaves_float_is_as_it_says() -> None:
    base = INT8.with_rules_first(Rule(FLOAT, name="head"))
    model = [layer("table", Kind.EMBEDDING, shares_with=("head",)), layer("head")]
    assert space(model, base).settle({}) == {}


def test_a_7_bit_weight_can_be_raised_to_8() -> None:
    narrow = replace(INT8, default=Scheme(WeightScheme(reduce_range=True)))
    (choice,) = space([layer("a")], narrow, raised=(Scheme(),)).choices
    assert choice.intermediate_schemes == (Scheme(),)
