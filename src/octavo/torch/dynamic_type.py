"""Types made for a module's own: the same name and base, some methods replaced.

    Block                         module.__class__ = DynamicType of Block
      forward                       forward = the fused one

A method in a module's own `__dict__` would belong to one module for good. A method of its type
belongs to whoever it is called on: a shallow copy, a replica for another thread, a module with
other children. Pickles and copies name the user's type and what made the other, never that.
"""

from __future__ import annotations

import functools
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

Maker = Callable[..., type]
"""Makes the type, or gives the user's type back where that has changed; found by its name."""


class DynamicType:
    """What all of them share. No module is one by being made so: `set_type` changes its type."""

    _behind: ClassVar[type]
    _made_by: ClassVar[tuple[Maker, tuple[Any, ...]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Keep the call from the user's type: a registry of subclasses is not to know these."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)  # copyreg.__newobj__, (type, ...), state
        return (_again, (*self._made_by, *reduced[1][1:]), *reduced[2:])


def _again(maker: Maker, args: tuple[Any, ...], *rest: Any) -> Any:
    kind: Any = maker(*args)
    return kind.__new__(kind, *rest)


def type_behind(kind: type) -> type:
    """Return the user's type that `kind` stands for; `kind` itself where it is no dynamic type."""
    behind: type = vars(kind).get("_behind", kind)
    return behind


def own_type(module: nn.Module) -> type:
    """Return a module's type before torch.nn.utils.parametrize or Octavo gave it another."""
    return type_behind(type_before_parametrizations(module))


def has_dynamic_type(module: nn.Module) -> bool:
    """Tell whether the module's type is one that `make_dynamic_type` made."""
    return "_behind" in vars(type(module))


# docs/notes/torch.md: "Who calls two as one is told by its type"
def make_dynamic_type(
    kind: Any,
    methods: Mapping[str, Callable[..., Any]],
    maker: Maker,
    args: tuple[Any, ...],
    also: Any = None,
) -> type:
    """Make a subclass of `kind` with other `methods`; `maker(*args)` returns the same type.

    It is a subclass of `also` too, has what only that has, and is called by that name.

    Returns `kind` itself where nothing can stand for it: it has a metaclass or ways to be copied
    of its own.
    """
    subclasses: list[Any] = type.__subclasses__(kind)
    for known in subclasses:
        if vars(known).get("_behind") is kind and known._made_by == (maker, args):
            return known  # type: ignore[no-any-return]
    ways = ("__reduce_ex__", "__reduce__", "__copy__", "__deepcopy__")
    own_ways = any(getattr(kind, w, None) is not getattr(object, w, None) for w in ways)
    seen = also or kind
    if type(seen) not in (type, ABCMeta) or own_ways:
        return kind  # type: ignore[no-any-return]
    own = {
        "__module__": seen.__module__,
        "__qualname__": seen.__qualname__,
        "__doc__": seen.__doc__,
        "_behind": kind,
        "_made_by": (maker, args),
    }
    named = {name: functools.wraps(getattr(kind, name))(does) for name, does in methods.items()}
    bases = (DynamicType, kind) if also is None else (DynamicType, kind, also)
    made: type = type(seen)(seen.__name__, bases, {**own, **named})
    return made


def set_type(module: nn.Module, kind: type) -> bool:
    """Set the type of `module` to `kind`; return whether that changed the type."""
    if kind is type(module):
        return False
    try:
        object.__setattr__(module, "__class__", kind)
    except TypeError:  # instances of the two do not lie alike in memory
        return False
    return True
