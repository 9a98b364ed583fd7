"""Recipes as YAML files. Every error starts with `FILE:LINE: `."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.errors import OptionError, RecipeError
from octavo.recipe.document import Document, FileKind, read_text
from octavo.recipe.located import LocatedRecipeError
from octavo.recipe.recipe import Recipe, preset

RECIPE = FileKind("recipe", "start with `base: int8`", RecipeError)


def recipe_of(given: str | os.PathLike[str] | Recipe | None) -> Recipe:
    """A recipe, from itself, a preset's name or a YAML file; None is `int8`.

    Raises OptionError for anything else, RecipeError for an unknown name and a wrong file.
    """
    if given is None:
        return preset("int8")
    if isinstance(given, Recipe):
        return given
    if isinstance(given, os.PathLike) or (
        isinstance(given, str) and given.endswith((".yaml", ".yml"))
    ):
        return load_recipe(Path(given))
    if not isinstance(given, str):
        raise OptionError(
            f"recipe is a {type(given).__name__}; give a preset's name, a .yaml file or a Recipe"
        )
    return preset(given)


def load_recipe(path: str | Path) -> Recipe:
    """The recipe in the YAML file `path`; each rule knows its line.

    Raises RecipeError, with file and line where the file can be read at all.
    """
    path = Path(path)
    return loads_recipe(read_text(path, RECIPE), str(path))


def loads_recipe(text: str, source: str = "<string>") -> Recipe:
    """The recipe in the YAML `text`; `source` is what errors call it."""
    document = Document(text, source, RECIPE)
    try:
        recipe = Recipe.from_dict(document.data)
    except LocatedRecipeError as error:
        raise document.error(document.line(error.path), error.message) from None
    except RecipeError as error:
        raise document.error(document.line(()), str(error)) from None
    # With a base, the rules of the file come first.
    said = len(document.data.get("rules") or ())
    numbered = [
        replace(rule, line=document.line(("rules", index)), file=source)
        for index, rule in enumerate(recipe.rules[:said])
    ]
    return replace(recipe, rules=(*numbered, *recipe.rules[said:]))


def dump_recipe(recipe: Recipe) -> str:
    """`recipe` as YAML text that `loads_recipe` reads back to an equal one."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(_quoted(recipe.to_dict()), out)
    return out.getvalue()


def _quoted(data: Any) -> Any:
    """`data` with unprintable text in double quotes: ruamel escapes it there, and loses it else."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(data, dict):
        return {key: _quoted(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_quoted(value) for value in data]
    if isinstance(data, str) and not data.isprintable():
        return DoubleQuotedScalarString(data)
    return data
