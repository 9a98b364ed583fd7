"""Recipes as YAML files: round trips, line numbers, and errors that start with FILE:LINE."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from octavo.errors import RecipeError
from octavo.recipe import FLOAT, PRESETS, Kind, Recipe, Rule, dump_recipe, load_recipe
from octavo.recipe.yaml_files import loads_recipe
from tests.recipe.strategies import recipes


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip(name: str) -> None:
    assert loads_recipe(dump_recipe(PRESETS[name])) == PRESETS[name]


@settings(deadline=None, max_examples=50)
@given(recipe=recipes())
def test_recipes_round_trip(recipe: Recipe) -> None:
    text = dump_recipe(recipe)
    assert loads_recipe(text) == recipe
    assert dump_recipe(loads_recipe(text)) == text


def test_a_file_is_loaded_with_the_line_of_each_rule(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "\ufeff# a comment\r\nversion: 1\r\nbase: int8\r\n\r\nrules:\r\n"
        "  - name: /encoder/*   # stays\r\n    scheme: float\r\n    reason: größer\r\n"
        "  - {kind: lstm, scheme: int8-accurate}\r\n"
        "  -\r\n    op: Gemm\r\n    scheme: &own\r\n      weight: {symmetric: false}\r\n"
        "  - {regex: 'a|b', scheme: *own}\r\n",
        encoding="utf-8",
        newline="",
    )
    for given_path in (path, str(path)):
        recipe = load_recipe(given_path)
        assert [rule.line for rule in recipe.rules] == [6, 9, 11, 14, None, None]
        assert recipe.rules[0] == Rule(FLOAT, name="/encoder/*", reason="größer")
        assert recipe.rules[1].kind is Kind.LSTM
        assert recipe.rules[2].scheme == recipe.rules[3].scheme
        assert recipe.rules[4:] == PRESETS["int8"].rules


def test_values_that_yaml_would_take_for_something_else() -> None:
    text = "{base: int8, name: 2024-13-45, max_error: 1e-2, rules: [{op: 'null', scheme: float}]}"
    recipe = loads_recipe(text)
    assert (recipe.name, recipe.max_error, recipe.rules[0].op) == ("2024-13-45", 0.01, "null")


def test_json_is_yaml() -> None:
    assert loads_recipe('{"base": "int8",\n "rules": [\n]}') == PRESETS["int8"]


DEEP = "base: int8\nrules:\n  - kind: conv\n    scheme:\n      weight:\n"
BAD_TEXTS = {
    # text: (line, message)
    "": (1, "the recipe is empty; start with `base: int8`"),
    "# nothing\n\n": (1, "the recipe is empty"),
    "5": (
        1,
        "a recipe is a mapping with version, name, base, max_error, attention, mix, default, ",
    ),
    "base: [int8\nname: x": (2, "while parsing a flow sequence: expected ',' or ']'"),
    "\nbase: int8: x": (2, "mapping values are not allowed here"),
    "base: int8\n\tname: x": (2, "found character '\\t' that cannot start any token"),
    "base: int8\n---\nbase: int8": (2, "but found another document"),
    "base: int8\nname: *other": (2, "found undefined alias 'other'"),
    "base: int8\nname: 'x": (2, "found unexpected end of stream"),
    "base: int8\n\nname: \x07": (3, "'\\x07': special characters are not allowed"),
    "base: int8\nname: !env HOME": (2, "cannot read the value of type !env"),
    "base: int8\nversion: !!int abc": (2, "cannot read the value of type int: 'abc'"),
    "base: int8\n? [a]\n: b": (2, "a key is a word, not a list or a mapping"),
    "base: int8\nname: a\nbase: int8": (3, "key 'base' is there twice"),
    "&all\nbase: int8\nrules: [*all]": (1, "the recipe is nested too deeply"),
    "[" * 500: (1, "the recipe is nested too deeply"),
    "# mine\nname: x": (
        2,
        "a recipe needs `default` (a scheme) or `base` (a preset's name). Known:",
    ),
    "version: 2\nlayers: []": (1, "recipe version 2 is not 1, the one known here"),
    "base: int8\nversion: '1'": (2, "`version` is a whole number; got '1'"),
    "name: x\nbase: int9": (
        2,
        "unknown preset 'int9'. Did you mean 'int8' or 'int4'? Known: float16, int4, ",
    ),
    "base: int8\nmaxerror: 1": (2, "unknown key 'maxerror' in a recipe. Did you mean 'max_error'?"),
    "base: int8\n<<: {name: x}": (2, "unknown key '<<' in a recipe. Known: attention, base, def"),
    "base: int8\n\nmax_error: abc": (3, "`max_error` is a number; got 'abc'"),
    "base: int8\nmax_error: -.inf": (2, "max_error -inf must be above 0 and finite"),
    "base: int8\nname: 12": (2, "`name` is text; got 12; put it in quotes"),
    "base: int8\nrules: {}": (2, "`rules` is a list of mappings; got {}"),
    "base: int8\nrules:\n  - conv": (
        3,
        "a rule is a mapping with name, regex, kind, op, scheme, r",
    ),
    "name: x\ndefault: flaot": (2, "unknown scheme 'flaot'. Did you mean 'float' or 'float16'?"),
    "base: int8\nrules:\n- kind: conv\n  scheme: float\n- name: a\n  kind: conv\n  scheme: float": (
        5,
        "a rule matches by exactly one of name, regex, kind, op; got ['name', 'kind']",
    ),
    "base: int8\nrules:\n- scheme: float": (3, "exactly one of name, regex, kind, op; got none"),
    "base: int8\nrules:\n- kind: conv": (3, "a rule needs `scheme`: float, a preset's name, or"),
    "base: int8\nrules:\n- scheme: float\n  regex: '('": (4, "regex '(': missing ), unterminated"),
    "base: int8\nrules:\n- scheme: float\n  kind: cnv": (4, "unknown kind 'cnv'. Did you mean 'co"),
    "base: int8\nrules:\n- scheme: float\n  nme: x": (
        4,
        "unknown key 'nme' in a rule. Did you mea",
    ),
    f"{DEEP}        qtype: int7": (
        6,
        "unknown qtype 'int7'. Did you mean 'int8' or 'int4' or 'uint8'? Known",
    ),
    f"{DEEP}        symmetric: false\n        granularity: chanel": (
        7,
        "unknown granularity 'chanel'. Did you mean 'channel'? Known: block, channel, group, row,",
    ),
    f"{DEEP}        symmetric: yes": (6, "`symmetric` is true or false; got 'yes'"),
    f"{DEEP}        symmetry: true": (
        6,
        "unknown key 'symmetry' in `weight`. Did you mean 'symmet",
    ),
    f"{DEEP}        observer: hist": (
        6,
        "unknown observer 'hist'. Did you mean 'histogram'? Known",
    ),
    f"{DEEP}        granularity: block\n        block: 7": (
        7,
        "block 7 is not one of 16, 32, 64, ",
    ),
    f"{DEEP}        qtype: float16": (4, "float16 weights take float activations; say `activation"),
    f"{DEEP}        3": (
        5,
        "`weight` is a mapping with qtype, granularity, symmetric, reduce_range",
    ),
    f"{DEEP}        qtype: int8\n      activation: {{group: 64}}": (
        7,
        "`group` (a length) goes with",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD_TEXTS.items(), ids=range(len(BAD_TEXTS)))
def test_every_error_names_file_and_line(
    text: str, expected: tuple[int, str], tmp_path: Path
) -> None:
    line, message = expected
    with pytest.raises(RecipeError) as caught:
        loads_recipe(text)
    assert str(caught.value).startswith(f"<string>:{line}: ")
    assert message in str(caught.value)
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert type(caught.value) is RecipeError


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("base: int8")
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "recipes.yaml")
    assert str(caught.value) == (
        f"{tmp_path}/recipes.yaml: there is no such recipe file. "
        "Did you mean 'recipe.yaml'? Known: recipe.yaml."
    )
    with pytest.raises(RecipeError, match=r"nowhere/r\.yaml: there is no such recipe file"):
        load_recipe(tmp_path / "nowhere" / "r.yaml")
    with pytest.raises(RecipeError, match="cannot read the recipe: Is a directory"):
        load_recipe(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("base: int8\n# größer\n".encode("latin-1"))
    with pytest.raises(RecipeError, match=r"latin\.yaml:2: a recipe is UTF-8 text; byte 0xf6 is"):
        load_recipe(latin)
