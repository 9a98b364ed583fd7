"""Recipes as YAML files. Every error starts with `FILE:LINE: `."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.located import LocatedRecipeError
from octavo.recipe.schema import Recipe


def load_recipe(path: str | Path) -> Recipe:
    """The recipe in the YAML file `path`; each rule knows its line.

    Raises RecipeError, with file and line where the file can be read at all.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        beside = [p.name for p in path.parent.glob("*.y*ml")]
        raise RecipeError(
            f"{path}: there is no such recipe file.{did_you_mean(path.name, beside)}"
        ) from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot read the recipe: {error.strerror}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RecipeError(
            f"{path}:{line}: a recipe is UTF-8 text; byte 0x{raw[error.start]:02x} is not"
        ) from None
    return loads_recipe(text, str(path))


def loads_recipe(text: str, source: str = "<string>") -> Recipe:
    """The recipe in the YAML `text`; `source` is what errors call it."""
    document = _Document(text, source)
    try:
        recipe = Recipe.from_dict(document.data)
    except LocatedRecipeError as error:
        raise document.error(document.line(error.path), error.message) from None
    except RecipeError as error:
        raise document.error(document.line(()), str(error)) from None
    # With a base, the rules of the file come first.
    said = len(document.data.get("rules") or ())
    numbered = [
        replace(rule, line=document.line(("rules", index)))
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


class _Document:
    """A YAML text as plain data (`data`), and as nodes that know their lines."""

    def __init__(self, text: str, source: str) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError
        from ruamel.yaml.reader import ReaderError

        self.source = source
        self._yaml = YAML(typ="safe", pure=True)
        try:
            root: Any = self._yaml.compose(text)
            if root is None:
                raise self.error(1, "the recipe is empty; start with `base: int8`")
            self._root = root
            self.data = self._plain(root)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            context = f"{error.context}: " if error.context else ""
            raise self.error(mark.line + 1, f"{context}{error.problem}") from None
        except ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise self.error(line, f"{chr(error.character)!r}: {error.reason}") from None
        except RecursionError:
            raise self.error(1, "the recipe is nested too deeply") from None

    def error(self, line: int, message: str) -> RecipeError:
        """The error that says `message` of `line`."""
        return RecipeError(f"{self.source}:{line}: {message}")

    def line(self, path: tuple[str | int, ...]) -> int:
        """The line of the key or list item that `path` leads to, or of the last one on the way."""
        node, line = self._root, self._root.start_mark.line
        for step in path:
            if isinstance(step, int):
                node = node.value[step]
                line = node.start_mark.line
                continue
            pairs = node.value if node.id == "mapping" else ()
            found = next((pair for pair in pairs if pair[0].value == step), None)
            if found is None:
                break
            line, node = found[0].start_mark.line, found[1]
        return int(line) + 1

    def _plain(self, node: Any) -> Any:
        """Lists, dicts with text keys, text, numbers, booleans and None.

        Not ruamel's own constructor: that one fails on a date such as 2024-13-45 without a line,
        and here a date is a name like any other.
        """
        if node.id == "scalar":
            return self._scalar(node)
        if node.id == "sequence":
            return [self._plain(item) for item in node.value]
        data: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar":
                raise self.error(line, "a key is a word, not a list or a mapping")
            if key.value in data:
                raise self.error(line, f"key {key.value!r} is there twice")
            data[key.value] = self._plain(value)
        return data

    def _scalar(self, node: Any) -> Any:
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        if kind in ("str", "timestamp"):
            return node.value
        if kind in ("int", "float", "bool", "null"):
            try:
                return self._yaml.constructor.construct_object(node)
            except (ValueError, KeyError):
                kind += f": {short(node.value)}"
        raise self.error(node.start_mark.line + 1, f"cannot read the value of type {kind}")
