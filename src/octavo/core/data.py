"""Dataclasses as plain data and back, by the types of their fields."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T", bound="Data")


class Data:
    """A dataclass that goes to JSON and comes back."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text, which has no infinity: numbers that are not finite are null."""
        return json.dumps(_finite(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls: type[T], data: Mapping[str, Any]) -> T:
        """The inverse of `to_dict`.

        Raises KeyError, TypeError or ValueError for data of another kind.
        """
        for field in fields(cls):  # type: ignore[arg-type]
            needed = field.default is MISSING and field.default_factory is MISSING
            if needed and field.name not in data:
                raise KeyError(field.name)
        hints = _hints(cls)  # type: ignore[arg-type]
        return cls(**{key: _value(hints.get(key), value) for key, value in data.items()})


def plain(value: Any) -> Any:
    """Lists, dicts, text, numbers and None."""
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


def _value(hint: Any, value: Any) -> Any:
    """The value of a field of type `hint`, of its plain form."""
    kinds = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return None if value is None else _value(kinds[0], value)
    if get_origin(hint) is tuple:
        each = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(_value(kind, item) for kind, item in zip(each, value, strict=True))
    if hasattr(hint, "from_dict"):
        return hint.from_dict(value)
    return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
