"""Recipes as YAML files, and YAML files as plain data that knows its lines.

Every error starts with `FILE:LINE: `.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

from octavo.errors import OctavoError, OptionError, RecipeError, did_you_mean
from octavo.recipe.reading import LocatedRecipeError
from octavo.recipe.recipe import Recipe, preset

MOST_NESTED = 100  # lists and mappings in one another
MOST_VALUES = 100_000  # with what aliases repeat
MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class FileKind:
    """What errors say of a file: it is `a recipe`, an empty one should `start` so.

    `error` is the class of what is raised.
    """

    noun: str
    start: str
    error: type[OctavoError]


def read_text(path: Path, kind: FileKind) -> str:
    """Read the file `path` as UTF-8 text; raises the error of `kind` where that fails."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        beside = [p.name for p in path.parent.glob("*.y*ml")]
        raise kind.error(
            f"{path}: there is no such {kind.noun} file.{did_you_mean(path.name, beside)}"
        ) from None
    except OSError as error:
        raise kind.error(
            f"{path}: cannot read the {kind.noun}: {error.strerror}; give a file that you may read"
        ) from None
    if len(raw) > MOST_BYTES:
        raise kind.error(
            f"{path}: a {kind.noun} has at most {MOST_BYTES:,} bytes; this is another file, or "
            "one to be made shorter: a rule's `name` may have wildcards"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{raw[error.start]:02x} is not"
        raise kind.error(
            f"{path}:{line}: a {kind.noun} is UTF-8 text; {byte}: save it as UTF-8"
        ) from None


class Document:
    """A YAML text as plain data (`data`), and as nodes that know their lines."""

    def __init__(self, text: str, source: str, kind: FileKind) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError
        from ruamel.yaml.reader import ReaderError

        self.source = source
        self.kind = kind
        self._yaml = YAML(typ="safe", pure=True)
        try:
            self._values = 0
            self._check_size(text)
            root: Any = self._yaml.compose(text)
            if root is None:
                raise self.error(1, f"the {kind.noun} is empty; {kind.start}")
            self._root, self._values = root, 0
            self.data = self._plain(root)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            context = f"{error.context}: " if error.context else ""
            raise self.error(mark.line + 1, f"{context}{error.problem}; mend the YAML") from None
        except ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise self.error(
                line, f"{chr(error.character)!r}: {error.reason}; leave it out"
            ) from None
        except RecursionError:  # lists that hold themselves
            raise self.error(1, f"the {kind.noun} is nested too deeply") from None

    def _check_size(self, text: str) -> None:
        """Python's own limit of depth is the process's, and other libraries raise it."""
        depth = 0
        for event in self._yaml.parse(text):
            self._count(event)
            name = type(event).__name__
            depth += name.endswith(("SequenceStartEvent", "MappingStartEvent"))
            depth -= name.endswith(("SequenceEndEvent", "MappingEndEvent"))
            if depth > MOST_NESTED:
                line = event.start_mark.line + 1
                raise self.error(line, f"the {self.kind.noun} is nested too deeply")

    def _count(self, what: Any) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise self.error(
                what.start_mark.line + 1,
                f"the {self.kind.noun} has more than {MOST_VALUES:,} values, with what its aliases "
                "repeat; write fewer",
            )

    def error(self, line: int, message: str) -> OctavoError:
        """Build the error that says `message` of `line`."""
        return self.kind.error(f"{self.source}:{line}: {message}")

    def line(self, path: tuple[str | int, ...]) -> int:
        """Return the line of the key or list item at `path`, or of the last one on the way."""
        node, line = self._root, self._root.start_mark.line
        for step in path:
            if isinstance(step, int):
                if node.id != "sequence" or step >= len(node.value):
                    break
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
        """Convert a YAML node to lists, dicts with text keys, text, numbers, booleans and None.

        Not ruamel's own constructor: that one fails on a date such as 2024-13-45 without a line,
        and here a date is a name like any other. An alias counts with all that it repeats.
        """
        self._count(node)
        if node.id == "scalar":
            return self._scalar(node)
        if node.id == "sequence":
            return [self._plain(item) for item in node.value]
        data: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar":
                raise self.error(line, "a key is a word, not a list or a mapping; put it in quotes")
            if key.value in data:
                raise self.error(line, f"key {key.value!r} is there twice; leave one out")
            data[key.value] = self._plain(value)
        return data

    def _scalar(self, node: Any) -> Any:
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        if kind in ("str", "timestamp"):
            return node.value
        if kind in ("int", "float", "bool", "null"):
            try:
                made = self._yaml.constructor.construct_object(node)
                str(made)  # no message could show what Python does not write: 4,301 digits
                return made
            except (ValueError, KeyError):
                kind += f": {short(node.value)}"
        raise self.error(
            node.start_mark.line + 1, f"cannot read the value of type {kind}; put text in quotes"
        )


RECIPE = FileKind("recipe", "start with `base: int8`", RecipeError)


def recipe_of(given: str | os.PathLike[str] | Recipe | None) -> Recipe:
    """Return a recipe, given as itself, a preset's name or a YAML file; None is `int8`.

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
    """Read the recipe in the YAML file `path`; each rule knows its line.

    Raises RecipeError, with file and line where the file can be read at all.
    """
    path = Path(path)
    return loads_recipe(read_text(path, RECIPE), str(path))


def loads_recipe(text: str, source: str = "<string>") -> Recipe:
    """Read the recipe in the YAML `text`, which errors call `source`."""
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
    """Return `recipe` as YAML text that `loads_recipe` reads back to an equal one."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(_quoted(recipe.to_dict()), out)
    return out.getvalue()


def _quoted(data: Any) -> Any:
    """Copy `data` with unprintable text in double quotes, where ruamel escapes and keeps it."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(data, dict):
        return {key: _quoted(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_quoted(value) for value in data]
    if isinstance(data, str) and not data.isprintable():
        return DoubleQuotedScalarString(data)
    return data
