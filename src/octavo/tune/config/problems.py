"""From what validation found to one error: a line each, `FILE:LINE: dotted.path: what is wrong`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, listed, suggest
from octavo.recipe.yaml_files import Document

if TYPE_CHECKING:
    from pydantic import ValidationError

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """What is wrong at `place`, the keys from the outermost one on."""

    place: Place
    message: str


def error_of(problems: Iterable[Problem], document: Document) -> ConfigError:
    """All problems in the order of their lines, a line each."""
    lines = sorted(
        ((document.line(p.place), p) for p in problems), key=lambda numbered: numbered[0]
    )
    return ConfigError(
        "\n".join(
            f"{document.source}:{line}: {dotted(p.place) or 'the file'}: {p.message}"
            for line, p in lines
        )
    )


def problems_of(error: ValidationError) -> list[Problem]:
    """What pydantic found, in Octavo's words."""
    return [_problem(found) for found in error.errors(include_url=False)]


def dotted(place: Place) -> str:
    """`quantization.op_wise['/conv'].weight`."""
    words = ""
    for key in place:
        plain = isinstance(key, str) and key.isidentifier()
        words += f".{key}" if plain else f"[{key!r}]"
    return words.removeprefix(".")


def _problem(found: Mapping[str, Any]) -> Problem:
    place = tuple(found["loc"])
    if place and place[-1] == "[key]":
        place = place[:-1]
    if found["type"] == "extra_forbidden":
        key, known = str(place[-1]), _keys(place[:-1])
        allowed = listed(known) or "none"
        near = suggest(key, known)
        return Problem(place, f"unknown key {key!r}; allowed: {allowed}{'.' if near else ''}{near}")
    if found["type"] == "missing":
        return Problem(place, f"{_owner(place)} needs the key {place[-1]!r}; add it")
    cause = found.get("ctx", {}).get("error")
    return Problem(place, str(cause) if cause is not None else found["msg"])


def _owner(place: Place) -> str:
    return f"`{dotted(place[:-1])}`" if len(place) > 1 else "a configuration"


def _keys(place: Place) -> list[str]:
    """The keys of the section at `place`."""
    from octavo.tune.config.schema import Root
    from octavo.tune.config.section import Kind, child

    kind: Kind = Root
    for key in place:
        kind = child(kind, key)
    return list(kind.model_fields)
