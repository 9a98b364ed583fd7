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


@settings(deadline=None, max_examples=20)
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


RULE = "base: int8\nrules:\n- scheme: float\n"
WEIGHT = "base: int8\nrules:\n  - kind: conv\n    scheme:\n      weight:\n"
BAD_TEXTS = {
    # text: (line, what the message names)
    "": (1, "the recipe is empty; start with `base: int8`"),
    "# nothing\n\n": (1, "the recipe is empty"),
    "5": (1, "a recipe is a mapping with version, name, base, max_error"),
    "base: [int8\nname: x": (2, "expected ',' or ']'"),
    "\nbase: int8: x": (2, "mapping values are not allowed here"),
    "base: int8\n\tname: x": (2, "found character '\\t'"),
    "base: int8\n---\nbase: int8": (2, "found another document"),
    "base: int8\nname: *other": (2, "undefined alias 'other'"),
    "base: int8\nname: 'x": (2, "unexpected end of stream"),
    "base: int8\n\nname: \x07": (3, "'\\x07': special characters"),
    "base: int8\nname: !env HOME": (2, "type !env"),
    "base: int8\nversion: !!int abc": (2, "type int: 'abc'"),
    f"base: int8\nversion: {'1' * 6000}": (2, "type int: '111"),
    f"base: int8\nversion: 0x{'f' * 6000}": (2, "type int: '0xf"),
    f"base: int8\nmax_error: 0x{'f' * 6000}": (2, "type int: '0xf"),
    "base: int8\n? [a]\n: b": (2, "a key is a word"),
    "base: int8\nname: a\nbase: int8": (3, "key 'base' is there twice"),
    "&all\nbase: int8\nrules: [*all]": (1, "nested too deeply"),
    "[" * 500: (1, "nested too deeply"),
    "# mine\nname: x": (2, "a recipe needs `default` (a scheme) or `base`"),
    "version: 2\nlayers: []": (1, "recipe version 2 is not 1"),
    "base: int8\nversion: '1'": (2, "`version` is a whole number; got '1'"),
    "base: int8\nversion: 1.0": (2, "`version` is a whole number"),
    "base: int8\nversion: true": (2, "`version` is a whole number; got True"),
    "name: x\nbase: int9": (2, "unknown preset 'int9'. Did you mean 'int8'"),
    "base:": (1, "`base` is text; got None"),
    "base: int8\nmaxerror: 1": (2, "unknown key 'maxerror' in a recipe. Did you mean 'max_error'?"),
    "base: int8\n<<: {name: x}": (2, "unknown key '<<' in a recipe"),
    "base: int8\n\nmax_error: abc": (3, "`max_error` is a number; got 'abc'"),
    "base: int8\nmax_error: true": (2, "`max_error` is a number; got True"),
    f"base: int8\nmax_error: {10**400}": (2, "`max_error` is a number; got 1000"),
    "base: int8\nmax_error: 0": (2, "max_error 0.0 must be above 0"),
    "base: int8\nmax_error: .nan": (2, "max_error nan"),
    "base: int8\nmax_error: -.inf": (2, "max_error -inf"),
    "base: int8\nattention: float16": (2, "unknown attention 'float16'"),
    "base: int8\nattention: 16": (2, "`attention` is text; got 16"),
    "base: int8\nname: 12": (2, "`name` is text; got 12; put it in quotes"),
    "base: int8\nrules: {}": (2, "`rules` is a list of mappings; got {}"),
    "base: int8\nrules: float": (2, "`rules` is a list of mappings; got 'float'"),
    "base: int8\nrules:\n  - conv": (3, "a rule is a mapping with name, regex, kind, op, scheme"),
    f"{RULE}- name: a\n  kind: conv\n  scheme: float": (3, "exactly one of name, regex, kind, op"),
    f"{RULE}  name: a\n  kind: conv": (3, "got ['name', 'kind']"),
    "base: int8\nrules:\n- kind: conv": (3, "a rule needs `scheme`"),
    f"{RULE}  name:": (4, "`name` is text; got None"),
    f"{RULE}  regex: '('": (4, "regex '(': missing )"),
    f"{RULE}  kind: cnv": (4, "unknown kind 'cnv'. Did you mean 'conv'"),
    f"{RULE}  nme: x": (4, "unknown key 'nme' in a rule. Did you mea"),
    "name: x\ndefault: flaot": (2, "unknown scheme 'flaot'. Did you mean 'float' or 'float16'?"),
    "name: x\ndefault:": (2, "a scheme (or `float`, or a preset's name) is a mapping"),
    "name: x\ndefault: [1]": (2, "got [1]"),
    "name: x\ndefault: {wieght: {}}": (2, "unknown key 'wieght' in a scheme"),
    "name: x\ndefault: {1: {}}": (2, "unknown key '1' in a scheme"),
    "name: x\ndefault: {weight: int8}": (2, "`weight` is a mapping with qtype, granularity"),
    "name: x\ndefault:\n  activation: {symmetric: true}": (3, "'symmetric' in `activation`"),
    "name: x\ndefault:\n  activation: {qtype: int8}": (3, "activations are quantized to 'uint8'"),
    f"{WEIGHT}        qtype: int7": (6, "unknown qtype 'int7'. Did you mean 'int8'"),
    f"{WEIGHT}        qtype: 8": (6, "`qtype` is text; got 8; put it in quotes"),
    f"{WEIGHT}        symmetric: false\n        granularity: chanel": (
        *(7, "unknown granularity 'chanel'. Did you mean 'channel'?"),
    ),
    f"{WEIGHT}        granularity:": (6, "`granularity` is text; got None"),
    f"{WEIGHT}        symmetric: yes": (6, "`symmetric` is true or false; got 'yes'"),
    f"{WEIGHT}        reduce_range: 1": (6, "`reduce_range` is true or false; got 1"),
    f"{WEIGHT}        symmetry: true": (6, "unknown key 'symmetry' in `weight`"),
    f"{WEIGHT}        observer: true": (6, "`observer` is text; got True"),
    f"{WEIGHT}        observer: hist": (6, "unknown observer 'hist'. Did you mean 'histogram'"),
    f"{WEIGHT}        granularity: block\n        block: 7": (7, "block 7 is not one of 16, 32"),
    f"{WEIGHT}        granularity: block\n        block: '32'": (7, "`block` is a whole number"),
    f"{WEIGHT}        granularity: block\n        block: 32.0": (7, "`block` is a whole number"),
    f"{WEIGHT}        granularity: block\n        block: true": (7, "`block` is a whole number"),
    f"{WEIGHT}        qtype: float16": (4, "float16 weights take float activations"),
    f"{WEIGHT}        3": (5, "`weight` is a mapping with qtype, granularity"),
    f"{WEIGHT}        qtype: int8\n      activation: {{group: 64}}": (7, "`group` (a length)"),
}


