"""Where a block stands among those of its structure, and whether its forward computes with that.

Layers of one structure share a trace. Attributes such as `layer_idx` tell them apart, which most
forwards only hand to a cache. While a block is traced these are numbers that notice it when
somebody calculates with them or compares them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

PLACES = ("layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "block_index")
"""Attributes by which layers of one structure differ."""


class Place:
    """Stands for an int, and takes note of being used as one; `plain` gives it unnoticed.

    No int itself: what a float is multiplied with would not be asked.
    """

    def __init__(self, value: int, read: list[bool]) -> None:
        self._value, self._read = value, read

    def __hash__(self) -> int:
        return hash(self._number())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._number(), name)

    def _number(self) -> int:
        self._read.append(True)
        return self._value


def _asked(name: str) -> Any:
    def method(self: Place, *args: Any) -> Any:
        return getattr(self._number(), name)(*args)

    return method


def _binary(name: str, turned: bool) -> Any:
    does = getattr(operator, name)

    def method(self: Place, other: Any) -> Any:
        number = self._number()
        other = other._number() if isinstance(other, Place) else other
        return does(other, number) if turned else does(number, other)

    return method


for _name in "neg pos abs bool int float index invert str repr format".split():
    setattr(Place, f"__{_name}__", _asked(f"__{_name}__"))
for _name in "lt le gt ge eq ne".split():
    setattr(Place, f"__{_name}__", _binary(_name, turned=False))
for _name in "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift".split():
    setattr(Place, f"__{_name.rstrip('_')}__", _binary(_name, turned=False))
    setattr(Place, f"__r{_name.rstrip('_')}__", _binary(_name, turned=True))


def plain(value: Any) -> Any:
    """Return the number behind a Place without noting its use; other values as they are."""
    return value._value if isinstance(value, Place) else value


def places_of(block: nn.Module) -> dict[str, int]:
    """Return all layer indices (`PLACES`) that a block's modules hold, by dotted name."""
    return {
        f"{name}.{key}": value
        for name, module in block.named_modules()
        for key, value in module.__dict__.items()
        if key in PLACES and type(value) is int
    }


@contextmanager
def watched(block: nn.Module) -> Iterator[list[bool]]:
    """Put Places for a block's layer indices; the yielded list is filled when one is used."""
    read: list[bool] = []
    changed = []
    for module in block.modules():
        own = module.__dict__
        for key in [k for k in PLACES if type(own.get(k)) is int]:
            changed.append((own, key, own[key]))
            own[key] = Place(own[key], read)
    try:
        yield read
    finally:
        for own, key, value in changed:
            own[key] = value
