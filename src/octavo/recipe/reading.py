"""Reading plain data key by key, so that an error knows where in the data it lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from reprlib import repr as short
from typing import Any, TypeVar

from octavo.errors import RecipeError, did_you_mean, listed

T = TypeVar("T")
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class LocatedRecipeError(RecipeError):
    """A RecipeError that knows its place: `path` are keys and list indices, the outermost first.

    The message alone is `message`; it names the last key itself, so that `str` puts the path before
    it only where there is more to it, as in `rules[2].scheme.weight.block: ...`.
    """

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message, path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        if len(self.path) < 2:
            return self.message
        words = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in self.path)
        return f"{words.removeprefix('.')}: {self.message}"


@contextmanager
def within(*keys: str | int) -> Iterator[None]:
    """Errors raised inside lie below `keys`."""
    try:
        yield
    except LocatedRecipeError as error:
        raise LocatedRecipeError(error.message, (*keys, *error.path)) from None
    except RecipeError as error:
        raise LocatedRecipeError(str(error), keys) from None


def expect(value: Any, kind: type[T], key: str) -> T:
    """Return `value`, where it is a `kind` (bool, int, float or str).

    A whole number passes as float.
    """
    if kind is float and type(value) is int and abs(value) < 2**1023:
        value = float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    hint = "; put it in quotes" if kind is str and isinstance(value, (bool, int, float)) else ""
    raise LocatedRecipeError(f"`{key}` is {_WORDS[kind]}; got {short(value)}{hint}", (key,))


def refuse_unknown(data: object, known: Iterable[str], where: str) -> None:
    """Raise LocatedRecipeError unless `data` is a mapping whose keys are all among `known`."""
    known = list(known)
    if not isinstance(data, Mapping):
        raise LocatedRecipeError(f"{where} is a mapping with {listed(known)}; got {short(data)}")
    for key in data:
        if key not in known:
            raise LocatedRecipeError(
                f"unknown key {key!r} in {where}.{did_you_mean(str(key), known)}", (str(key),)
            )
