"""What one value of a configuration may be. Each check returns the value as it is used.

Spellings are those that Neural Compressor 1.x took: `a, b` and `a b` for a list, one value where a
list is asked for, YAML 1.1's yes and no. What does not fit raises ValueError: the value, what it is
not, and what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from reprlib import repr as short
from typing import Any, TypeVar

from octavo import errors
from octavo.errors import suggest

T = TypeVar("T")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def wrong(value: Any, what: str, allowed: str) -> ValueError:
    """The error of a value that is not `what`."""
    said = "(nothing)" if value is None else short(value)
    return ValueError(f"value {said} is not {what}; allowed: {allowed}")


def text(value: Any) -> str:
    """Text that is not empty."""
    if not isinstance(value, str):
        quotes = "text; put it in quotes" if isinstance(value, (bool, int, float)) else "text"
        raise wrong(value, "text", quotes)
    if not value.strip():
        raise wrong(value, "text", "text that is not empty")
    return value


def flag(value: Any) -> bool:
    """True or False."""
    if isinstance(value, bool):
        return value
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise wrong(value, "a switch", "true, false")
    return found


def whole(low: int | None = None, high: int | None = None) -> Callable[[Any], int]:
    """Whole numbers from `low` to `high`, both included."""
    bounds = {
        (False, False): "a whole number",
        (True, False): f"a whole number, {low} or more",
        (True, True): f"a whole number from {low} to {high}",
    }[low is not None, high is not None]

    def check(value: Any) -> int:
        if type(value) is not int:
            raise wrong(value, "a whole number", bounds)
        if (low is not None and value < low) or (high is not None and value > high):
            raise wrong(value, "in range", bounds)
        return value

    return check


def number(
    low: float = -math.inf, high: float = math.inf, *, above: bool = False
) -> Callable[[Any], float]:
    """Finite numbers from `low` (or only `above` it) to `high`; numbers in quotes too."""
    words = "a finite number"
    if low > -math.inf:
        words = f"a finite number above {low:g}" if above else f"a finite number, {low:g} or more"
    if high < math.inf:
        words += f", up to {high:g}"

    def check(value: Any) -> float:
        found = _float(value)
        if found is None:
            raise wrong(value, "a number", words)
        if not math.isfinite(found) or not low <= found <= high or (above and found == low):
            raise wrong(value, "in range", words)
        return found

    return check


def share(below: float = math.inf) -> Callable[[Any], float]:
    """Finite numbers, `1%` for 0.01; less than `below` where that is given."""
    words = 'a finite number such as 0.01, or "1%"' + (
        f"; below {below:g}" if below < math.inf else ""
    )

    def check(value: Any) -> float:
        percent = isinstance(value, str) and re.fullmatch(r"\s*(-?\d+(\.\d+)?)\s*%\s*", value)
        found = float(percent[1]) / 100 if percent else _float(value)
        if found is None:
            raise wrong(value, "a number", words)
        if not -math.inf < found < below:
            raise wrong(value, "in range", words)
        return found

    return check


def one_of(what: str, *known: T) -> Callable[[Any], T]:
    """One of the values in `known`."""

    def check(value: Any) -> T:
        for one in known:
            if value == one and isinstance(value, bool) == isinstance(one, bool):
                return one
        raise wrong(value, what, listed(value, known))

    return check


def listed(value: Any, known: tuple[Any, ...]) -> str:
    """`a, b`, and those of them that `value` is like."""
    names = errors.listed(known)
    near = suggest(value, map(str, known)) if isinstance(value, str) else ""
    return f"{names}.{near}" if near else names


def many(check: Callable[[Any], T], what: str) -> Callable[[Any], tuple[T, ...]]:
    """A list whose items pass `check`: a YAML list, `a, b`, `a b`, or one item alone."""

    def check_all(value: Any) -> tuple[T, ...]:
        items = _items(value)
        if not items:
            raise wrong(value, what, "a list, or one value")
        return tuple(check(item) for item in items)

    return check_all


def names(value: Any) -> tuple[str, ...]:
    """A list of names, which may be empty; a name may be a number."""
    items = _items(value) or _empty(value, "a list of names")
    return tuple(str(item) if type(item) is int else text(item) for item in items)


def numeral(check: Callable[[Any], T]) -> Callable[[Any], T]:
    """`check`, with whole numbers in quotes taken as numbers, as they are in `8, 16, 32`."""

    def check_numeral(value: Any) -> T:
        digits = isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip())
        return check(int(value)) if digits else check(value)

    return check_numeral


def shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    """One shape (`1, 3, 224` or a list of whole numbers), or a list of them."""
    inner = isinstance(value, list) and value and all(isinstance(one, list) for one in value)
    size = many(numeral(whole(1)), "a shape")
    return tuple(size(one) for one in value) if inner else (size(value),)


def version(value: Any) -> float:
    """1.0, as a number or in quotes."""
    found = _float(value)
    if found != 1:
        raise wrong(value, "a version that is known here", "1.0 (Neural Compressor 1.x)")
    return found


def count_or_all(value: Any) -> int:
    """A whole number above 0, or -1 for all there are."""
    if type(value) is int and (value == -1 or value > 0):
        return value
    raise wrong(value, "a number of batches", "a whole number, 1 or more, or -1 for all")


def iou_thresholds(value: Any) -> float | str:
    """A number from 0 to 1, or the one range that COCO has."""
    if value == "0.5:0.05:0.95":
        return str(value)
    found = _float(value)
    if found is None or not 0 <= found <= 1:
        raise wrong(value, "an IoU threshold", "0.5:0.05:0.95, or a number from 0 to 1")
    return found


def flag_or_text(value: Any) -> bool | str:
    """A switch, or text that is not empty."""
    if isinstance(value, bool) or (isinstance(value, str) and value.strip()):
        return value
    raise wrong(value, "a switch or a path", "true, false, or the path of a history")


def anything(value: Any) -> Any:
    """Whatever it is."""
    return value


def any_list(value: Any) -> tuple[Any, ...]:
    """A YAML list of whatever it is."""
    if not isinstance(value, list):
        raise wrong(value, "a list", "a list")
    return tuple(value)


def any_mapping(value: Any) -> dict[str, Any]:
    """A YAML mapping of whatever it is."""
    if not isinstance(value, dict):
        raise wrong(value, "a mapping", "a mapping")
    return value


def mapping_or_nothing(value: Any) -> dict[str, Any]:
    """A YAML mapping, empty where the file leaves it so."""
    return {} if value is None else any_mapping(value)


def refused(reason: str) -> Callable[[Any], Any]:
    """Nothing passes; `reason` says why, and what to do."""

    def check(value: Any) -> Any:
        raise ValueError(reason)

    return check


def either(known: dict[str, T], reasons: dict[str, str], what: str) -> Callable[[Any], T]:
    """The value that a name in `known` stands for; a name in `reasons` is refused with them."""

    def check(value: Any) -> T:
        if isinstance(value, str) and value in known:
            return known[value]
        if isinstance(value, str) and value in reasons:
            raise ValueError(
                f"value {value!r} is not {what} here: {reasons[value]}; allowed: "
                + errors.listed(known)
            )
        raise wrong(value, what, listed(value, (*known,)))

    return check


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _items(value: Any) -> list[Any]:
    if isinstance(value, str):
        parts = value.split(",") if "," in value else value.split()
        return [part.strip() for part in parts]
    if isinstance(value, list):
        return value
    return [] if value is None or isinstance(value, dict) else [value]


def _empty(value: Any, what: str) -> list[Any]:
    if value == []:
        return []
    raise wrong(value, what, "names, as a list or with commas between them")
