"""Texts that name layers, from anybody: they mean what `re` says, in bounded time and space."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError, OctavoError, RecipeError
from octavo.recipe import FLOAT, Rule, load_recipe, patterns, yaml_files
from octavo.tune import load_config

ATOMS = ["a", "b", "[ab]", "[^a]", ".", r"\w", r"\b", "^", "$", "[a-b]", r"[^\W]", "", "(?<=a)"]
REPEATS = ["*", "+", "?", "{2}", "{1,3}", "*?", "{2,}"]
EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds(str.__add__, inner, inner)
        | st.builds("(?:{}|{})".format, inner, inner)
        | st.builds("({}){}".format, inner, st.sampled_from(REPEATS))
        | st.builds("({}{})".format, st.sampled_from(["?=", "?!"]), inner)
    ),
    max_leaves=9,
)


@settings(max_examples=200)
@given(st.sampled_from(["", "(?i)", "(?x)"]), EXPRESSIONS, st.text("abAB /", max_size=7))
def test_all_ways_at_once_are_what_re_finds(flags: str, expression: str, name: str) -> None:
    pattern = flags + expression
    expected = re.fullmatch(pattern, name) is not None
    compiled, parts = patterns._compiled(pattern)
    parts = patterns.parser.parse(pattern) if parts is None else parts
    assert patterns.matches(pattern, name) is expected
    ends = patterns._Walk(name, compiled.flags).ends(parts, 0)
    assert bool(ends >> len(name) & 1) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|aa)*b", "(?:a*)*b", "(?:.*.*)*b", ".*.*.*.*.*.*.*b", "(?=(a+)+b).*",
     "((a{1,99}){1,99}){1,99}b", "((((a{999}){999}){999}){999})b*c*d*"],
)  # fmt: skip
def test_no_expression_takes_exponential_time(pattern: str) -> None:
    began = time.process_time()
    assert not patterns.matches(pattern, "a" * 200)
    assert time.process_time() - began < 5  # `re` needs years, or hours


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"(a)\1", "references to groups"),
        ("(a)?(?(1)b|c)", "conditions"),
        ("(?i:a)b", "flags of a group"),
        ("a" * 1001, "1001 characters, and 1000 are allowed"),
        ("(?:" * 11 + "a" + "+)" * 11, "nested too deeply"),
        ("(", "missing )"),
    ],
)
def test_what_cannot_be_bounded_is_refused(pattern: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=re.escape(named)):
        Rule(FLOAT, regex=pattern)
    path = tmp_path / "conf.yaml"
    layers = f"op_wise: {{'{pattern}': {{weight: {{dtype: [fp32]}}}}}}"
    path.write_text(
        "model: {name: m, framework: onnxrt_integerops}\n"
        f"quantization: {{approach: post_training_dynamic_quant, {layers}}}\n"
    )
    with pytest.raises(ConfigError, match=re.escape(named)):
        load_config(path)


BOMB = "- &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"- &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 9)
)
CHAIN = "- &a0 [x]\n" + "".join(f"- &a{i} [*a{i - 1}]\n" for i in range(1, 500))
TEXTS = {
    "aliases of aliases": (f"base: int8\nrules:\n{BOMB}", "aliases repeat"),
    "a chain of aliases": (f"base: int8\nrules:\n{CHAIN}", "aliases repeat"),
    "an alias of itself": ("base: int8\nrules: &a [*a]\n", "nested too deeply"),
    "lists in lists": (f"base: int8\nrules: {'[' * 200}{']' * 200}\n", "nested too deeply"),
}


@pytest.mark.parametrize("read", [load_recipe, load_config])
@pytest.mark.parametrize(("text", "named"), TEXTS.values(), ids=TEXTS)
def test_small_texts_make_no_large_data(
    text: str, named: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(OctavoError, match=named) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:") and len(str(caught.value)) < 400
    if "aliases" in named:
        assert time.process_time() - began < 10


@pytest.mark.parametrize("read", [load_recipe, load_config])
def test_a_large_file_is_not_read(
    read: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_files, "MOST_BYTES", 1000)
    monkeypatch.setattr(yaml_files, "MOST_VALUES", 100)
    path = tmp_path / "large.yaml"
    path.write_text("base: int8\n# " + "x" * 1000)
    with pytest.raises(OctavoError, match=f"{path}: .*at most 1,000 bytes"):
        read(path)
    path.write_text(f"base: int8\nrules:\n  [{'x, ' * 100}x]\n")
    with pytest.raises(OctavoError, match=f"{path}:3: .*more than 100 values"):
        read(path)
