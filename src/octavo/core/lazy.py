"""Packages whose names are loaded on first use, so that importing one costs nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy(
    package: str, homes: Mapping[str, str], loaded: str = ""
) -> tuple[list[str], Callable[[str], object]]:
    """Return `__all__` and `__getattr__` of `package`.

    `homes` has by module the names that are loaded from it, in one text; where a module has no such
    name, the name is its own. `loaded` are those that the package has already.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}
    known = sorted({*home, *loaded.split()})

    def load(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {known}")
        module = importlib.import_module(home[name])
        return getattr(module, name, module)

    return known, load
