"""What the schema is made of, how a file is read by it, and what does not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from octavo.errors import ConfigError, listed, suggest
from octavo.recipe.yaml_files import Document
from octavo.tune.inc.values import anything, wrong_value

Place = tuple[str | int, ...]
Kind = Any
"""What the schema says of a key: a check, a mapping of keys to kinds (a section), a ByName, or a
Key around one of these."""

ACCURACY = ("evaluation", "accuracy")
PERFORMANCE = ("evaluation", "performance")
MULTI_OBJECTIVES = ("multi_objectives", "multi_objective")
"""One key under its two names."""


class Problem(NamedTuple):
    """What is wrong at `place`, the keys from the outermost one on."""

    place: Place
    message: str


@dataclass(frozen=True)
class Key:
    """A key that may not be left out (`needed`), or that changes nothing, for the reason `idle`,
    unless one of `used_by` (a front end or an approach) is what the file asks for."""

    kind: Kind
    needed: bool = False
    idle: str = ""
    used_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class ByName:
    """A mapping from names that pass `name` to `kind`."""

    name: Callable[[Any], str]
    kind: Kind


@dataclass(frozen=True)
class Section:
    """What a file says: values by key, those left out are not there. `keys` are the schema's."""

    keys: Mapping[str, Kind]
    said: Mapping[str, Any]

    def given(self) -> dict[str, Any]:
        """Return what the file itself says, by key, in the schema's order."""
        return {key: self.said[key] for key in self.keys if key in self.said}

    def get(self, *path: str, default: Any = None) -> Any:
        """Return what the file says at `path`, else `default`."""
        value: Any = self
        for key in path:
            if not isinstance(value, Section) or key not in value.said:
                return default
            value = value.said[key]
        return value


def needed(kind: Kind) -> Key:
    """Return `kind` for a key that may not be left out."""
    return Key(kind, needed=True)


def idle(reason: str, kind: Kind = anything, *used_by: str) -> Key:
    """Return `kind` for a key that changes nothing unless one of `used_by` is asked for."""
    return Key(kind, idle=reason, used_by=used_by)


def key_of(kind: Kind) -> Key:
    """Return `kind` with what is said of a key beside it."""
    return kind if isinstance(kind, Key) else Key(kind)


def read(kind: Kind, value: Any, place: Place, problems: list[Problem]) -> Any:
    """Return `value` as it is used, sections as Section; add what does not fit to `problems`."""
    kind = key_of(kind).kind
    try:
        if isinstance(kind, Mapping):
            return _section(kind, value, place, problems)
        if isinstance(kind, ByName):
            return _by_name(kind, value, place, problems)
        return kind(value)
    except ValueError as error:
        problems.append(Problem(place, str(error)))
        return None


def _section(
    keys: Mapping[str, Kind], value: Any, place: Place, problems: list[Problem]
) -> Section:
    if value is not None and not isinstance(value, Mapping):
        raise wrong_value(value, "a section", f"a mapping with {listed(keys) or 'nothing'}")
    data = value or {}
    found = {}
    for key, kind in keys.items():
        if key in data:
            found[key] = read(kind, data[key], (*place, key), problems)
        elif key_of(kind).needed:
            owner = f"`{dotted(place)}`" if place else "a configuration"
            problems.append(Problem((*place, key), f"{owner} needs the key {key!r}; add it"))
    for key in data:
        if not isinstance(key, str):
            problems.append(Problem((*place, key), "Keys should be strings"))
        elif key not in keys:
            allowed, near = listed(keys) or "none", suggest(key, keys)
            message = f"unknown key {key!r}; allowed: {allowed}{'.' if near else ''}{near}"
            problems.append(Problem((*place, key), message))
    return Section(keys, found)


def _by_name(kind: ByName, value: Any, place: Place, problems: list[Problem]) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise wrong_value(value, "a mapping", "a mapping")
    for name in value or {}:
        read(kind.name, name, (*place, name), problems)
    return {
        name: read(kind.kind, inner, (*place, name), problems)
        for name, inner in (value or {}).items()
    }


