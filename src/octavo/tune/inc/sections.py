"""What the schema is made of, how a file is read by it, and what is wrong with the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import ConfigError, listed, suggest
from octavo.recipe.yaml_files import Document
from octavo.tune.inc.values import wrong_value

Place = tuple[str | int, ...]
Kind = Any
"""What the schema says of a key: a check, a mapping of keys to kinds (a section), a ByName, or a
Key around one of these."""

ACCURACY = ("evaluation", "accuracy")
PERFORMANCE = ("evaluation", "performance")
MULTI_OBJECTIVES = ("multi_objectives", "multi_objective")
"""One key under its two names."""


@dataclass(frozen=True)
class Problem:
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
        """What the file itself says, by key, in the schema's order."""
        return {key: self.said[key] for key in self.keys if key in self.said}

    def get(self, *path: str, default: Any = None) -> Any:
        """What the file says at `path`, else `default`."""
        value: Any = self
        for key in path:
            if not isinstance(value, Section) or key not in value.said:
                return default
            value = value.said[key]
        return value


def needed(kind: Kind) -> Key:
    """`kind`, of a key that may not be left out."""
    return Key(kind, needed=True)


def idle(kind: Kind, reason: str, *used_by: str) -> Key:
    """`kind`, of a key that changes nothing unless one of `used_by` is asked for."""
    return Key(kind, idle=reason, used_by=used_by)


def key_of(kind: Kind) -> Key:
    """What is said of a key beside its kind."""
    return kind if isinstance(kind, Key) else Key(kind)


def read(kind: Kind, value: Any, place: Place, problems: list[Problem]) -> Any:
    """`value` as it is used, sections as Section; what does not fit is added to `problems`."""
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


def dotted(place: Place) -> str:
    """`quantization.op_wise['/conv'].weight`."""
    text = ""
    for key in place:
        plain = isinstance(key, str) and key.isidentifier()
        text += f".{key}" if plain else f"[{key!r}]"
    return text.removeprefix(".")


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


# --- what does not fit together, though every key and value is known ---


def consistency_problems(root: Section) -> Iterator[Problem]:
    """What does not fit together."""
    yield from _check_approach(root)
    yield from _check_criterion(root.get("tuning", "accuracy_criterion"))
    for key in MULTI_OBJECTIVES:
        yield from _check_objectives(root.get("tuning", key), ("tuning", key))
    if all(root.get("tuning", key) for key in MULTI_OBJECTIVES):
        yield Problem(
            ("tuning", "multi_objective"), "is there beside multi_objectives; give one of the two"
        )
    yield from _check_metrics(root)
    for place in (("quantization", "calibration"), ACCURACY, PERFORMANCE):
        sets = root.get(*place, "dataloader", "dataset")
        if sets is not None and len(sets.given()) > 1:
            yield Problem(
                (*place, "dataloader", "dataset"), f"names {_and(sets)}; name one data set"
            )


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


def _check_criterion(criterion: Section | None) -> Iterator[Problem]:
    if criterion is None:
        return
    given = [key for key in ("relative", "absolute") if key in criterion.given()]
    if len(given) != 1:
        yield Problem(
            ("tuning", "accuracy_criterion"),
            f"has {'both' if given else 'neither'} of relative and absolute; give one of them",
        )


def _check_objectives(multi: Section | None, place: Place) -> Iterator[Problem]:
    if multi is None:
        return
    count = len(multi.get("objective"))
    if len(set(multi.get("objective"))) != count:
        yield Problem((*place, "objective"), "names an objective twice; name each once")
    yield from _check_weights(multi.get("weight"), count, "objective", place)
    better = multi.get("higher_is_better")
    if better is not None and len(better) not in (1, count):
        yield Problem(
            (*place, "higher_is_better"),
            f"has {len(better)} values for {count} objectives; give one for each, or one for all",
        )


def _check_weights(
    weights: tuple[float, ...] | None, count: int, what: str, place: Place
) -> Iterator[Problem]:
    if weights is None:
        return
    if len(weights) != count:
        yield Problem(
            (*place, "weight"), f"has {len(weights)} values for {count} {what}s; give one for each"
        )
    if min(weights) < 0 or not sum(weights):
        yield Problem((*place, "weight"), "has to be 0 or more each, and above 0 together")


def _check_metrics(root: Section) -> Iterator[Problem]:
    accuracy = root.get(*ACCURACY)
    if accuracy is None:
        return
    one, several = accuracy.get("metric"), accuracy.get("multi_metrics")
    if one is not None and several is not None:
        yield Problem((*ACCURACY, "multi_metrics"), "is there beside metric; give one of the two")
    if one is not None and len(one.given()) > 1:
        yield Problem((*ACCURACY, "metric"), f"names {_and(one)}; name one, or use multi_metrics")
    if several is None:
        return
    place, count = (
        (*ACCURACY, "multi_metrics"),
        len(set(several.given()) - {"weight", "higher_is_better"}),
    )
    if not count:
        yield Problem(place, "names no metric; name one or more")
    yield from _check_weights(several.get("weight"), count, "metric", place)
    better = several.get("higher_is_better")
    if better is not None and len(better) != count:
        yield Problem(
            (*place, "higher_is_better"),
            f"has {len(better)} values for {count} metrics; give one for each",
        )


def _and(section: Section) -> str:
    return " and ".join(section.given())
