"""Dataclasses as plain data and back, by the types of their fields."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from reprlib import repr as short
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T", bound="Data")
_D = TypeVar("_D")
_LARGEST = 1 << 63
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class Data:
    """A dataclass that goes to JSON and comes back."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text, in which numbers that are not finite are null."""
        return json.dumps(_finite(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls: type[T], data: Mapping[str, Any]) -> T:
        """Build the object from `data`: the inverse of `to_dict`.

        Raises KeyError, TypeError or ValueError for data of another kind.
        """
        return from_plain(cls, data)


def from_plain(kind: type[_D], data: Mapping[str, Any]) -> _D:
    """Build the dataclass `kind` whose fields are in `data`, each as its type says.

    Raises KeyError, TypeError or ValueError, which name the field.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"{kind.__name__}: needs a mapping, not {short(data)}")
    for field in fields(kind):  # type: ignore[arg-type]
        needed = field.default is MISSING and field.default_factory is MISSING
        if needed and field.name not in data:
            raise KeyError(field.name)
    hints = _hints(kind)  # type: ignore[arg-type]
    return kind(**{key: fitted(hints.get(key), value, key) for key, value in data.items()})


def plain(value: Any) -> Any:
    """Return `value` as lists, dicts, text, numbers and None."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def fitted(hint: Any, value: Any, name: str) -> Any:
    """Return `value`, the plain form of `name`, as an object of type `hint`.

    A hint of no kind that plain data has lets every value pass. Raises TypeError or ValueError,
    which say the name.
    """
    origin, kinds = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(kinds, value, name)
    if origin in _WORDS:
        return _plain_value(origin, value, name)
    if not isinstance(origin, type):
        return value
    if hasattr(origin, "from_dict"):
        return hint.from_dict(value)
    if is_typeddict(origin):
        return _keys(origin, _mapping(value, name), name)
    if issubclass(origin, Enum):
        return origin(value)
    if origin in (tuple, list, Sequence):
        return _items(origin, kinds, value, name)
    if origin in (dict, Mapping):
        return {
            fitted(kinds[0], key, f"a key of {name}"): fitted(kinds[1], item, f"{name}.{key}")
            for key, item in _mapping(value, name).items()
        }
    return value


def _mapping(value: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: needs a mapping, not {short(value)}")
    return value


def _keys(hint: Any, value: Mapping[Any, Any], name: str) -> dict[Any, Any]:
    """Return `value` with the keys of a TypedDict, fitted to their types, and its other keys."""
    kinds = _hints(hint)
    for key in kinds:
        if key in hint.__required_keys__ and key not in value:
            raise ValueError(f"{name}: has no {key!r}")
    return {key: fitted(kinds.get(key), item, f"{name}.{key}") for key, item in value.items()}


def _one_of(kinds: Sequence[Any], value: Any, name: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    first: Exception | None = None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return fitted(kind, value, name)
        except (TypeError, ValueError) as error:
            first = first or error
    raise first or TypeError(name)


def _plain_value(kind: type, value: Any, name: str) -> Any:
    fits = type(value) in ((int, float) if kind is float else (kind,))
    if not fits or (type(value) is int and not -_LARGEST <= value < _LARGEST):
        raise TypeError(f"{name}: needs {_WORDS[kind]}, not {short(value)}")
    return value


def _items(origin: type, kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name}: needs a list, not {short(value)}")
    alike = origin is not tuple or kinds[-1] is Ellipsis
    if not alike and len(value) != len(kinds):
        raise ValueError(f"{name}: needs {len(kinds)} values, not {short(value)}")
    each = kinds[:1] * len(value) if alike else kinds
    pairs = enumerate(zip(each, value, strict=True))
    found = [fitted(kind, item, f"{name}[{i}]") for i, (kind, item) in pairs]
    return tuple(found) if origin is tuple else found


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