def plain(value: Any) -> Any:
    """Return what a file says, its sections as mappings."""
    if isinstance(value, Section):
        return {key: plain(inner) for key, inner in value.given().items()}
    return value


def dotted(place: Place) -> str:
    """Return `quantization.op_wise['/conv'].weight`."""
    text = ""
    for key in place:
        is_name = isinstance(key, str) and key.isidentifier()
        text += f".{key}" if is_name else f"[{key!r}]"
    return text.removeprefix(".")


def error_of(problems: Iterable[Problem], document: Document) -> ConfigError:
    """Return all problems as one error, a line each, in the order of the file's lines."""
    lines = sorted(((document.line(p.place), p) for p in problems), key=lambda pair: pair[0])
    return ConfigError(
        "\n".join(
            f"{document.source}:{line}: {dotted(place) or 'the file'}: {message}"
            for line, (place, message) in lines
        )
    )


def consistency_problems(root: Section) -> Iterator[Problem]:
    """Yield what does not fit together, though every key and value is known."""
    yield from _check_approach(root)
    criterion = root.get("tuning", "accuracy_criterion")
    bounds = [] if criterion is None else {"relative", "absolute"} & set(criterion.given())
    if criterion is not None and len(bounds) != 1:
        yield Problem(
            ("tuning", "accuracy_criterion"),
            f"has {'both' if bounds else 'neither'} of relative and absolute; give one of them",
        )
    for key in MULTI_OBJECTIVES:
        place: Place = ("tuning", key)
        multi = root.get("tuning", key)
        if multi is not None:
            names = multi.get("objective")
            if len(set(names)) != len(names):
                yield Problem((*place, "objective"), "names an objective twice; name each once")
            yield from _check_lists(multi, place, len(names), "objective", "weight")
    if all(root.get("tuning", key) for key in MULTI_OBJECTIVES):
        yield _beside(("tuning", "multi_objective"), "multi_objectives")
    one, several = (root.get(*ACCURACY, key) for key in ("metric", "multi_metrics"))
    if one is not None and len(one.given()) > 1:
        named = " and ".join(one.given())
        yield Problem((*ACCURACY, "metric"), f"names {named}; name one, or use multi_metrics")
    if several is not None:
        place = (*ACCURACY, "multi_metrics")
        count = len(several.given().keys() - {"weight", "higher_is_better"})
        if one is not None:
            yield _beside(place, "metric")
        if not count:
            yield Problem(place, "names no metric; name one or more")
        yield from _check_lists(several, place, count, "metric", "weight", "higher_is_better")


def _beside(place: Place, other: str) -> Problem:
    return Problem(place, f"is there beside {other}; give one of the two")


def _check_approach(root: Section) -> Iterator[Problem]:
    given = root.get("quantization", "approach")
    if not root.get("model", "framework").startswith("pytorch") or given in ("dynamic", "auto"):
        return
    missing = "" if given else "it is left out, and so "
    yield Problem(
        ("quantization", "approach"),
        f"{missing}post_training_static_quant, which PyTorch models cannot have here: Octavo has "
        "no static int8 layers for PyTorch. Run the file as dynamic: --approach dynamic "
        "(load_config(path, approach='dynamic') in Python), or say post_training_dynamic_quant",
    )


def _check_lists(
    section: Section, place: Place, count: int, what: str, *keys: str
) -> Iterator[Problem]:
    """Yield what is wrong with the lists of values for `count` objectives or metrics."""
    for key in keys:
        values = section.get(key)
        if values is not None and len(values) != count:
            said = f"has {len(values)} values for {count} {what}s; give one for each"
            yield Problem((*place, key), said)
    weights = section.get("weight")
    if weights is not None and (min(weights) < 0 or not sum(weights)):
        yield Problem((*place, "weight"), "has to be 0 or more each, and above 0 together")