@pytest.mark.parametrize(("text", "expected"), BAD_TEXTS.items(), ids=range(len(BAD_TEXTS)))
def test_every_error_names_file_and_line(
    text: str, expected: tuple[int, str], tmp_path: Path
) -> None:
    line, named = expected
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError) as of_file:
        load_recipe(path)
    assert str(of_file.value).startswith(f"{path}:{line}: ")
    assert named in str(of_file.value)
    assert type(of_file.value) is RecipeError


def test_errors_of_texts_and_of_data_name_their_place_too() -> None:
    with pytest.raises(RecipeError, match=r"^<string>:2: .*'maxerror'"):
        loads_recipe("base: int8\nmaxerror: 1")
    with pytest.raises(RecipeError, match=r"rules\[1\]\.scheme\.weight\.qtype: .*'int7'"):
        Recipe.from_dict(
            {
                "base": "int8",
                "rules": [
                    {"kind": "conv", "scheme": "float"},
                    {"kind": "conv", "scheme": {"weight": {"qtype": "int7"}}},
                ],
            }
        )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("base: int8")
    (tmp_path / "latin.yaml").write_bytes("base: int8\n# größer\n".encode("latin-1"))
    for name, said in {
        "recipes.yaml": r"recipes\.yaml: .* no such recipe file\. Did you mean 'recipe\.yaml'\?",
        "nowhere/r.yaml": r"nowhere/r\.yaml: there is no such recipe file",
        ".": "Is a directory",
        "latin.yaml": r"latin\.yaml:2: .* UTF-8 text; byte 0xf6",
    }.items():
        with pytest.raises(RecipeError, match=said):
            load_recipe(tmp_path / name)
