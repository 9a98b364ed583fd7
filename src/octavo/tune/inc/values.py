"""Checks of single values of a configuration.

A check takes a value as the file has it and returns it as it is used; it raises ValueError, with
the value and what is allowed. Spellings are those of Neural Compressor 1.x: `a, b` and `a b` for a
list, one value where a list is asked for, YAML 1.1's yes and no, numbers in quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from reprlib import repr as short
from typing import Any, TypeVar

from octavo import errors

T = TypeVar("T")
Check = Callable[[Any], T]
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def wrong_value(value: Any, what: str, allowed: str) -> ValueError:
    """Return the error of a value that is not `what`."""
    said = "(nothing)" if value is None else short(value)
    return ValueError(f"value {said} is not {what}; allowed: {allowed}")


def anything(value: Any) -> Any:
    """Take any value, of a key that does nothing."""
    return value


def text(value: Any) -> str:
    """Take text that is not empty."""
    if not isinstance(value, str):
        quotes = "text; put it in quotes" if isinstance(value, (bool, int, float)) else "text"
        raise wrong_value(value, "text", quotes)
    if not value.strip():
        raise wrong_value(value, "text", "text that is not empty")
    return value


def flag(value: Any) -> bool:
    """Take a switch."""
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise wrong_value(value, "a switch", "true, false")
    return found


def flag_or_text(value: Any) -> bool | str:
    """Take a switch, or text that is not empty."""
    if isinstance(value, bool) or (isinstance(value, str) and value.strip()):
        return value
    raise wrong_value(value, "a switch or a path", "true, false, or the path of a history")


def whole(low: int, high: float = math.inf) -> Check[int]:
    """Take whole numbers from `low` to `high`, both included."""
    words = f"a whole number, {low} or more"
    if high < math.inf:
        words = f"a whole number from {low} to {high}"

    def check(value: Any) -> int:
        digits = isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value)
        found = int(value) if digits else value
        if type(found) is not int:
            raise wrong_value(value, "a whole number", words)
        if not low <= found <= high:
            raise wrong_value(value, "in range", words)
        return found

    return check


def count_or_all(value: Any) -> int:
    """Take a whole number above 0, or -1 for all there are."""
    if type(value) is int and (value == -1 or value > 0):
        return value
    raise wrong_value(value, "a number of batches", "a whole number, 1 or more, or -1 for all")


def number(low: float = -math.inf, high: float = math.inf) -> Check[float]:
    """Take finite numbers from `low` to `high`."""
    words = "a finite number"
    if low > -math.inf:
        words += f", {low:g} or more" if high == math.inf else f" from {low:g} to {high:g}"
    return _number(lambda found: low <= found <= high, words)


def share(below: float = math.inf) -> Check[float]:
    """Take finite numbers less than `below`, `1%` for 0.01."""
    words = 'a finite number such as 0.01, or "1%"'
    words += f"; below {below:g}" if below < math.inf else ""
    return _number(lambda found: found < below, words, percent=True)


def _number(fits: Callable[[float], bool], words: str, *, percent: bool = False) -> Check[float]:
    def check(value: Any) -> float:
        hundredths = percent and isinstance(value, str) and value.rstrip().endswith("%")
        try:
            if isinstance(value, bool):
                raise TypeError
            found = float(value.rstrip()[:-1]) / 100 if hundredths else float(value)
        except (TypeError, ValueError, OverflowError):
            raise wrong_value(value, "a number", words) from None
        if not math.isfinite(found) or not fits(found):
            raise wrong_value(value, "in range", words)
        return found

    return check


def one_of(what: str, *known: T) -> Check[T]:
    """Take one of the values in `known`."""

    def check(value: Any) -> T:
        for one in known:
            if value == one and isinstance(value, bool) == isinstance(one, bool):
                return one
        raise wrong_value(value, what, _listed(value, known))

    return check


def either(known: dict[str, T], reasons: dict[str, str], what: str) -> Check[T]:
    """Take the names in `known` for their values, and refuse those in `reasons` with these."""

    def check(value: Any) -> T:
        if isinstance(value, str) and value in known:
            return known[value]
        if isinstance(value, str) and value in reasons:
            raise ValueError(
                f"value {value!r} is not {what} here: {reasons[value]}; allowed: "
                + errors.listed(known)
            )
        raise wrong_value(value, what, _listed(value, (*known,)))

    return check


def refused(reason: str) -> Check[Any]:
    """Refuse every value; `reason` says why, and what to do."""

    def check(value: Any) -> Any:
        raise ValueError(reason)

    return check


def many(check: Check[T], what: str) -> Check[tuple[T, ...]]:
    """Take a list whose items pass `check`: a YAML list, `a, b`, `a b`, or one item alone."""

    def check_all(value: Any) -> tuple[T, ...]:
        items = _items(value)
        if not items:
            raise wrong_value(value, what, "a list, or one value")
        return tuple(check(item) for item in items)

    return check_all


def some_of(what: str, *known: str) -> Check[tuple[str, ...]]:
    """Take a list of the words in `known`."""
    return many(one_of(what, *known), f"a list of {what}")


def names(value: Any) -> tuple[str, ...]:
    """Take a list of names, which may be empty; a name may be a number."""
    items = _items(value)
    if not items and value != []:
        raise wrong_value(value, "a list of names", "names, as a list or with commas between them")
    return tuple(str(item) if type(item) is int else text(item) for item in items)


def _listed(value: Any, known: tuple[Any, ...]) -> str:
    """Return `a, b`, and those of them that `value` is like."""
    near = errors.suggest(value, map(str, known)) if isinstance(value, str) else ""
    return f"{errors.listed(known)}.{near}" if near else errors.listed(known)


def _items(value: Any) -> list[Any]:
    if isinstance(value, str):
        parts = value.split(",") if "," in value else value.split()
        return [part.strip() for part in parts]
    if isinstance(value, list):
        return value
    return [] if value is None or isinstance(value, dict) else [value]


NUMBER = number()
NUMBERS = many(NUMBER, "a list of numbers")
POSITIVE = whole(1)
