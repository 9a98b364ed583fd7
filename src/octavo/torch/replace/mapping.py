"""Which quantized layer takes the place of which float one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from inspect import getattr_static
from typing import Any

from torch import nn

from octavo.errors import OptionError
from octavo.torch.dynamic_type import own_type
from octavo.torch.layers.registry import declarations, recognized

_CALL = ("__call__", "_wrapped_call_impl", "_call_impl", "_slow_forward", "forward")
"""What calling any module runs, in this order."""


def default_mapping() -> dict[type, type]:
    """Return float layer types and what they become: a new dict, to extend and use as `mapping`."""
    return {kind: declared.layer for declared in declarations() for kind in declared.types()}


def checked_mapping(given: Any) -> dict[type, type]:
    """Return a checked copy of a user's `mapping`; the default for None. Raises OptionError."""
    if given is None:
        return default_mapping()
    needs = "needs a dict from float module types to quantized ones, as default_mapping() returns"
    if not isinstance(given, Mapping):
        raise OptionError(f"mapping: {given!r} is a {type(given).__name__}; {needs}")
    for key, value in given.items():
        if not (isinstance(key, type) and issubclass(key, nn.Module)):
            raise OptionError(f"mapping: the key {key!r} is no module type; {needs}")
        if not isinstance(value, type):
            raise OptionError(
                f"mapping: the value for {key.__name__} is {value!r}; needs a type with a "
                "classmethod from_float(module)"
            )
    return dict(given)


# docs/notes/torch.md: "Embedding and Conv follow their own name or type"
def mapped_type(module: nn.Module, mapping: Mapping[type, type]) -> type | None:
    """Return the key of `mapping` for `module`: its type, or the nearest one it inherits.

    The key counts only if the module computes as that type does: another forward may do anything
    with the weight.
    """
    base = inherited(module, mapping)
    return None if base is None or overrides(own_type(module), base, module.__dict__) else base


def inherited(module: nn.Module, types: Collection[Any]) -> type | None:
    """Return the module's type if it is among `types`, else the nearest that it inherits from.

    A type that stands for modules of no common type is what each of them inherits from.
    """
    found = next((t for t in own_type(module).__mro__ if t in types), None)
    if found is None:
        found = next((t for t, tells in recognized() if t in types and tells(module)), None)
    return found


def overrides(kind: type, base: type, own: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the methods that modules of type `kind` override of those of `base`.

    They are those that a call of `base` runs, as far as its code names them: overridden by a
    subclass, or replaced on a module itself, which has the attributes `own`.
    """
    if is_recognized(base):
        return ("forward",) if "forward" in own else ()
    return tuple(
        name
        for name in _runs(base)
        if getattr_static(kind, name, None) is not getattr_static(base, name, None)
        or (name in own and name != "__call__")  # Python looks that one up on the type alone
    )


def not_alike(module: nn.Module, base: type) -> str:
    """Say why `module` stays float: a quantized `base` cannot stand in its place."""
    names = overrides(own_type(module), base, module.__dict__)
    whose, name = f"so {base.__name__}'s cannot stand for it", own_type(module).__name__
    patched = [  # as accelerate does with forward
        n for n in names if n in module.__dict__
    ]
    if patched:
        return (
            f"its {', '.join(patched)} was replaced on the module itself, {whose}; undo that "
            "before quantizing"
        )
    others = [n for n in names if n != "forward"]
    said = f" ({', '.join(names)})" if others else ""
    return f"{name} has a forward of its own{said}, {whose}; give it an entry in `mapping`"


@cache
def _runs(base: type) -> tuple[str, ...]:
    """Return the names of the methods that calling a module of this type runs."""
    names = list(_CALL)
    for name in names:  # grows while it is walked
        code = getattr(getattr(base, name, None), "__code__", None)
        if name in _CALL[:-1] or code is None:  # what nn.Module's own call runs is all in _CALL
            continue
        for used in code.co_names:
            ours = callable(getattr(base, used, None)) and not hasattr(nn.Module, used)
            if ours and used not in names:
                names.append(used)
    return tuple(names)


def is_recognized(base: type) -> bool:
    """Tell whether `base` stands for modules without a common type, found by what they do."""
    return any(base is kind for kind, _ in recognized())
