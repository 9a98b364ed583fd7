"""What is wrong with a file: one error, a line each, `FILE:LINE: dotted.path: what is wrong`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from octavo.errors import ConfigError, listed, near_misses
from octavo.recipe.document import Document
from octavo.tune.inc.fields import Kind, Section, child
from octavo.tune.inc.schema import Root

Place = tuple[str | int, ...]

ACCURACY = ("evaluation", "accuracy")
PERFORMANCE = ("evaluation", "performance")
MULTI_OBJECTIVES = ("multi_objectives", "multi_objective")
"""One key under its two names."""


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
        near = near_misses(key, known)
        return Problem(place, f"unknown key {key!r}; allowed: {allowed}{'.' if near else ''}{near}")
    if found["type"] == "missing":
        return Problem(place, f"{_owner(place)} needs the key {place[-1]!r}; add it")
    cause = found.get("ctx", {}).get("error")
    return Problem(place, str(cause) if cause is not None else found["msg"])


def _owner(place: Place) -> str:
    return f"`{dotted(place[:-1])}`" if len(place) > 1 else "a configuration"


def _keys(place: Place) -> list[str]:
    """The keys of the section at `place`."""
    kind: Kind = Root
    for key in place:
        kind = child(kind, key)
    return list(kind.model_fields)


# --- what does not fit together, though every key and value is known ---


def checks(root: Section) -> Iterator[Problem]:
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
